import { expect, test } from "vitest";
import { lineLink, printAddress, readAddress, sortLines } from "@/features/waste/sums";

const LINES = [
  { name: "b10", gpu_hours: 2, findings: 1, workloads: 1 },
  { name: "b9", gpu_hours: 2, findings: 5, workloads: 1 },
  { name: "a", gpu_hours: 30, findings: 2, workloads: 2 },
];

test("lines are sorted by any column, equal ones by name as people read it", () => {
  expect(sortLines(LINES, "gpu_hours", true).map((line) => line.name)).toEqual(["a", "b9", "b10"]);
  expect(sortLines(LINES, "name", false).map((line) => line.name)).toEqual(["a", "b9", "b10"]);
  expect(
    sortLines(LINES, "name", false, (name) => (name === "a" ? "Zebra" : name)).map(
      (line) => line.name,
    ),
  ).toEqual(["b9", "b10", "a"]);
  expect(sortLines(LINES, "findings", true)[0].name).toBe("b9");
});

test("a name from the cluster is only ever text in a link", () => {
  expect(lineLink("user", "a&b=<c>")).toBe("/about?user=a%26b%3D%3Cc%3E");
  expect(lineLink("partition", "gpu")).toBe("/about?partition=gpu");
  expect(lineLink("rule", "idle")).toBe("/findings?state=all&rule=idle");
  expect(lineLink("user", "")).toBeNull();
});

test("the period is in the address", () => {
  expect(printAddress(readAddress("?by=rule&since=30d"))).toBe("?by=rule&since=30d");
  expect(readAddress("?from=2026-11-01T00:00")).toMatchObject({
    since: "",
    from: "2026-11-01T00:00",
  });
  expect(printAddress(readAddress("?by=nonsense"))).toBe("");
});
