/**
 * A layout that keeps its groups and units where they stand while the data change.
 *
 * Every group keeps the box it was given, also when it needs less; what arrives goes into the first free room, and
 * what grows pushes its neighbours no further than it must. Room that was left behind stays free until somebody packs
 * anew, or until a group would grow around more than a share of it.
 */

import type { Arrangement } from "@/charts/units/arrange";
import { fitArea } from "@/charts/units/arrange";

/** A box inside its parent, without the parent's label and padding. */
export interface Box {
  x: number;
  y: number;
  w: number;
  h: number;
}

/** How the inside of one group was arranged. */
export interface Kept {
  /** The boxes of its children, by what they are. */
  boxes: Map<number, Box>;
  width: number;
  height: number;
}

/** How the units of one leaf were arranged. */
export interface KeptUnits {
  perLine: number;
  /** The cell of each unit, by what it is. */
  cells: Map<number, number>;
}

/** Everything of a layout that the next one keeps. */
export interface Memory {
  /** By path of what the groups are. */
  groups: Map<string, Kept>;
  leaves: Map<string, KeptUnits>;
  chrome: { band: number; padding: number; gap: number }[];
  stretch: number;
  /** Share of the canvas that boxes filled when it was packed. */
  fill: number;
}

export interface CalmOptions {
  gap: number;
  aspect: number;
  /** All boxes have one size: where it grows, they are put in order anew. */
  uniform: boolean;
  /** Never pack anew: who was left of or above another stays so. */
  keepSides: boolean;
  /** Give up room that is not needed any more. */
  compact: boolean;
}

/** Boxes may leave this share of a group empty before it is packed anew instead of growing. */
const LEAST_FILL = 0.5;
/** Among so many siblings a growing box pushes the others; among more it moves to free room. */
const MOST_PUSHED = 64;
/** Beyond so many comparisons room is sought at the edges only. */
const MOST_COMPARED = 4_000_000;
const EPS = 1e-6;

/** Place boxes near where they were; null where they had better be packed anew. Sizes become those kept. */
export function arrangeCalmly(
  ids: ArrayLike<number>,
  widths: Float64Array,
  heights: Float64Array,
  kept: Kept,
  options: CalmOptions,
): Arrangement | null {
  if (options.compact)
    return options.keepSides ? placeAll(ids, widths, heights, kept, options) : null;
  const calm = placeAll(ids, widths, heights, kept, options);
  if (!calm || options.keepSides) return calm;
  const grew = calm.width > kept.width + EPS || calm.height > kept.height + EPS;
  return grew && calm.fill < LEAST_FILL ? null : calm;
}

function placeAll(
  ids: ArrayLike<number>,
  widths: Float64Array,
  heights: Float64Array,
  kept: Kept,
  options: CalmOptions,
): (Arrangement & { fill: number }) | null {
  const boxes: (Box | null)[] = Array.from(widths, (_, i) =>
    startBox(kept.boxes.get(ids[i]), widths[i], heights[i], options.compact),
  );
  const before = (i: number) => kept.boxes.get(ids[i]) as Box;
  if (options.compact) pushKnown(boxes, before, options.gap);
  else if (!settleGrown(boxes, before, options)) return null;
  const room = new Room(options.compact ? { width: 0, height: 0 } : kept, options);
  for (const box of boxes) if (box) room.take(box);
  const arriving = Array.from(boxes.keys())
    .filter((i) => boxes[i] === null)
    .sort((a, b) => heights[b] - heights[a] || widths[b] - widths[a] || a - b);
  for (const i of arriving) boxes[i] = room.find(widths[i], heights[i]);
  const all = boxes as Box[];
  all.forEach((box, i) => {
    widths[i] = box.w;
    heights[i] = box.h;
  });
  return {
    x: Float64Array.from(all, (box) => box.x),
    y: Float64Array.from(all, (box) => box.y),
    width: room.width,
    height: room.height,
    fill: room.fill(),
  };
}

function startBox(before: Box | undefined, w: number, h: number, compact: boolean): Box | null {
  if (!before) return null;
  if (compact) return { x: 0, y: 0, w, h };
  return { ...before, w: Math.max(before.w, w), h: Math.max(before.h, h) };
}

/** Boxes that grew stay where there is room; else they push their neighbours, or move. False: pack anew. */
function settleGrown(
  boxes: (Box | null)[],
  before: (i: number) => Box,
  { gap, uniform, keepSides }: CalmOptions,
): boolean {
  const present = Array.from(boxes.keys()).filter((i) => boxes[i]);
  const grown = present.filter((i) => {
    const [box, was] = [boxes[i] as Box, before(i)];
    return box.w > was.w + EPS || box.h > was.h + EPS;
  });
  if (grown.length === 0) return true;
  if (uniform && !keepSides && grown.length > 1) return false;
  const hits = grown.filter((i) =>
    present.some((j) => j !== i && overlaps(boxes[i] as Box, boxes[j] as Box, gap)),
  );
  if (hits.length === 0) return true;
  if (keepSides || present.length <= MOST_PUSHED) pushKnown(boxes, before, gap);
  else for (const i of hits) boxes[i] = null;
  return true;
}

