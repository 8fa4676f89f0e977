import { describe, expect, it } from "vitest";
import { memoryHeight, momentAt, momentUnder, totals } from "@/charts/replay/memory";

const one = {
  rank: 3,
  peak_bytes: 70,
  step_ms: 10,
  times_ms: [1, 4, 8],
  levels: { activations: [10, 40, 0], gradients: [0, 30, 30] },
};

describe("memory of a rank", () => {
  it("adds its kinds up", () => {
    expect(totals(one)).toEqual([10, 70, 30]);
  });
  it("keeps a level until the next moment", () => {
    expect([momentAt(one, 0), momentAt(one, 5), momentAt(one, 9)]).toEqual([0, 1, 2]);
  });
  it("is found under the pointer, and not past the end of its step", () => {
    const drawing = { before: [{ ...one, step_ms: 20 }], after: [one], width: 292 };
    expect(momentUnder(drawing, 84 + 50, 10)).toEqual({ one, moment: 1 });
    expect(momentUnder(drawing, 84 + 150, 10)).toBeNull();
    expect(momentUnder(drawing, 84 + 50, memoryHeight(1) + 40)).toBeNull();
  });
});
