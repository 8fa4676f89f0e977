/** Rules on the canvas: a mark on each group that holds a violating unit, bars with shares once there is room. */

import type { TextColumn } from "@/base/columns";
import type { Frame } from "@/charts/units/camera";
import type { UnitLayout } from "@/charts/units/layout";
import type { Camera } from "@/charts/units/drawing/scene";

/** How many units of each group violate the rule of each place. */
export interface RuleCounts {
  slots: number;
  /** Group × place: now or over the life. */
  any: Int32Array;
  /** Group × place: now. */
  now: Int32Array;
  /** 1 for each group that holds a violating unit of any rule. */
  held: Uint8Array;
}

// Codes of a verdict column: 0 is "violated now", 1 "violated over its life".
const NOW_CODE = 0;
const LIFE_CODE = 1;

/** Count, per group of a layout, the units that violate each rule; null where none does. */
export function countRules(
  layout: UnitLayout,
  columns: readonly (TextColumn | null)[],
): RuleCounts | null {
  const { tree } = layout;
  const slots = columns.length;
  const any = new Int32Array(tree.groups * slots);
  const now = new Int32Array(tree.groups * slots);
  const held = new Uint8Array(tree.groups);
  const first = tree.layerStart[tree.layers];
  columns.forEach((column, slot) => {
    if (!column) return;
    for (let g = first; g < tree.groups; g++) {
      const end = tree.firstUnit[g] + tree.unitCount[g];
      for (let i = tree.firstUnit[g]; i < end; i++) {
        const code = column.codes[tree.order[i]];
        if (code === NOW_CODE) now[g * slots + slot]++;
        if (code === NOW_CODE || code === LIFE_CODE) any[g * slots + slot]++;
      }
    }
  });
  // Groups stand in breadth-first order: from the last to the first, each adds to its parent.
  for (let g = tree.groups - 1; g > 0; g--) {
    for (let slot = 0; slot < slots; slot++) {
      if (any[g * slots + slot] === 0) continue;
      held[g] = 1;
      any[tree.parent[g] * slots + slot] += any[g * slots + slot];
      now[tree.parent[g] * slots + slot] += now[g * slots + slot];
    }
  }
  held[0] = held.includes(1) ? 1 : 0;
  return held[0] ? { slots, any, now, held } : null;
}

/** One rule's mark on one group, in pixels of the canvas. */
export interface RuleSpot {
  group: number;
  slot: number;
  /** Shares of the group's units: now or over the life, and now. */
  any: number;
  now: number;
  x: number;
  y: number;
  w: number;
  h: number;
}

export interface PlacedRules {
  dots: RuleSpot[];
  bars: RuleSpot[];
  /** Where the marks of a group begin: its label ends before that. */
  leftOf: Map<number, number>;
}

const PITCH_PX = 8;
const RADIUS_PX = 2.8;
const SMALLEST_GROUP_PX = 13;
// Fixed places are for groups that have as much room again for their name.
const ROOM_FOR_PLACES = 1.8;
const BARS_FROM_BAND_PX = 11;
const BARS_FROM_WIDTH_PX = 100;
// With less than this the bars of all rules must fit; with more, the first ones are enough.
const ROOMY_BAND_PX = 22;
const LEAST_BAR_PITCH_PX = 3;

