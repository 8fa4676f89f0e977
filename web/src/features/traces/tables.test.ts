import { describe, expect, it } from "vitest";
import { filterRows, printCsv, sortRows } from "@/features/traces/tables";

const rows = [
  { name: "b,1", value: 2 },
  { name: "=cmd()", value: null },
  { name: 'a"', value: 10 },
];

describe("tables", () => {
  it("are sorted, with what is missing last", () => {
    expect(sortRows(rows, "value", false).map((row) => row.value)).toEqual([2, 10, null]);
    expect(sortRows(rows, "value", true).map((row) => row.value)).toEqual([10, 2, null]);
  });

  it("are filtered by any column", () => {
    expect(filterRows(rows, ["name", "value"], "10")).toEqual([rows[2]]);
    expect(filterRows(rows, ["name"], " ")).toHaveLength(3);
  });

  it("become CSV that a spreadsheet does not execute", () => {
    expect(printCsv(rows, ["name", "value"])).toBe('name,value\n"b,1",2\n\'=cmd(),\n"a""",10\n');
  });
});
