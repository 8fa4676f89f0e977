import fc from "fast-check";
import { expect, test } from "vitest";
import type { Multiple } from "@/charts/multiples";
import { cellAt, cellSize, headingAt, layoutMultiples, together } from "@/charts/multiples";

const multiple = (id: string, group: string): Multiple => ({
  id,
  group,
  label: id,
  counts: [1],
  line: [1],
  colour: [0, 0, 0],
  slots: [],
});

test("every plot has its own place within the width, whatever the numbers", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 300 }),
      fc.integer({ min: 1, max: 16 }),
      fc.integer({ min: 200, max: 1600 }),
      fc.constantFrom("histogram" as const, "strip" as const),
      (count, perNode, width, kind) => {
        const all = Array.from({ length: count }, (_, i) =>
          multiple(`g${i}`, `n${Math.floor(i / perNode)}`),
        );
        const layout = layoutMultiples(all, width, cellSize(count, kind, 1), kind);
        expect(layout.cells).toHaveLength(count);
        expect(new Set(layout.cells.map((cell) => `${cell.x} ${cell.y}`)).size).toBe(count);
        for (const cell of layout.cells) {
          expect(cell.x + cell.width).toBeLessThanOrEqual(Math.max(width, cell.width));
          expect(cell.y + cell.height).toBeLessThanOrEqual(layout.height);
        }
      },
    ),
    { numRuns: 60 },
  );
});

test("a place leads back to its plot, and a heading to its node", () => {
  const layout = layoutMultiples(
    [multiple("a", "n1"), multiple("b", "n1"), multiple("c", "n2")],
    400,
    { width: 40, height: 20 },
    "histogram",
  );
  layout.cells.forEach((cell, i) => expect(cellAt(layout, cell.x + 1, cell.y + 1)).toBe(i));
  expect(headingAt(layout, 1, 1)).toBe("n1");
  expect(cellAt(layout, 399, 399)).toBe(-1);
});

test("a node has what any of its GPUs has, now before earlier, each rule at its place", () => {
  const [now, before] = [
    { colour: "red", now: true },
    { colour: "red", now: false },
  ];
  const slots = together([
    { ...multiple("a", "n"), slots: [null, before, null] },
    { ...multiple("b", "n"), slots: [null, now, null] },
    { ...multiple("c", "n"), slots: [null, before, before] },
  ]);
  expect(slots).toEqual([null, now, before]);
});

test("plots of a node that do not fit in one row stand in even rows", () => {
  const layout = layoutMultiples(
    Array.from({ length: 8 }, (_, i) => multiple(`g${i}`, "n")),
    320,
    { width: 40, height: 20 },
    "histogram",
  );
  const rows = new Map<number, number>();
  for (const cell of layout.cells) rows.set(cell.y, (rows.get(cell.y) ?? 0) + 1);
  expect([...rows.values()]).toEqual([4, 4]);
});
