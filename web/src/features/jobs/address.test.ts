import { expect, test } from "vitest";
import { predicateOf, printAddress, readAddress } from "@/features/jobs/address";

test("the state of the table survives its address", () => {
  const search = "?state=running&user=ada&q=bert&sort=waste&up=1&columns=name%2Cuser";
  expect(readAddress(printAddress(readAddress(search)))).toEqual(readAddress(search));
});

test("a text is looked for in every name, beside the filters", () => {
  const predicate = predicateOf(readAddress("?user=ada&q=bert"));
  expect(predicate).toMatchObject({ and: [{ field: "user", op: "eq", value: "ada" }, {}] });
  expect(predicateOf(readAddress(""))).toBeNull();
});
