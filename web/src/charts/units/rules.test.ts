import { expect, test } from "vitest";
import type { TextColumn } from "@/base/columns";
import { VERDICT_WORDS } from "@/base/verdicts/verdicts";
import type { LayoutRequest } from "@/charts/units/layout";
import { layoutUnits } from "@/charts/units/layout";
import { countRules, placeRules, ruleAt } from "@/charts/units/rules";

/** Two outer groups of two inner ones with four units each. */
function layout(label = 11) {
  const rows = 16;
  const key = (of: (i: number) => number, size: number) => ({
    codes: Int32Array.from({ length: rows }, (_, i) => of(i)),
    size,
    ranks: Int32Array.from({ length: size }, (_, i) => i),
  });
  const layer = {
    layout: "pack",
    size: "count",
    margin: 8,
    padding: 4,
    label,
    aspect: 1.6,
    across: 0,
  } as const;
  const request: LayoutRequest = {
    rows: Int32Array.from({ length: rows }, (_, i) => i),
    keys: [key((i) => Math.floor(i / 8), 2), key((i) => Math.floor(i / 4), 4)],
    orders: [
      { by: "name", descending: false },
      { by: "name", descending: false },
    ],
    unitOrder: null,
    layers: [layer, layer],
    unit: { layout: "pack", gap: 0.1, aspect: 1.6, across: 0, align: "start" },
    shares: null,
    viewport: { width: 800, height: 600 },
  };
  return layoutUnits(request);
}

const column = (codes: number[]): TextColumn => ({
  kind: "text",
  codes: Int32Array.from(codes),
  words: VERDICT_WORDS,
});
const quiet = () => new Array<number>(16).fill(3);
/** Unit 0 violates now, 1 over its life; unit 5 violates the second rule over its life. */
const COLUMNS = [
  column([0, 1, ...quiet().slice(2)]),
  null,
  column([...quiet().slice(0, 5), 1, ...quiet().slice(6)]),
];

test("units are counted in their group and in every group around it", () => {
  const { tree, ...rest } = layout();
  const counts = countRules({ tree, ...rest }, COLUMNS);
  if (!counts) throw new Error("nothing counted");
  const of = (group: number, what: Int32Array) => Array.from(what.slice(group * 3, group * 3 + 3));
  expect(of(0, counts.any)).toEqual([2, 0, 1]);
  expect(of(0, counts.now)).toEqual([1, 0, 0]);
  expect(of(1, counts.any)).toEqual([2, 0, 1]);
  expect(of(2, counts.any)).toEqual([0, 0, 0]);
  expect(of(tree.layerStart[2], counts.any)).toEqual([2, 0, 0]);
  expect(Array.from(counts.held)).toEqual([1, 1, 0, 1, 1, 0, 0]);
});

test("without violations there is nothing to draw", () =>
  expect(countRules(layout(), [column(quiet())])).toBeNull());

const FRAME = { width: 9000, height: 9000 };

function placedAt(scale: number, label = 11) {
  const made = layout(label);
  const counts = countRules(made, COLUMNS);
  if (!counts) throw new Error("nothing counted");
  return { made, counts, placed: placeRules(made, counts, { scale, x: 0, y: 0 }, FRAME, 100) };
}

test("far away the outer group carries the mark, nearer the inner ones do, each rule at its own place", () => {
  // Outer groups are 14 pixels high, inner ones less.
  const { made } = placedAt(1);
  const far = placedAt(14 / Math.min(made.groupW[1], made.groupH[1]));
  expect(new Set(far.placed.dots.map((dot) => dot.group))).toEqual(new Set([1]));
  const near = placedAt(24);
  expect(new Set([...near.placed.dots, ...near.placed.bars].map((spot) => spot.group))).toEqual(
    new Set([3, 4]),
  );
});

test("with room there are bars: the share of units now and over the life", () => {
  const { placed, made } = placedAt(300);
  expect(placed.dots).toEqual([]);
  const [first] = placed.bars.filter((bar) => bar.group === made.tree.layerStart[2]);
  expect(first).toMatchObject({ slot: 0, any: 0.5, now: 0.25 });
  expect(ruleAt(placed, first.x + 2, first.y + 1)).toBe(first);
  expect(ruleAt(placed, first.x - 50, first.y)).toBeNull();
});

test("marks stay within their group and labels end before them", () => {
  for (const scale of [10, 24, 40, 80, 160]) {
    const { placed, made } = placedAt(scale);
    for (const spot of [...placed.dots, ...placed.bars]) {
      expect(spot.x).toBeGreaterThanOrEqual(made.groupX[spot.group] * scale - 1);
      expect(spot.x + spot.w).toBeLessThanOrEqual(
        (made.groupX[spot.group] + made.groupW[spot.group]) * scale + 1,
      );
      const left = placed.leftOf.get(spot.group);
      if (left !== undefined) expect(left).toBeLessThanOrEqual(spot.x);
    }
  }
});

test("no more groups than asked for are marked", () => {
  const { made, counts } = placedAt(24);
  const placed = placeRules(made, counts, { scale: 24, x: 0, y: 0 }, FRAME, 1);
  expect(new Set([...placed.dots, ...placed.bars].map((spot) => spot.group)).size).toBe(1);
});
