/** Draws what fills the memory of every rank over a step: areas of kinds, and the recorded total as a line. */

import type { Palette } from "@/charts/marey/kinds";

/** The kinds from the bottom up; the documents name them so. */
export const MEMORY_KINDS = [
  "left over",
  "optimizer",
  "gradients",
  "activations",
  "buffers",
] as const;
export type MemoryKind = (typeof MEMORY_KINDS)[number];

export interface RankMemory {
  rank: number;
  peak_bytes: number;
  step_ms: number;
  times_ms: readonly number[];
  levels: Readonly<Record<string, readonly number[]>>;
}

export interface MemoryDrawing {
  before: readonly RankMemory[];
  after: readonly RankMemory[];
  width: number;
  palette: Palette;
  colours: Readonly<Record<MemoryKind, string>>;
  words: { rank: (rank: number) => string; bytes: (bytes: number) => string };
}

const ROW_PX = 44;
const GUTTER_PX = 84;
const GAP_PX = 6;

export const memoryHeight = (ranks: number): number => ranks * ROW_PX + 2;

/** The whole level of each moment. */
export function totals({ times_ms, levels }: RankMemory): number[] {
  return times_ms.map((_, n) =>
    Object.values(levels).reduce((sum, level) => sum + (level[n] ?? 0), 0),
  );
}

/** What a rank holds at a moment: the last that was noted before it. */
export function momentAt(one: RankMemory, ms: number): number {
  let found = 0;
  while (found + 1 < one.times_ms.length && one.times_ms[found + 1] <= ms) found++;
  return found;
}

/** Draw one row per rank into a context that is scaled to CSS pixels. */
export function drawMemory(context: CanvasRenderingContext2D, drawing: MemoryDrawing): void {
  const { before, after, width, palette, words } = drawing;
  context.clearRect(0, 0, width, memoryHeight(after.length));
  const all = [...before, ...after];
  const longest = Math.max(...all.map(({ step_ms }) => step_ms), 1e-9);
  const most = Math.max(...all.flatMap(totals), 1);
  const scale = { x: (width - GUTTER_PX - 8) / longest, y: (ROW_PX - GAP_PX) / most };
  context.font = "11px sans-serif";
  context.textBaseline = "middle";
  after.forEach((one, row) => {
    const bottom = (row + 1) * ROW_PX - 1;
    context.fillStyle = palette.text;
    context.fillText(words.rank(one.rank), 4, bottom - ROW_PX * 0.62, GUTTER_PX - 8);
    context.fillStyle = palette.muted;
    context.fillText(words.bytes(one.peak_bytes), 4, bottom - ROW_PX * 0.3, GUTTER_PX - 8);
    const base = one.times_ms.map(() => 0);
    for (const kind of MEMORY_KINDS) {
      const level = one.levels[kind] ?? base;
      const low = [...base];
      level.forEach((bytes, n) => (base[n] += bytes));
      context.fillStyle = drawing.colours[kind];
      context.fill(outline(one, low, base, { ...scale, bottom }));
    }
    const recorded = before.find(({ rank }) => rank === one.rank);
    if (recorded) {
      context.strokeStyle = palette.text;
      context.stroke(outline(recorded, null, totals(recorded), { ...scale, bottom }));
    }
    context.strokeStyle = palette.line;
    context.strokeRect(GUTTER_PX, bottom + 0.5, width - GUTTER_PX - 8, 0);
  });
}

/** A path in steps: an area between two levels, or a line along one. */
function outline(
  { times_ms, step_ms }: RankMemory,
  low: readonly number[] | null,
  high: readonly number[],
  { x, y, bottom }: { x: number; y: number; bottom: number },
): Path2D {
  const path = new Path2D();
  const at = (n: number) => GUTTER_PX + (n < times_ms.length ? times_ms[n] : step_ms) * x;
  const walk = (level: readonly number[], n: number) => {
    path.lineTo(at(n), bottom - level[n] * y);
    path.lineTo(at(n + 1), bottom - level[n] * y);
  };
  if (times_ms.length === 0) return path;
  path.moveTo(at(0), bottom - (low ? low[0] : high[0]) * y);
  for (let n = 0; n < times_ms.length; n++) walk(high, n);
  if (low) {
    for (let n = times_ms.length - 1; n >= 0; n--) {
      path.lineTo(at(n + 1), bottom - low[n] * y);
      path.lineTo(at(n), bottom - low[n] * y);
    }
    path.closePath();
  }
  return path;
}

/** The rank and the moment under a point; null outside of the rows. */
export function momentUnder(
  { before, after, width }: Pick<MemoryDrawing, "before" | "after" | "width">,
  x: number,
  y: number,
): { one: RankMemory; moment: number } | null {
  const one = after[Math.floor(y / ROW_PX)];
  if (!one || x < GUTTER_PX) return null;
  const longest = Math.max(...[...before, ...after].map(({ step_ms }) => step_ms), 1e-9);
  const ms = ((x - GUTTER_PX) / (width - GUTTER_PX - 8)) * longest;
  return ms > one.step_ms ? null : { one, moment: momentAt(one, ms) };
}
