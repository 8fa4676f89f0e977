import { describe, expect, test } from "vitest";
import { layoutUnits } from "@/charts/units/layout";
import { firstMark, innerMark, nextMark, outerMark } from "@/charts/units/neighbours";

/** Four groups of four units, two by two. */
const layout = layoutUnits({
  rows: Int32Array.from({ length: 16 }, (_, i) => i),
  keys: [
    {
      codes: Int32Array.from({ length: 16 }, (_, i) => i >> 2),
      size: 4,
      ranks: Int32Array.from([0, 1, 2, 3]),
    },
  ],
  orders: [{ by: "name", descending: false }],
  unitOrder: null,
  layers: [
    { layout: "list_x", size: "count", margin: 4, padding: 2, label: 10, aspect: 1, across: 2 },
  ],
  unit: { layout: "list_x", gap: 0.1, aspect: 1, across: 2, align: "start" },
  shares: null,
  viewport: { width: 400, height: 400 },
});

describe("arrow keys", () => {
  test("begin with the first group and go to its neighbours", () => {
    expect(firstMark(layout)).toEqual({ group: 1 });
    expect(nextMark(layout, { group: 1 }, "right")).toEqual({ group: 2 });
    expect(nextMark(layout, { group: 1 }, "down")).toEqual({ group: 3 });
    expect(nextMark(layout, { group: 4 }, "up")).toEqual({ group: 2 });
    expect(nextMark(layout, { group: 1 }, "left")).toBeNull();
  });

  test("go into a group and out of it again", () => {
    expect(innerMark(layout, { group: 3 })).toEqual({ position: 8 });
    expect(nextMark(layout, { position: 8 }, "right")).toEqual({ position: 9 });
    expect(outerMark(layout, { position: 9 })).toEqual({ group: 3 });
    expect(outerMark(layout, { group: 3 })).toBeNull();
  });
});
