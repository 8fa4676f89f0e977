import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { LayoutKind } from "@/charts/units/arrange";
import { arrange, fitArea, gridColumns } from "@/charts/units/arrange";
import type { GroupOrder } from "@/charts/units/group";
import type { LayoutRequest, UnitLayout } from "@/charts/units/layout";
import { layoutUnits } from "@/charts/units/layout";
import { pick, unitsWithin } from "@/charts/units/pick";

const KINDS: LayoutKind[] = ["pack", "fill_x", "fill_y", "list_x", "list_y"];
const kinds = fc.constantFrom(...KINDS);
const EPS = 1e-2;

const requests: fc.Arbitrary<LayoutRequest> = fc
  .record({
    units: fc.integer({ min: 1, max: 220 }),
    depth: fc.integer({ min: 0, max: 3 }),
    seed: fc.array(fc.nat(), { minLength: 8, maxLength: 24 }),
    layouts: fc.array(kinds, { minLength: 4, maxLength: 4 }),
    sizes: fc.array(fc.constantFrom<"uniform" | "count">("uniform", "count"), {
      minLength: 3,
      maxLength: 3,
    }),
    chrome: fc.record({
      margin: fc.integer({ min: 0, max: 20 }),
      padding: fc.integer({ min: 0, max: 12 }),
      label: fc.integer({ min: 0, max: 20 }),
    }),
    across: fc.integer({ min: 0, max: 5 }),
    aspect: fc.double({ min: 0.3, max: 4, noNaN: true }),
    shared: fc.boolean(),
    align: fc.constantFrom<"start" | "end">("start", "end"),
    descending: fc.boolean(),
    by: fc.constantFrom<GroupOrder["by"]>("name", "count", "value"),
  })
  .map((r) => {
    const n = r.units;
    const random = (i: number) => (r.seed[i % r.seed.length] * 7919 + i * 104729) >>> 3;
    const values = Float64Array.from({ length: n }, (_, i) =>
      random(i) % 11 === 0 ? NaN : random(i) % 17,
    );
    const shares = r.shared ? makeShares(n) : null;
    return {
      rows: Int32Array.from({ length: n }, (_, i) => i),
      keys: Array.from({ length: r.depth }, (_, d) => ({
        codes: Int32Array.from({ length: n }, (_, i) => (random(i + d * 31) % (3 + d * 2)) - 1),
        size: 2 + d * 2,
        ranks: Int32Array.from({ length: 2 + d * 2 }, (_, i) => i),
      })),
      orders: Array.from({ length: r.depth }, () => ({
        by: r.by,
        values,
        descending: r.descending,
      })),
      unitOrder: r.by === "value" ? { values, descending: r.descending } : null,
      layers: Array.from({ length: r.depth }, (_, d) => ({
        layout: r.layouts[d],
        size: r.sizes[d],
        aspect: r.aspect,
        across: r.across,
        ...r.chrome,
      })),
      unit: { layout: r.layouts[3], gap: 0.1, aspect: r.aspect, across: r.across, align: r.align },
      shares,
      viewport: { width: 1200, height: 800 },
    };
  });

/** Units 0 and 1 are halves of GPU 0, 2 and 3 of GPU 1, and so on. */
function makeShares(n: number) {
  return {
    gpu: Int32Array.from({ length: n }, (_, i) => i >> 1),
    offset: Float32Array.from({ length: n }, (_, i) => (i & 1) / 2),
    share: new Float32Array(n).fill(0.5),
  };
}

interface Box {
  l: number;
  t: number;
  r: number;
  b: number;
}
const groupBox = (layout: UnitLayout, g: number): Box => ({
  l: layout.groupX[g],
  t: layout.groupY[g],
  r: layout.groupX[g] + layout.groupW[g],
  b: layout.groupY[g] + layout.groupH[g],
});
const unitBox = (layout: UnitLayout, i: number): Box => ({
  l: layout.x[i],
  t: layout.y[i],
  r: layout.x[i] + (layout.share?.[i] ?? 1),
  b: layout.y[i] + 1,
});
const overlap = (a: Box, b: Box) =>
  Math.min(a.r, b.r) - Math.max(a.l, b.l) > EPS && Math.min(a.b, b.b) - Math.max(a.t, b.t) > EPS;
const inside = (a: Box, b: Box) =>
  a.l >= b.l - EPS && a.t >= b.t - EPS && a.r <= b.r + EPS && a.b <= b.b + EPS;

function anyOverlap(boxes: Box[]): boolean {
  const sorted = [...boxes].sort((a, b) => a.l - b.l);
  return sorted.some((a, i) => {
    for (let j = i + 1; j < sorted.length && sorted[j].l < a.r - EPS; j++)
      if (overlap(a, sorted[j])) return true;
    return false;
  });
}