function pushKnown(boxes: (Box | null)[], before: (i: number) => Box, gap: number): void {
  const present = Array.from(boxes.keys()).filter((i) => boxes[i]);
  pushApart(
    present.map((i) => boxes[i] as Box),
    present.map(before),
    gap,
  );
}

/** Move boxes right and down until none overlap; who was left of or above another stays so. */
export function pushApart(boxes: Box[], before: readonly Box[], gap: number): void {
  const byX = Array.from(boxes.keys()).sort((a, b) => before[a].x - before[b].x);
  const byY = Array.from(boxes.keys()).sort((a, b) => before[a].y - before[b].y);
  for (const j of byX)
    for (const i of byX) {
      if (i === j || before[i].x + before[i].w > before[j].x + EPS) continue;
      if (apartVertically(before[i], before[j])) continue;
      boxes[j].x = Math.max(boxes[j].x, boxes[i].x + boxes[i].w + gap);
    }
  for (const j of byY)
    for (const i of byY) {
      if (i === j || before[i].y + before[i].h > before[j].y + EPS) continue;
      if (sideBySide(boxes[i], boxes[j], gap)) continue;
      boxes[j].y = Math.max(boxes[j].y, boxes[i].y + boxes[i].h + gap);
    }
}

function apartVertically(a: Box, b: Box): boolean {
  return a.y + a.h <= b.y + EPS || b.y + b.h <= a.y + EPS;
}

function sideBySide(a: Box, b: Box, gap: number): boolean {
  return a.x + a.w + gap <= b.x + EPS || b.x + b.w + gap <= a.x + EPS;
}

function overlaps(a: Box, b: Box, gap: number): boolean {
  return (
    a.x < b.x + b.w + gap - EPS &&
    b.x < a.x + a.w + gap - EPS &&
    a.y < b.y + b.h + gap - EPS &&
    b.y < a.y + a.h + gap - EPS
  );
}

/** The inside of a group: which room is taken, and where there is some. */
class Room {
  width: number;
  height: number;
  private readonly taken: Box[] = [];
  private area = 0;
  private compared = 0;

  constructor(
    kept: { width: number; height: number },
    private readonly options: CalmOptions,
  ) {
    this.width = kept.width;
    this.height = kept.height;
  }

  take(box: Box): void {
    this.taken.push(box);
    this.area += (box.w + this.options.gap) * (box.h + this.options.gap);
    this.width = Math.max(this.width, box.x + box.w);
    this.height = Math.max(this.height, box.y + box.h);
  }

  /** Give a new box the free place that makes the whole grow least, the topmost and leftmost of those. */
  find(w: number, h: number): Box {
    const { gap, aspect } = this.options;
    let best: Box | null = null;
    let bestCost = Infinity;
    for (const [x, y] of this.corners()) {
      const cost = fitArea(Math.max(this.width, x + w), Math.max(this.height, y + h), aspect);
      if (cost > bestCost + EPS) continue;
      const ties = best !== null && cost > bestCost - EPS;
      if (ties && best && (y > best.y + EPS || (y > best.y - EPS && x >= best.x))) continue;
      const box = { x, y, w, h };
      if (this.isTaken(box, gap)) continue;
      [best, bestCost] = [box, cost];
    }
    const found = best ?? { x: 0, y: this.height + gap, w, h };
    this.take(found);
    return found;
  }

  private *corners(): Generator<[number, number]> {
    const { gap } = this.options;
    yield [0, 0];
    yield [this.width + gap, 0];
    yield [0, this.height + gap];
    if (this.compared > MOST_COMPARED) return;
    for (const box of this.taken) {
      yield [box.x + box.w + gap, box.y];
      yield [box.x, box.y + box.h + gap];
      yield [box.x + box.w + gap, 0];
      yield [0, box.y + box.h + gap];
    }
  }

  private isTaken(box: Box, gap: number): boolean {
    this.compared += this.taken.length;
    return this.taken.some((other) => overlaps(box, other, gap));
  }

  fill(): number {
    const { gap } = this.options;
    return this.area / ((this.width + gap) * (this.height + gap));
  }
}

/** The cell of each unit of a leaf: where it was, else the first free one. */
export function keepCells(
  ids: ArrayLike<number>,
  kept: KeptUnits | undefined,
): { cells: Int32Array; count: number } {
  const cells = new Int32Array(ids.length).fill(-1);
  const taken = new Set<number>();
  let count = 0;
  for (let i = 0; i < ids.length && kept; i++) {
    const cell = kept.cells.get(ids[i]);
    if (cell === undefined || taken.has(cell)) continue;
    cells[i] = cell;
    taken.add(cell);
    count = Math.max(count, cell + 1);
  }
  let free = 0;
  for (let i = 0; i < ids.length; i++) {
    if (cells[i] >= 0) continue;
    while (taken.has(free)) free++;
    cells[i] = free;
    taken.add(free);
    count = Math.max(count, free + 1);
  }
  return { cells, count };
}
