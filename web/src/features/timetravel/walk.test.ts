import { describe, expect, it } from "vitest";
import type { Mark } from "@/features/timetravel/walk";
import {
  advance,
  areaPath,
  clamp,
  fromField,
  groupMarks,
  keyStep,
  nextMark,
  toField,
} from "@/features/timetravel/walk";

const span = { fromMs: 1_000_000, toMs: 2_000_000 };
const mark = (timeMs: number): Mark => ({ timeMs, kind: "xid", text: String(timeMs) });

describe("moving through the past", () => {
  it("plays at the speed chosen, both ways, and stops at the ends", () => {
    expect(advance(1_500_000, 1, 60, 1000, span)).toEqual({ atMs: 1_560_000, ended: false });
    expect(advance(1_500_000, -1, 60, 1000, span)).toEqual({ atMs: 1_440_000, ended: false });
    expect(advance(1_990_000, 1, 60, 1000, span)).toEqual({ atMs: 2_000_000, ended: true });
    expect(advance(1_010_000, -1, 60, 1000, span)).toEqual({ atMs: 1_000_000, ended: true });
  });

  it("jumps to the nearest mark on that side, never to where it stands", () => {
    const marks = [mark(1_100_000), mark(1_500_000), mark(1_300_000)];
    expect(nextMark(marks, 1_300_000, 1)?.timeMs).toBe(1_500_000);
    expect(nextMark(marks, 1_300_000, -1)?.timeMs).toBe(1_100_000);
    expect(nextMark(marks, 1_500_000, 1)).toBeNull();
  });

  it("joins marks that lie on the same place and keeps their number", () => {
    const groups = groupMarks(
      [mark(1_500_100), mark(1_500_000), mark(1_900_000), mark(5)],
      span,
      10,
    );
    expect(groups.map((group) => [group.timeMs, group.count])).toEqual([
      [1_500_000, 2],
      [1_900_000, 1],
    ]);
    expect(groupMarks([mark(span.toMs)], span, 10)).toHaveLength(1);
  });

  it("moves by keys and stays within the strip", () => {
    expect(keyStep("ArrowRight", span)).toBe(15_000);
    expect(keyStep("x", span)).toBeNull();
    expect(clamp(1_000_000 + (keyStep("Home", span) ?? 0), span)).toBe(span.fromMs);
  });

  it("leaves gaps empty", () => {
    const path = areaPath(
      [
        { timeMs: 1_000_000, share: 1 },
        { timeMs: 1_200_000, share: null },
        { timeMs: 1_400_000, share: 0.5 },
      ],
      span,
      100,
      10,
    );
    expect(path.match(/M/g)).toHaveLength(2);
  });

  it("writes a time into a field and reads it back", () => {
    const timeMs = Date.UTC(2026, 10, 16, 1, 2, 3);
    expect(fromField(toField(timeMs))).toBe(timeMs);
    expect(fromField("")).toBeNull();
  });
});
