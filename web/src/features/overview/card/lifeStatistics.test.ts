import { describe, expect, it } from "vitest";
import { lifeRange } from "@/features/overview/card/lifeStatistics";

const LIFE = {
  "n1:0": { util: { p5: 10, median: 50, p95: 90 }, power: { p5: null, median: null, p95: null } },
  "n1:1": { util: { p5: 30, median: 60, p95: 95 } },
  "n1:2": { util: { p5: 20, median: 80, p95: 99 } },
};

describe("a metric over a workload's life", () => {
  it("spans its GPUs, with the median of their medians between", () => {
    expect(lifeRange(LIFE, ["n1:0", "n1:1", "n1:2"], "util")).toEqual({
      low: 10,
      median: 60,
      high: 99,
    });
    expect(lifeRange(LIFE, ["n1:0", "n1:1"], "util")).toEqual({ low: 10, median: 55, high: 95 });
  });
  it("is of the chosen GPUs only", () => {
    expect(lifeRange(LIFE, ["n1:2"], "util")).toEqual({ low: 20, median: 80, high: 99 });
  });
  it("is nothing without samples, without statistics, or for GPUs of nobody", () => {
    expect(lifeRange(LIFE, ["n1:0"], "power")).toBeNull();
    expect(lifeRange(null, ["n1:0"], "util")).toBeNull();
    expect(lifeRange(LIFE, ["n9:0"], "util")).toBeNull();
  });
});