describe("every layout, over random units, layers, operators, sizes and sorts", () => {
  test("places every unit once", () => {
    fc.assert(
      fc.property(requests, (request) => {
        const { tree } = layoutUnits(request);
        expect([...tree.order].sort((a, b) => a - b)).toEqual([...request.rows]);
      }),
    );
  });

  test("lets no two units overlap", () => {
    fc.assert(
      fc.property(requests, (request) => {
        const layout = layoutUnits(request);
        expect(anyOverlap(Array.from(layout.x, (_, i) => unitBox(layout, i)))).toBe(false);
      }),
    );
  });

  test("lets no two siblings overlap and keeps children inside parents", () => {
    fc.assert(
      fc.property(requests, (request) => {
        const layout = layoutUnits(request);
        const { tree } = layout;
        for (let g = 0; g < tree.groups; g++) {
          const children = Array.from({ length: tree.childCount[g] }, (_, c) =>
            groupBox(layout, tree.firstChild[g] + c),
          );
          expect(anyOverlap(children)).toBe(false);
          for (const child of children) expect(inside(child, groupBox(layout, g))).toBe(true);
        }
        for (let g = tree.layerStart[tree.layers]; g < tree.groups; g++) {
          for (let i = tree.firstUnit[g]; i < tree.firstUnit[g] + tree.unitCount[g]; i++) {
            expect(inside(unitBox(layout, i), groupBox(layout, g))).toBe(true);
          }
        }
      }),
    );
  });

  test("keeps the label band and the padding of a group free of its children and units", () => {
    fc.assert(
      fc.property(requests, (request) => {
        const layout = layoutUnits(request);
        const { tree } = layout;
        for (let layer = 1; layer <= tree.layers; layer++) {
          const clear = layout.bands[layer] + layout.paddings[layer] - EPS;
          for (let g = tree.layerStart[layer]; g < tree.layerStart[layer + 1]; g++) {
            const tops =
              layer < tree.layers
                ? Array.from(
                    { length: tree.childCount[g] },
                    (_, c) => layout.groupY[tree.firstChild[g] + c],
                  )
                : [...layout.y.subarray(tree.firstUnit[g], tree.firstUnit[g] + tree.unitCount[g])];
            for (const top of tops) expect(top - layout.groupY[g]).toBeGreaterThanOrEqual(clear);
          }
        }
      }),
    );
  });

  test("is stable: the same request gives the same places", () => {
    fc.assert(
      fc.property(requests, (request) => {
        const [one, two] = [layoutUnits(request), layoutUnits(request)];
        expect(one.tree.order).toEqual(two.tree.order);
        expect(one.x).toEqual(two.x);
        expect(one.groupX).toEqual(two.groupX);
      }),
      { numRuns: 40 },
    );
  });

  test("keeps the order of units inside a group where nothing sorts them", () => {
    fc.assert(
      fc.property(requests, (request) => {
        const { tree } = layoutUnits({ ...request, unitOrder: null });
        for (let g = tree.layerStart[tree.layers]; g < tree.groups; g++) {
          const units = [
            ...tree.order.subarray(tree.firstUnit[g], tree.firstUnit[g] + tree.unitCount[g]),
          ];
          expect(units).toEqual([...units].sort((a, b) => a - b));
        }
      }),
      { numRuns: 40 },
    );
  });

  test("gives siblings of a uniform layer one size", () => {
    fc.assert(
      fc.property(requests, (request) => {
        const layout = layoutUnits(request);
        const { tree } = layout;
        request.layers.forEach((geometry, d) => {
          if (geometry.size !== "uniform") return;
          for (let g = tree.layerStart[d + 1]; g < tree.layerStart[d + 2]; g++) {
            const first = tree.firstChild[tree.parent[g]];
            expect(layout.groupW[g]).toBeCloseTo(layout.groupW[first], 3);
            expect(layout.groupH[g]).toBeCloseTo(layout.groupH[first], 3);
          }
        });
      }),
    );
  });

  test("finds by picking each unit at its own middle, and nothing outside", () => {
    fc.assert(
      fc.property(requests, (request) => {
        const layout = layoutUnits(request);
        for (let i = 0; i < layout.x.length; i += 7) {
          const hit = pick(layout, layout.x[i] + (layout.share?.[i] ?? 1) / 2, layout.y[i] + 0.5);
          expect(hit?.position).toBe(i);
        }
        expect(pick(layout, -1, 0)).toBeNull();
        expect(unitsWithin(layout, -1, -1, layout.width + 1, layout.height + 1)).toHaveLength(
          layout.x.length,
        );
      }),
    );
  });
});

