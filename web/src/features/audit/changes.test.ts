import { expect, test } from "vitest";
import { findChanges } from "@/features/audit/changes";

test("only the values that differ are changes, and absent is not empty", () => {
  const before = { when: "util < 5%", enabled: true, gone: "" };
  const after = { when: "util < 9%", enabled: true, made: null };
  expect(findChanges({ before, after })).toEqual([
    { path: "gone", before: "", after: null },
    { path: "made", before: null, after: "null" },
    { path: "when", before: "util < 5%", after: "util < 9%" },
  ]);
});

test("an entry without documents changed no values", () => {
  expect(findChanges({ before: null, after: null })).toEqual([]);
});