/** Where the marks are for this camera: on the innermost groups that are large enough to carry them. */
export function placeRules(
  layout: UnitLayout,
  counts: RuleCounts,
  camera: Camera,
  frame: Frame,
  most: number,
): PlacedRules {
  const placed: PlacedRules = { dots: [], bars: [], leftOf: new Map() };
  const { tree } = layout;
  let groups = 0;
  if (tree.layers > 0) visit(0, 0);
  return placed;

  function visit(group: number, layer: number): boolean {
    const first = tree.firstChild[group];
    let small = false;
    for (let g = first; g < first + tree.childCount[group] && groups < most; g++) {
      if (!counts.held[g]) continue;
      const [x, y] = [
        (layout.groupX[g] - camera.x) * camera.scale,
        (layout.groupY[g] - camera.y) * camera.scale,
      ];
      const [w, h] = [layout.groupW[g] * camera.scale, layout.groupH[g] * camera.scale];
      if (w < SMALLEST_GROUP_PX || h < SMALLEST_GROUP_PX) {
        small = true;
        continue;
      }
      if (x > frame.width || y > frame.height || x + w < 0 || y + h < 0) continue;
      // A group whose parts are too small to be marked carries the mark itself.
      if (layer + 1 < tree.layers && !visit(g, layer + 1)) continue;
      groups++;
      place(g, layer + 1, { x, y, w, h });
    }
    return small;
  }

  function place(
    group: number,
    layer: number,
    box: { x: number; y: number; w: number; h: number },
  ): void {
    const band = layout.bands[layer] * camera.scale;
    const padding = layout.paddings[layer] * camera.scale;
    const right = Math.min(box.x + box.w - Math.max(2, padding), frame.width - 5);
    const top = box.y + padding;
    if (top + 4 < 0 || right < 4) return;
    if (
      band >= BARS_FROM_BAND_PX &&
      box.w >= BARS_FROM_WIDTH_PX &&
      (band >= ROOMY_BAND_PX || urgentSlots(group).length <= rowsIn(band))
    ) {
      return placeBars(group, right, top, band, box.w);
    }
    const row = counts.slots * PITCH_PX;
    const y = band >= 2 * RADIUS_PX + 1 ? top + band / 2 : box.y + RADIUS_PX + 2;
    if (box.w - 2 * padding >= ROOM_FOR_PLACES * row) return placeDots(group, right - row, y);
    // No room for every place: the violated rules in their order, as many as fit; what holds now first.
    const fitting = Math.max(1, Math.floor((box.w - padding) / PITCH_PX));
    const slots = urgentSlots(group)
      .slice(0, fitting)
      .sort((a, b) => a - b);
    slots.forEach((slot, i) =>
      placed.dots.push(
        spot(
          group,
          slot,
          right - (slots.length - i) * PITCH_PX + 2,
          y - RADIUS_PX,
          2 * RADIUS_PX,
          2 * RADIUS_PX,
        ),
      ),
    );
    if (band >= 2 * RADIUS_PX + 1) placed.leftOf.set(group, right - slots.length * PITCH_PX - 1);
  }

  function placeDots(group: number, left: number, y: number): void {
    for (let slot = 0; slot < counts.slots; slot++) {
      if (counts.any[group * counts.slots + slot] === 0) continue;
      placed.dots.push(
        spot(group, slot, left + slot * PITCH_PX, y - RADIUS_PX, 2 * RADIUS_PX, 2 * RADIUS_PX),
      );
    }
    const first = urgentSlots(group).reduce((least, slot) => Math.min(least, slot), counts.slots);
    placed.leftOf.set(group, left + first * PITCH_PX - 3);
  }

  function placeBars(group: number, right: number, top: number, band: number, width: number): void {
    const rows = urgentSlots(group)
      .slice(0, rowsIn(band))
      .sort((a, b) => a - b);
    const w = Math.min(150, Math.max(48, width * 0.36));
    const pitch = Math.min(9, (band - 2) / rows.length);
    const h = Math.max(2, pitch - 1.5);
    const y = top + (band - pitch * rows.length) / 2;
    rows.forEach((slot, i) => placed.bars.push(spot(group, slot, right - w, y + i * pitch, w, h)));
    placed.leftOf.set(group, right - w - 4);
  }

  function urgentSlots(group: number): number[] {
    const at = group * counts.slots;
    const held = Array.from({ length: counts.slots }, (_, slot) => slot).filter(
      (slot) => counts.any[at + slot] > 0,
    );
    return held.sort(
      (a, b) => Number(counts.now[at + b] > 0) - Number(counts.now[at + a] > 0) || a - b,
    );
  }

  function spot(group: number, slot: number, x: number, y: number, w: number, h: number): RuleSpot {
    const at = group * counts.slots + slot;
    const units = Math.max(1, tree.unitCount[group]);
    return { group, slot, any: counts.any[at] / units, now: counts.now[at] / units, x, y, w, h };
  }
}

function rowsIn(band: number): number {
  return Math.max(1, Math.floor((band - 2) / LEAST_BAR_PITCH_PX));
}

/** The mark under a point; dots are small, so near is enough. */
export function ruleAt({ dots, bars }: PlacedRules, x: number, y: number): RuleSpot | null {
  const within = (spot: RuleSpot, more: number) =>
    x >= spot.x - more &&
    x <= spot.x + spot.w + more &&
    y >= spot.y - more &&
    y <= spot.y + spot.h + more;
  return bars.find((bar) => within(bar, 0.8)) ?? dots.find((dot) => within(dot, 1.5)) ?? null;
}

/** Draw the marks: filled is now, hollow is over the life. Setting colours is what costs: so place by place. */
export function drawRules(
  context: CanvasRenderingContext2D,
  placed: PlacedRules,
  colours: readonly string[],
  ground: string,
): void {
  if (placed.dots.length > 0) drawDots(context, placed.dots, colours, ground);
  if (placed.bars.length > 0) drawBars(context, placed.bars, colours, ground);
}

function drawDots(
  context: CanvasRenderingContext2D,
  dots: readonly RuleSpot[],
  colours: readonly string[],
  ground: string,
): void {
  context.fillStyle = ground;
  context.beginPath();
  for (const { x, y, w, h } of dots) context.rect(x - 1.2, y - 1.2, w + 2.4, h + 2.4);
  context.fill();
  context.lineWidth = 1.4;
  colours.forEach((colour, slot) => {
    const ours = dots.filter((dot) => dot.slot === slot);
    if (ours.length === 0) return;
    context.fillStyle = context.strokeStyle = colour;
    for (const [now, radius] of [
      [true, RADIUS_PX],
      [false, RADIUS_PX - 0.7],
    ] as const) {
      context.beginPath();
      for (const dot of ours) {
        if (dot.now > 0 !== now) continue;
        const [x, y] = [dot.x + dot.w / 2, dot.y + dot.h / 2];
        context.moveTo(x + radius, y);
        context.arc(x, y, radius, 0, 2 * Math.PI);
      }
      if (now) context.fill();
      else context.stroke();
    }
  });
}

function drawBars(
  context: CanvasRenderingContext2D,
  bars: readonly RuleSpot[],
  colours: readonly string[],
  ground: string,
): void {
  context.fillStyle = ground;
  for (const { x, y, w, h } of bars) context.fillRect(x, y, w, h);
  context.lineWidth = 1;
  colours.forEach((colour, slot) => {
    context.fillStyle = context.strokeStyle = colour;
    for (const bar of bars) {
      if (bar.slot !== slot) continue;
      // At least two pixels: one unit of a thousand is still there.
      const long = Math.max(2, bar.any * bar.w);
      const filled = bar.now > 0 ? Math.max(2, bar.now * bar.w) : 0;
      if (filled > 0) context.fillRect(bar.x, bar.y, filled, bar.h);
      if (long > filled)
        context.strokeRect(
          bar.x + filled + 0.5,
          bar.y + 0.5,
          Math.max(1, long - filled - 1),
          Math.max(1, bar.h - 1),
        );
    }
  });
}