describe("areas by count", () => {
  test("a leaf group of size count holds exactly its units, and more units never take less room", () => {
    fc.assert(
      fc.property(
        kinds,
        fc.uniqueArray(fc.integer({ min: 1, max: 400 }), { minLength: 2, maxLength: 12 }),
        (kind, counts) => {
          const layout = layoutUnits(oneLayer(counts, kind));
          const areas = counts.map((count, g) => ({
            count,
            area: layout.groupW[g + 1] * layout.groupH[g + 1],
          }));
          areas.sort((a, b) => a.count - b.count);
          for (const { count, area } of areas) expect(area).toBeGreaterThanOrEqual(count - EPS);
          if (!kind.startsWith("fill"))
            for (const { count, area } of areas)
              if (count >= 100) expect(area).toBeLessThanOrEqual(count / 0.85 + EPS);
          if (kind.startsWith("fill")) {
            for (let i = 1; i < areas.length; i++)
              expect(areas[i].area).toBeGreaterThanOrEqual(areas[i - 1].area - EPS);
          }
        },
      ),
    );
  });

  test("the length of a Fill bar is its count over the breadth that all bars share", () => {
    const layout = layoutUnits(oneLayer([10, 25, 40], "fill_x", 5));
    expect([...layout.groupW.subarray(1)]).toEqual([2, 5, 8]);
    expect([...layout.groupH.subarray(1)]).toEqual([5, 5, 5]);
  });

  test("bars aligned to the end stand on one line", () => {
    const request = oneLayer([3, 7], "fill_y", 1);
    request.unit.align = "end";
    request.layers[0].size = "uniform";
    request.layers[0].layout = "list_x";
    const layout = layoutUnits(request);
    expect(Math.max(...layout.y.subarray(0, 3))).toBe(Math.max(...layout.y.subarray(3)));
  });
});

function oneLayer(counts: number[], unitKind: LayoutKind, across = 0): LayoutRequest {
  const codes = Int32Array.from(
    counts.flatMap((count, code) => Array.from({ length: count }, () => code)),
  );
  return {
    rows: Int32Array.from(codes.keys()),
    keys: [{ codes, size: counts.length, ranks: Int32Array.from(counts.keys()) }],
    orders: [{ by: "name", descending: false }],
    unitOrder: null,
    layers: [
      { layout: "list_x", size: "count", margin: 0, padding: 0, label: 0, aspect: 1, across: 0 },
    ],
    unit: { layout: unitKind, gap: 0, aspect: 1.5, across, align: "start" },
    shares: null,
    viewport: { width: 900, height: 600 },
  };
}

describe("Pack", () => {
  test("wastes at most 15 % from 100 equal children on", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 100, max: 5000 }),
        fc.double({ min: 0.2, max: 6, noNaN: true }),
        fc.double({ min: 0.3, max: 3, noNaN: true }),
        (n, aspect, h) => {
          const box = arrange(new Float64Array(n).fill(1), new Float64Array(n).fill(h), {
            layout: "pack",
            gap: 0,
            aspect,
            across: 0,
          });
          expect(1 - (n * h) / (box.width * box.height)).toBeLessThanOrEqual(0.15 + 1e-9);
        },
      ),
      { numRuns: 400 },
    );
  });

  test("comes within 5 % of the best grid below 100 children", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 99 }),
        fc.double({ min: 0.2, max: 6, noNaN: true }),
        (n, aspect) => {
          const columns = gridColumns(n, 1, 1, aspect);
          const cost = (c: number) => fitArea(c, Math.ceil(n / c), aspect);
          const best = Math.min(...Array.from({ length: n }, (_, i) => cost(i + 1)));
          expect(cost(columns)).toBeLessThanOrEqual(best * 1.05);
        },
      ),
      { numRuns: 400 },
    );
  });

  test("packs boxes of many sizes densely, near the aspect asked for", () => {
    const n = 300;
    const widths = Float64Array.from({ length: n }, (_, i) => 1 + ((i * 7919) % 9));
    const heights = Float64Array.from({ length: n }, (_, i) => 1 + ((i * 104729) % 6));
    const box = arrange(widths, heights, { layout: "pack", gap: 0, aspect: 1.6, across: 0 });
    const area = widths.reduce((sum, w, i) => sum + w * heights[i], 0);
    expect(1 - area / (box.width * box.height)).toBeLessThan(0.1);
    expect(box.width / box.height).toBeGreaterThan(1.3);
    expect(box.width / box.height).toBeLessThan(1.9);
  });
});
