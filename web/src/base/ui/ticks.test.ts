import { expect, test } from "vitest";
import { formatDuration } from "@/base/format";
import { roundTicks } from "@/base/ui/ticks";

test("numbers are marked at round values", () => {
  expect(roundTicks(0, 100, "%")).toEqual([0, 50, 100]);
  expect(roundTicks(37, 412, "W")).toEqual([100, 200, 300, 400]);
  expect(roundTicks(0.02, 0.061, "")).toHaveLength(3);
});

test("durations are marked as clocks and calendars have them", () => {
  const texts = (high: number) => roundTicks(0, high, "s").map(formatDuration);
  expect(texts(45_960)).toEqual(["0\u2009s", "6\u2009h", "12\u2009h"]);
  expect(texts(3000)).toEqual(["0\u2009s", "15\u2009min", "30\u2009min", "45\u2009min"]);
  expect(texts(9 * 86_400)).toEqual(["0\u2009s", "5\u2009d"]);
});

test("a range without extent has its one value", () => {
  expect(roundTicks(5, 5, "")).toEqual([5]);
});
