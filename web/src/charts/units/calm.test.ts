import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Box, Memory } from "@/charts/units/calm";
import { pushApart } from "@/charts/units/calm";
import { fitCamera } from "@/charts/units/camera";
import type { LayoutRequest, UnitLayout } from "@/charts/units/layout";
import { layoutCalmly, layoutUnits } from "@/charts/units/layout";

/**
 * A day of the demo's 2,048 GPUs, every five minutes: what changed on which GPU, what began to wait (workload, GPUs,
 * partition) and what waits no more. Recorded from `GET /api/v1/cluster?at=…`.
 */
interface Day {
  partitions: string[];
  gpus: number[];
  ticks: [[number, number][], [number, number, number][], number[]][];
}
const recorded = fileURLToPath(
  new URL("../../../../tests/golden/demo-day.json.gz", import.meta.url),
);
const day = JSON.parse(gunzipSync(readFileSync(recorded)).toString()) as Day;

const VIEWPORT = { width: 1404, height: 700 };

/** The cluster at one time as the view "Everything" asks for it: pool, partition, workload. */
function* requests(): Generator<LayoutRequest> {
  const held = new Map<number, number>();
  const waiting = new Map<number, [number, number]>();
  for (const [changed, arrived, gone] of day.ticks) {
    for (const [gpu, workload] of changed) held.set(gpu, workload);
    for (const workload of gone) waiting.delete(workload);
    for (const [workload, gpus, partition] of arrived) waiting.set(workload, [gpus, partition]);
    const rows: [number, number, number, number][] = day.gpus.map((partition, gpu) => [
      0,
      partition,
      held.get(gpu) ?? -1,
      gpu,
    ]);
    for (const [workload, [gpus, partition]] of waiting)
      for (let i = 0; i < gpus; i++)
        rows.push([1, partition, workload, 10_000 + workload * 1_000 + i]);
    yield requestOf(rows);
  }
}

function requestOf(rows: [number, number, number, number][]): LayoutRequest {
  const key = (field: number, size: number) => ({
    codes: Int32Array.from(rows, (row) => row[field]),
    size,
    ranks: Int32Array.from({ length: size }, (_, i) => i),
  });
  const workloads = rows.reduce((most, row) => Math.max(most, row[2]), 0) + 1;
  const geometry = (layout: "pack" | "list_x", label: number, margin: number, padding: number) => ({
    ...{ layout, label, margin, padding, size: "count" as const, aspect: 1.6, across: 0 },
  });
  const largest = { by: "count" as const, descending: true };
  return {
    rows: Int32Array.from(rows.keys()),
    keys: [key(0, 2), key(1, day.partitions.length), key(2, workloads)],
    orders: [{ by: "name", descending: false }, largest, largest],
    unitOrder: null,
    layers: [
      geometry("list_x", 14, 22, 0),
      geometry("pack", 12, 12, 6),
      geometry("pack", 10, 5, 3),
    ],
    unit: { layout: "pack", gap: 0.12, aspect: 1, across: 0, align: "start" },
    shares: null,
    viewport: VIEWPORT,
    ids: {
      groups: [2, day.partitions.length, workloads].map((size) =>
        Int32Array.from({ length: size }, (_, i) => i),
      ),
      units: Int32Array.from(rows, (row) => row[3]),
    },
  };
}

interface Screen {
  /** Where each unit stands on the screen, by what it is and the group it is in. */
  units: Map<string, [number, number]>;
  partitions: Map<string, Box>;
}

function screenOf(request: LayoutRequest, layout: UnitLayout): Screen {
  const { scale, x, y } = fitCamera({ x: 0, y: 0, w: layout.width, h: layout.height }, VIEWPORT);
  const units: Screen["units"] = new Map();
  layout.tree.order.forEach((unit, i) => {
    const who = `${request.ids?.units[unit]} in ${request.keys[2].codes[unit]}`;
    units.set(who, [(layout.x[i] - x) * scale, (layout.y[i] - y) * scale]);
  });
  const partitions: Screen["partitions"] = new Map();
  const { layerStart, parent, code } = layout.tree;
  for (let g = layerStart[2]; g < layerStart[3]; g++)
    partitions.set(`${code[parent[g]]} ${code[g]}`, groupBox(layout, g));
  return { units, partitions };
}

function groupBox(layout: UnitLayout, g: number): Box {
  const { groupX, groupY, groupW, groupH } = layout;
  return { x: groupX[g], y: groupY[g], w: groupW[g], h: groupH[g] };
}

interface Moves {
  /** Mean move of the units that stayed in their group, as a share of the canvas's width. */
  mean: number;
  /** The picture's scale against one packed anew. */
  scale: number;
  swaps: number;
}

/** Packing anew only to compare costs more than all the rest: every so many ticks. */
const COMPARED = 24;

function measure(layoutOf: (request: LayoutRequest) => UnitLayout): Moves {
  let before: Screen | null = null;
  let [sum, ticks, swaps, scale] = [0, 0, 0, 0];
  for (const request of requests()) {
    const layout = layoutOf(request);
    const screen = screenOf(request, layout);
    if (before) {
      sum += meanMove(before.units, screen.units);
      swaps += countSwaps(before.partitions, screen.partitions);
      if (ticks++ % COMPARED === 0) scale += layout.fitScale / layoutUnits(request).fitScale;
    }
    before = screen;
  }
  return { mean: sum / ticks, scale: scale / Math.ceil(ticks / COMPARED), swaps };
}

