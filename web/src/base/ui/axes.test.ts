import { describe, expect, test } from "vitest";
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
    expect(ticks.map(tickLabel)).toContain("18:00");
    expect(ticks.map(tickLabel)).toContain("11 Nov");
  });
});
