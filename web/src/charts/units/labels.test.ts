import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { letterMeasure, placeLabels, placeUprightLabels, shorten } from "@/charts/units/labels";
import { layoutUnits } from "@/charts/units/layout";

const measure = letterMeasure((letter) => (letter === "…" ? 1 : 0.55));

describe("shortening", () => {
  test("keeps a text that fits", () =>
    expect(shorten("gpu-node-12", 500, (t) => t.length)).toBe("gpu-node-12"));
  test("keeps the beginning and the end", () =>
    expect(shorten("gpu-node-0123", 8, (t) => t.length)).toBe("gpu-…123"));
  test("gives up rather than show one letter", () =>
    expect(shorten("gpu-node-0123", 2, (t) => t.length)).toBe(""));
  test("never exceeds the room", () => {
    fc.assert(
      fc.property(
        fc.string({ maxLength: 60, unit: "grapheme" }),
        fc.integer({ min: 1, max: 40 }),
        (text, room) => {
          expect(
            measure(
              shorten(text, room, (part) => measure(part, 1)),
              1,
            ),
          ).toBeLessThanOrEqual(room);
        },
      ),
    );
  });
});

describe("labels", () => {
  test("never overlap, at any zoom", () => {
    const n = 600;
    const code = (f: (i: number) => number, size: number) => ({
      codes: Int32Array.from({ length: n }, (_, i) => f(i)),
      size,
      ranks: Int32Array.from({ length: size }, (_, i) => i),
    });
    const layer = {
      layout: "pack" as const,
      size: "count" as const,
      margin: 8,
      padding: 4,
      label: 12,
      aspect: 1.6,
      across: 0,
    };
    const layout = layoutUnits({
      rows: Int32Array.from({ length: n }, (_, i) => i),
      keys: [code((i) => i % 3, 3), code((i) => (i * 7) % 11, 11)],
      orders: [
        { by: "name", descending: false },
        { by: "count", descending: true },
      ],
      unitOrder: null,
      layers: [layer, layer],
      unit: { layout: "pack", gap: 0.1, aspect: 1.6, across: 0, align: "start" },
      shares: null,
      viewport: { width: 1000, height: 700 },
    });
    fc.assert(
      fc.property(
        fc.double({ min: 0.3, max: 20, noNaN: true }),
        fc.double({ min: -0.2, max: 1, noNaN: true }),
        fc.double({ min: -0.2, max: 1, noNaN: true }),
        (zoom, px, py) => {
          const labels = placeLabels(layout, {
            camera: { scale: layout.fitScale * zoom, x: px * layout.width, y: py * layout.height },
            width: 1000,
            height: 700,
            nameOf: (group, l) => `group-with-a-long-name-${l}-${group}`,
            detailOf: (group) => `${layout.tree.unitCount[group]}`,
            measure,
            most: 400,
          });
          const boxes = labels.map((l) => ({
            l: l.x,
            r: l.x + l.width,
            t: l.y - l.size * 0.6,
            b: l.y + l.size * 0.6,
          }));
          boxes.forEach((a, i) => {
            for (const b of boxes.slice(i + 1)) {
              expect(
                Math.min(a.r, b.r) - Math.max(a.l, b.l) > 0.5 &&
                  Math.min(a.b, b.b) - Math.max(a.t, b.t) > 0.5,
              ).toBe(false);
            }
          });
        },
      ),
    );
  });
});

describe("a bar chart", () => {
  const counts = [69, 21, 4];
  const names = ["foundation-2", "vision", "speech"];
  const codes = Int32Array.from(counts.flatMap((count, bar) => Array<number>(count).fill(bar)));
  const layout = layoutUnits({
    rows: Int32Array.from(codes.keys()),
    keys: [{ codes, size: counts.length, ranks: Int32Array.from([0, 1, 2]) }],
    orders: [{ by: "count", descending: true }],
    unitOrder: null,
    layers: [
      {
        layout: "fill_x",
        size: "uniform",
        margin: 12,
        padding: 4,
        label: 12,
        aspect: 1,
        across: 0,
      },
    ],
    unit: { layout: "fill_y", gap: 0.1, aspect: 1, across: 0, align: "end" },
    shares: null,
    viewport: { width: 1000, height: 700 },
  });
  const place = (zoom: number) => ({
    camera: { scale: layout.fitScale * zoom, x: 0, y: 0 },
    width: 1000,
    height: 700,
    nameOf: (group: number) => names[layout.tree.code[group]],
    detailOf: (group: number) => String(layout.tree.unitCount[group]),
    measure,
    most: 100,
  });

  test("names every bar with its count, set off from the name", () => {
    const labels = placeLabels(layout, place(3));
    expect(labels.map(({ text, detail }) => `${text} ${detail}`)).toContain("foundation-2 · 69");
    for (const { text, detail, size, width } of labels)
      if (detail)
        expect(width).toBeGreaterThan(
          measure(text, size) + measure(detail, size * 0.86) + 0.5 * size,
        );
  });

  test("keeps every label across whole, with its count, within its bar", () => {
    for (const zoom of [0.5, 1, 2, 4])
      for (const label of placeLabels(layout, place(zoom))) {
        const { groupW } = layout;
        expect(names).toContain(label.text);
        expect(label.detail).not.toBe("");
        expect(label.width).toBeLessThanOrEqual(
          groupW[label.group] * layout.fitScale * zoom + 0.01,
        );
      }
  });
});

describe("bar charts one above another", () => {
  // One partition whose longest bar has 400 GPUs, one whose bars are short.
  const bars = [
    [0, "translation", 400],
    [0, "protein", 90],
    [1, "foundation-2", 40],
    [1, "multimodal", 3],
  ] as const;
  const spread = <T>(of: (bar: (typeof bars)[number]) => T) =>
    bars.flatMap((bar) => Array<T>(bar[2]).fill(of(bar)));
  const layer = { size: "count" as const, margin: 12, padding: 4, label: 12, aspect: 1, across: 0 };
  const layout = layoutUnits({
    rows: Int32Array.from(spread(() => 0).keys()),
    keys: [
      { codes: Int32Array.from(spread((bar) => bar[0])), size: 2, ranks: Int32Array.from([0, 1]) },
      {
        codes: Int32Array.from(spread((bar) => bars.indexOf(bar))),
        size: 4,
        ranks: Int32Array.from([0, 1, 2, 3]),
      },
    ],
    orders: [
      { by: "name", descending: false },
      { by: "count", descending: true },
    ],
    unitOrder: null,
    layers: [
      { ...layer, layout: "list_x" },
      { ...layer, layout: "fill_x", size: "uniform" },
    ],
    unit: { layout: "fill_y", gap: 0.1, aspect: 1, across: 0, align: "end" },
    shares: null,
    viewport: { width: 1000, height: 700 },
  });

  test("the short ones have room for whole names with their counts", () => {
    const labels = placeUprightLabels(
      layout,
      {
        camera: { scale: layout.fitScale, x: 0, y: 0 },
        width: 1000,
        height: 700,
        nameOf: (group, depth) => (depth === 2 ? bars[layout.tree.code[group]][1] : "partition"),
        detailOf: (group) => String(layout.tree.unitCount[group]),
        measure,
        most: 100,
      },
      new Set(),
    );
    expect(labels.map(({ text }) => text).sort()).toEqual([
      "foundation-2 · 40",
      "multimodal · 3",
      "protein · 90",
      "translation · 400",
    ]);
  });
});
