import { expect, test } from "vitest";
import { sparklinePath } from "@/base/sparkline";

test("a line spans its box from the oldest value to the newest", () => {
  expect(sparklinePath([0, 5, 10], 20, 10)).toBe("M0.0 10.0L10.0 5.0L20.0 0.0");
});

test("a missing value leaves a gap", () => {
  expect(sparklinePath([0, null, 10], 20, 10)).toBe("M0.0 10.0M20.0 0.0");
});

test("a flat line stays in the middle and nothing draws nothing", () => {
  expect(sparklinePath([3, 3], 10, 8)).toBe("M0.0 4.0L10.0 4.0");
  expect(sparklinePath([null], 10, 8)).toBe("");
});
