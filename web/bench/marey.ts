/** Frames of the Marey view beside all intervals as WebGL triangles, and layouts beside d3-dag; each on demand. */

import { coordGreedy, decrossDfs, graphConnect, layeringLongestPath, sugiyama } from "d3-dag";
import type { FlowLayout } from "@/charts/flow/layout";
import { makeFlow } from "@/charts/flow/synthetic";
import { paintBands } from "@/charts/marey/bands";
import { paintCells } from "@/charts/marey/cells";
import { makePalette } from "@/charts/marey/kinds";
import { imageOf, makePicture } from "@/charts/marey/image/picture";
import type { RowLayout } from "@/charts/marey/rows";
import { fitRowPx, layoutRows, visibleRows } from "@/charts/marey/rows";
import type { SyntheticStep } from "@/charts/marey/synthetic";
import { countCells, cutIntervals, makeStep } from "@/charts/marey/synthetic";
import type { TimeWindow } from "@/charts/marey/window";
import { spanNs } from "@/charts/marey/window";
import type { LayoutDone, LayoutJob } from "@/features/traces/flow/layout.worker";
import { drawTriangles, prepareTriangles } from "./triangles";

const WIDTH = 1200;
const HEIGHT = 800;
const SLOW = [17];
const palette = makePalette("dark");
const canvasOf = (id: string) => document.getElementById(id) as HTMLCanvasElement;

const startWorker = () =>
  new Worker(new URL("../src/features/traces/flow/layout.worker.ts", import.meta.url), {
    type: "module",
  });
const worker = startWorker();

async function layOutIn(worker: Worker, count: number, nodes: number): Promise<number[]> {
  const graph = makeFlow(nodes, 8);
  const digests: number[] = [];
  for (let id = 0; id < count; id++) {
    const done = new Promise<LayoutDone>((resolve) => {
      worker.onmessage = ({ data }: MessageEvent<LayoutDone>) => resolve(data);
    });
    worker.postMessage({ id, graph } satisfies LayoutJob);
    digests.push(digestOf((await done).layout));
  }
  return digests;
}

function digestOf({ x, y }: FlowLayout): number {
  let digest = 0;
  for (let i = 0; i < x.length; i++)
    digest = (digest * 31 + Math.round(x[i] * 8 + y[i] * 64)) % 1e9;
  return digest;
}

interface Frame {
  layout: RowLayout;
  window: TimeWindow;
  paint: () => void;
}

/** Put a picture on the canvas as the view does. */
function show(
  layout: RowLayout,
  window: TimeWindow,
  paint: (to: ReturnType<typeof makePaint>) => void,
) {
  const made = makePaint(layout, window);
  paint(made);
  canvasOf("picture").getContext("2d")?.putImageData(imageOf(made.picture), 0, 0);
}

const makePaint = (layout: RowLayout, window: TimeWindow) => ({
  ...{ picture: makePicture(WIDTH, HEIGHT, palette.ground), layout, window, palette },
  ...{ scroll: 0, kinds: palette.kinds, grey: palette.grey, ground: palette.ground },
});

const shareOf = (step: SyntheticStep, share: number): TimeWindow => ({
  fromNs: step.fromNs + spanNs(step) * 0.4,
  toNs: step.fromNs + spanNs(step) * (0.4 + share * 0.6),
});

/** A frame of all ranks as cells. */
function prepareCells(step: SyntheticStep, share: number): Frame {
  const window = shareOf(step, share);
  const ranks = step.rows.map((_, rank) => rank);
  const cells = countCells(step, ranks, window, WIDTH);
  const layout = layoutRows(step.rows, fitRowPx(step.rows, HEIGHT));
  const places = Int32Array.from(ranks);
  const seen = visibleRows(layout, 0, HEIGHT);
  return {
    layout,
    window,
    paint: () => show(layout, window, (to) => paintCells(cells, places, to, seen)),
  };
}

/** A frame of 64 ranks as bands over their cells. */
function prepareBands(step: SyntheticStep, share: number): Frame {
  const window = shareOf(step, share);
  const rows = step.rows.slice(0, 64);
  const cells = countCells(
    step,
    rows.map((_, rank) => rank),
    window,
    WIDTH,
  );
  const layout = layoutRows(rows, fitRowPx(rows, HEIGHT));
  const places = Int32Array.from(rows, (_, i) => i);
  const first = { ...step.intervals, begin: step.intervals.begin.slice(0, 65) };
  const seen = cutIntervals(first, window, (spanNs(window) / WIDTH) * 0.5);
  return {
    layout,
    window,
    paint: () =>
      show(layout, window, (to) => {
        paintCells(cells, places, to, visibleRows(layout, 0, HEIGHT));
        paintBands(seen, to);
      }),
  };
}

function repeat(count: number, work: () => void): number {
  const start = performance.now();
  for (let i = 0; i < count; i++) work();
  return (performance.now() - start) / count;
}

let step: SyntheticStep | null = null;
let frame: Frame | null = null;
let triangles: ReturnType<typeof prepareTriangles> | null = null;

const bench = {
  /** Build a step of so many ranks. */
  makeStep(ranks: number, operators: number): void {
    step = makeStep(ranks, operators, SLOW);
  },
  prepare(kind: "cells" | "bands", share: number): void {
    if (step) frame = (kind === "cells" ? prepareCells : prepareBands)(step, share);
  },
  /** Draw frames; script time of one. */
  draw: (count: number): number => repeat(count, () => frame?.paint()),
  prepareTriangles(): number {
    if (step) triangles = prepareTriangles(canvasOf("triangles"), step, palette);
    return triangles?.count ?? 0;
  },
  drawTriangles: (count: number): number =>
    repeat(count, () => triangles && drawTriangles(triangles)),
  /** Lay a graph out in a worker that goes on living, a few times; digests of the results tell whether they differ. */
  layOut: (count: number, nodes: number): Promise<number[]> => layOutIn(worker, count, nodes),
  /** The same, each time in a worker that was just started, as a page does when it is opened. */
  async layOutFresh(count: number, nodes: number): Promise<number[]> {
    const digests: number[] = [];
    for (let i = 0; i < count; i++) {
      const fresh = startWorker();
      digests.push(...(await layOutIn(fresh, 1, nodes)));
      fresh.terminate();
    }
    return digests;
  },
  /** The same graph with d3-dag's cheapest operators: no crossings are reduced. */
  layOutRival(count: number, nodes: number): void {
    for (let i = 0; i < count; i++) layOutRival(nodes);
  },
};

function layOutRival(nodes: number): void {
  const { source, target } = makeFlow(nodes, 8);
  const pairs = Array.from(source, (from, e): [string, string] => [
    String(from),
    String(target[e]),
  ]);
  const layout = sugiyama()
    .layering(layeringLongestPath())
    .decross(decrossDfs())
    .coord(coordGreedy());
  layout(graphConnect()(pairs));
}

declare global {
  interface Window {
    bench: typeof bench;
  }
}
window.bench = bench;
