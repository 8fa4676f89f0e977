import { expect, test } from "vitest";
import { printAddress, readAddress, shortRanges } from "@/features/callgraphs/address";

test("an address comes back as it was written", () => {
  const text =
    "?source=callgraph%3Aa&source=callgraph%3Ab&path=main&path=load+it&split=step&target=3&where=main+%3E+*";
  expect(readAddress(printAddress(readAddress(text)))).toEqual(readAddress(text));
  expect(readAddress(text).path).toEqual(["main", "load it"]);
  expect(printAddress(readAddress(""))).toBe("");
});

test("numbers of profiles are written in short", () => {
  expect(shortRanges([7, 0, 1, 2, 2])).toBe("0-2,7");
  expect(shortRanges([])).toBe("");
});
