import { describe, expect, it } from "vitest";
import type { Waiter } from "@/features/queue/line";
import { filterLine, placeOnStrip } from "@/features/queue/line";

const waiter = (workload: string, user: string): Waiter => ({
  workload,
  user,
  project: "vision",
  partition: "gpu",
  position: 1,
  gpus: 8,
  gpus_per_host: 8,
  gpu_model: "A100",
  time_limit_s: 3600,
  submit_ms: 0,
  waited_s: 60,
  priority: 1,
  reason: "Priority",
  verdict: "behind",
  sentence: "",
  p50_s: 600,
  p90_s: 1200,
});

describe("the waiting line", () => {
  it("keeps the waiters that hold every word", () => {
    const rows = [waiter("1", "ada"), waiter("2", "bob")];
    expect(filterLine(rows, "ADA a100").map((row) => row.workload)).toEqual(["1"]);
    expect(filterLine(rows, "")).toHaveLength(2);
    expect(filterLine(rows, "nobody")).toHaveLength(0);
  });

  it("places a minute at the left, a week at the right, and nothing outside", () => {
    expect(placeOnStrip(1)).toBe(0);
    expect(placeOnStrip(60)).toBe(0);
    expect(placeOnStrip(7 * 86_400)).toBe(100);
    expect(placeOnStrip(1e9)).toBe(100);
    expect(placeOnStrip(3600)).toBeGreaterThan(placeOnStrip(600));
  });
});
