import { describe, expect, test } from "vitest";
import { formatDay, formatTimeOfDay } from "@/base/clock";
import { axisTicks, tickLabel, timeTicks } from "@/base/ui/axes";

describe("axes", () => {
  test("limits are round and no smaller than what is drawn", () => {
    expect(axisTicks(1934)).toEqual([0, 1000, 2000]);
    expect(axisTicks(0)).toEqual([0, 1]);
    expect(axisTicks(36)).toEqual([0, 20, 40]);
  });

  test("waits are marked by what clocks show", () => {
    expect(axisTicks(4400, "s")).toEqual([0, 1800, 3600, 5400]);
  });

  test("times are whole hours, no more than have room", () => {
    const first = new Date(2026, 10, 10, 16, 23).getTime();
    const ticks = timeTicks(first, first + 24 * 3_600_000, 8);
    expect(ticks.length).toBeGreaterThan(5);
    expect(ticks.length).toBeLessThanOrEqual(9);
    const hour = new Date(2026, 10, 10, 18).getTime();
    const day = new Date(2026, 10, 11).getTime();
    expect(ticks).toContain(hour);
    expect(tickLabel(hour)).toBe(formatTimeOfDay(hour));
    expect(tickLabel(day)).toBe(formatDay(day));
    expect(timeTicks(first, first + 1_800_000, 8).length).toBeGreaterThan(3);
  });
});
