import { describe, expect, it } from "vitest";
import { layoutBivariate } from "@/charts/calltree/bivariate";
import { layoutIcicle, rowAt } from "@/charts/calltree/icicle";
import type { CallTree } from "@/charts/calltree/tree";
import { buildTree, pathOf, rowsOfPaths } from "@/charts/calltree/tree";
import { keptRows, metricHistogram, PLAIN, visibleItems } from "@/charts/calltree/visible";
import { insideLasso } from "@/charts/points";

/** main(100) → solve(60) → step(50); main → load(30) → read(10). */
function tree(): CallTree {
  const inclusive = [100, 60, 50, 30, 10];
  const zeros = inclusive.map(() => 0);
  return buildTree({
    names: ["main", "solve", "step", "load", "read"],
    depth: [0, 1, 2, 1, 2],
    name: [0, 1, 2, 3, 4],
    count: inclusive.map(() => 2),
    hidden: zeros,
    hiddenInclusive: zeros,
    values: { inclusive, exclusive: [10, 10, 50, 20, 10], calls: zeros, imbalance: zeros },
    profiles: 2,
    unit: "ns",
    total: 100,
  });
}

describe("a call tree", () => {
  it("knows callers, ends and paths", () => {
    const made = tree();
    expect([...made.parent]).toEqual([-1, 0, 1, 0, 3]);
    expect([...made.end]).toEqual([5, 3, 3, 5, 5]);
    expect(pathOf(made, 4)).toEqual(["main", "load", "read"]);
    expect(rowsOfPaths(made, [["main", "load"], ["nowhere"]])).toEqual([3]);
  });

  it("stands a surrogate for a collapsed subtree, with what it hides", () => {
    const { items } = visibleItems(tree(), { ...PLAIN, collapsed: new Set([1]) }, 100);
    const surrogate = items.find((item) => item.surrogate);
    expect(surrogate).toMatchObject({ row: 1, hidden: 1, weight: 50, level: 2 });
    expect(surrogate?.means?.exclusive).toBe(50);
    expect(items.filter((item) => !item.surrogate).map((item) => item.row)).toEqual([0, 1, 3, 4]);
  });

  it("folds a row into its caller and keeps what it calls", () => {
    const { items } = visibleItems(tree(), { ...PLAIN, folded: new Set([3]) }, 100);
    const read = items.find((item) => item.row === 4 && !item.surrogate);
    expect(items[read?.above ?? -1].row).toBe(0);
    expect(items.find((item) => item.surrogate)).toMatchObject({ row: 0, hidden: 1 });
  });

  it("prunes by a metric and keeps callers of what stays", () => {
    const prune = { metric: "exclusive", low: 45, high: Infinity } as const;
    expect([...keptRows(tree(), prune)]).toEqual([1, 1, 1, 0, 0]);
    const { items } = visibleItems(tree(), { ...PLAIN, prune }, 100);
    expect(items.find((item) => item.surrogate)).toMatchObject({ row: 0, hidden: 2, weight: 30 });
  });

  it("counts every row once in a histogram", () => {
    const { counts } = metricHistogram(tree(), "inclusive", 8);
    expect(counts.reduce((sum, one) => sum + one, 0)).toBe(5);
  });

  it("gives area to one metric and colour to the other", () => {
    const { items } = visibleItems(tree(), PLAIN, 100);
    const layout = layoutBivariate(tree(), items, "exclusive", "inclusive");
    expect(layout.items[0].radius).toBeGreaterThan(layout.items[2].radius);
    expect(layout.items[2].colour).toBe(1);
    expect(layout.items[0].y).toBeGreaterThan(layout.items[1].y);
  });

  it("draws an icicle whose widths are shares of time", () => {
    const layout = layoutIcicle(tree(), -1, 200);
    expect(layout.bars.map((bar) => bar.width)).toEqual([200, 120, 100, 60, 20]);
    expect(rowAt(layout, 130, 25)).toBe(3);
    expect(layoutIcicle(tree(), 3, 300).bars.map((bar) => bar.width)).toEqual([300, 100]);
  });

  it("knows what is inside a lasso", () => {
    const square = [
      { x: 0, y: 0 },
      { x: 2, y: 0 },
      { x: 2, y: 2 },
      { x: 0, y: 2 },
    ];
    expect(insideLasso(square, { x: 1, y: 1 })).toBe(true);
    expect(insideLasso(square, { x: 3, y: 1 })).toBe(false);
  });
});
