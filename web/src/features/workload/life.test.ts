import { describe, expect, it } from "vitest";
import { joinSpans, startAt } from "@/features/workload/life";

const waiting = { state: "pending", from: 1_000, to: 22_000 };
const running = { state: "running", from: 22_000, to: 900_000 };

describe("the life of a job", () => {
  it("joins a state that only changed its reason", () => {
    const later = { state: "pending", from: 9_000, to: 22_000 };
    expect(joinSpans([{ ...waiting, to: 9_000 }, later, running])).toEqual([waiting, running]);
  });

  it("begins to run when the scheduler says so, not when it was seen", () => {
    expect(startAt([waiting, running], 14_000).map((one) => [one.from, one.to])).toEqual([
      [1_000, 14_000],
      [14_000, 900_000],
    ]);
  });

  it("keeps what was seen where the start is another one, or not known", () => {
    expect(startAt([waiting, running], 500_000)).toEqual([waiting, running]);
    expect(startAt([waiting, running], null)).toEqual([waiting, running]);
    expect(startAt([running], 14_000)).toEqual([running]);
  });
});