function meanMove(before: Screen["units"], after: Screen["units"]): number {
  let [sum, count] = [0, 0];
  for (const [who, [x, y]] of after) {
    const was = before.get(who);
    if (!was) continue;
    sum += Math.hypot(x - was[0], y - was[1]) / VIEWPORT.width;
    count++;
  }
  return sum / Math.max(1, count);
}

/** Pairs of partitions of which one stood left of or above the other, and now stands on the other side. */
function countSwaps(before: Screen["partitions"], after: Screen["partitions"]): number {
  let swaps = 0;
  for (const [a, isA] of after)
    for (const [b, isB] of after) {
      const [wasA, wasB] = [before.get(a), before.get(b)];
      if (!wasA || !wasB) continue;
      if (wasA.x + wasA.w <= wasB.x && isB.x + isB.w <= isA.x) swaps++;
      if (wasA.y + wasA.h <= wasB.y && isB.y + isB.h <= isA.y) swaps++;
    }
  return swaps;
}

describe("a day of 2,048 GPUs", () => {
  test("survivors move by less than 2 % of the canvas per tick, and partitions keep their sides", () => {
    let memory: Memory | null = null;
    const calm = measure((request) => {
      const next = layoutCalmly(request, memory);
      memory = next.memory;
      return next.layout;
    });
    let stretch: number | undefined;
    const repacked = measure((request) => {
      const layout = layoutUnits(stretch === undefined ? request : { ...request, stretch });
      stretch = layout.stretch;
      return layout;
    });
    expect(calm.mean).toBeLessThan(0.02);
    expect(calm.mean).toBeLessThan(repacked.mean / 5);
    expect(calm.swaps).toBe(0);
    expect(repacked.swaps).toBeGreaterThan(0);
    expect(calm.scale).toBeGreaterThan(0.7);
  }, 240_000);
});

describe("any changes", () => {
  const changes = fc.array(
    fc.array(fc.tuple(fc.nat(1), fc.nat(3), fc.nat(12), fc.nat(60)), { minLength: 1 }),
    { minLength: 2, maxLength: 8 },
  );

  test("siblings never overlap, units stay inside their group and on a cell of their own", () => {
    fc.assert(
      fc.property(changes, (ticks) => {
        let memory: Memory | null = null;
        for (const rows of ticks) {
          const request = requestOf(
            [...new Map(rows.map((row) => [row[3], row])).values()].map(
              ([pool, partition, workload, id]) => [
                pool,
                partition % day.partitions.length,
                workload,
                id,
              ],
            ),
          );
          const next = layoutCalmly(request, memory);
          memory = next.memory;
          checkSound(next.layout);
        }
      }),
    );
  });

  test("without changes nothing moves", () => {
    const [request] = requests();
    const first = layoutCalmly(request, null);
    const second = layoutCalmly(request, first.memory);
    expect([...second.layout.x]).toEqual([...first.layout.x]);
    expect([...second.layout.groupY]).toEqual([...first.layout.groupY]);
  });
});

function checkSound(layout: UnitLayout): void {
  const { tree } = layout;
  for (let p = 0; p < tree.layerStart[tree.layers]; p++) {
    const children = Array.from({ length: tree.childCount[p] }, (_, c) =>
      groupBox(layout, tree.firstChild[p] + c),
    );
    children.forEach((a, i) => {
      for (const b of children.slice(i + 1)) expect(overlap(a, b)).toBe(false);
      expect(inside(a, groupBox(layout, p))).toBe(true);
    });
  }
  for (let g = tree.layerStart[tree.layers]; g < tree.groups; g++) {
    const cells = new Set<string>();
    for (let i = tree.firstUnit[g]; i < tree.firstUnit[g] + tree.unitCount[g]; i++) {
      const unit = { x: layout.x[i], y: layout.y[i], w: 1, h: 1 };
      expect(inside(unit, groupBox(layout, g))).toBe(true);
      cells.add(`${layout.x[i].toFixed(2)} ${layout.y[i].toFixed(2)}`);
    }
    expect(cells.size).toBe(tree.unitCount[g]);
  }
}

const EPS = 1e-2;
const overlap = (a: Box, b: Box) =>
  Math.min(a.x + a.w, b.x + b.w) - Math.max(a.x, b.x) > EPS &&
  Math.min(a.y + a.h, b.y + b.h) - Math.max(a.y, b.y) > EPS;
const inside = (a: Box, b: Box) =>
  a.x >= b.x - EPS &&
  a.y >= b.y - EPS &&
  a.x + a.w <= b.x + b.w + EPS &&
  a.y + a.h <= b.y + b.h + EPS;

test("a box that grows pushes its neighbour, and who was left stays left", () => {
  const before = [
    { x: 0, y: 0, w: 2, h: 2 },
    { x: 3, y: 0, w: 2, h: 2 },
    { x: 0, y: 3, w: 2, h: 2 },
  ];
  const boxes = before.map((box) => ({ ...box }));
  boxes[0].w = 4;
  pushApart(boxes, before, 1);
  expect(boxes.map(({ x, y }) => [x, y])).toEqual([
    [0, 0],
    [5, 0],
    [0, 3],
  ]);
});
