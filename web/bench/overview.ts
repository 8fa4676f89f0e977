/** Times the overview's parts beside a bare point cloud, in one page; `window.results` holds the figures. */

import type { Metric } from "@/base/attributes";
import { attributeList } from "@/base/attributes";
import { Cluster } from "@/base/live/cluster";
import type { TextColumn } from "@/base/columns";
import { SLOTS } from "@/base/verdicts/slots";
import type { Verdicts } from "@/base/verdicts/verdicts";
import type { ClusterState } from "@/base/units";
import { QUADS_FROM_PX } from "@/charts/units/drawing/scene";
import { Stage } from "@/charts/units/drawing/stage";
import { parseView } from "@/charts/units/view";
import { Engine } from "@/features/overview/drawing/engine";
import { Layouts } from "@/features/overview/drawing/layouts";
import { snapshot, tick } from "./fake";

const WIDTH = 1440;
const HEIGHT = 800;
const METRICS = [
  "util",
  "sm_active",
  "tensor_active",
  "dram_active",
  "mem_used",
  "mem_copy",
  "power",
  "temp",
  "sm_clock",
  "pcie_tx",
  "pcie_rx",
  "nvlink_tx",
];
const gpus = Number(new URLSearchParams(location.search).get("gpus") ?? 100_000);

interface Results {
  gpus: number;
  bareMs: Record<string, number>;
  tickScriptMs: number;
  panFrameMs: number;
  zoomFrameMs: number;
  transitionFrameMs: number;
  /** The same with eight violated rules marked on the groups. */
  panRulesFrameMs: number;
  zoomRulesFrameMs: number;
  scriptPanRulesMs: number;
  scriptZoomRulesMs: number;
  /** Counting the rules of every group anew, as with each verdict. */
  countRulesMs: number;
  scriptPanMs: number;
  scriptZoomMs: number;
  scriptTransitionMs: number;
  pickMs: number;
  layoutMs: Record<string, number>;
  tickMs: number;
  tick12Ms: number;
  snapshotMs: number;
}

declare global {
  interface Window {
    results?: Results | { error: string };
  }
}

const median = (values: number[]) =>
  [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

function canvas(id: string): HTMLCanvasElement {
  const found = document.getElementById(id) as HTMLCanvasElement;
  found.width = WIDTH;
  found.height = HEIGHT;
  return found;
}

/** The least that can be drawn: as many points, of a given size, with a colour each. */
function bareCloud(): (size: number) => void {
  const gl = canvas("bare").getContext("webgl2", { alpha: false, antialias: false, depth: false });
  if (!gl) throw new Error("no WebGL2");
  const program = gl.createProgram();
  const shader = (kind: number, source: string) => {
    const made = gl.createShader(kind) as WebGLShader;
    gl.shaderSource(made, source);
    gl.compileShader(made);
    gl.attachShader(program, made);
  };
  shader(
    gl.VERTEX_SHADER,
    `#version 300 es
    layout(location=0) in vec2 p; layout(location=1) in vec4 c;
    uniform vec2 shift; uniform float size; out vec4 s;
    void main() { gl_Position = vec4(p + shift, 0, 1); gl_PointSize = size; s = c; }`,
  );
  shader(
    gl.FRAGMENT_SHADER,
    "#version 300 es\nprecision mediump float; in vec4 s; out vec4 o; void main() { o = s; }",
  );
  gl.linkProgram(program);
  gl.useProgram(program);
  const columns = Math.ceil(Math.sqrt((gpus * WIDTH) / HEIGHT));
  const rows = Math.ceil(gpus / columns);
  const places = new Float32Array(gpus * 2);
  for (let i = 0; i < gpus; i++) {
    places[2 * i] = ((i % columns) / columns) * 2 - 1;
    places[2 * i + 1] = (Math.floor(i / columns) / rows) * 2 - 1;
  }
  const buffer = (
    slot: number,
    data: Float32Array | Uint32Array,
    width: number,
    kind: number,
    normal: boolean,
  ) => {
    gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ARRAY_BUFFER, data, gl.STATIC_DRAW);
    gl.enableVertexAttribArray(slot);
    gl.vertexAttribPointer(slot, width, kind, normal, 0, 0);
  };
  buffer(0, places, 2, gl.FLOAT, false);
  buffer(
    1,
    Uint32Array.from({ length: gpus }, (_, i) => (i * 2654435761) >>> 0),
    4,
    gl.UNSIGNED_BYTE,
    true,
  );
  gl.viewport(0, 0, WIDTH, HEIGHT);
  const shift = gl.getUniformLocation(program, "shift");
  const pointSize = gl.getUniformLocation(program, "size");
  let n = 0;
  return (size) => {
    gl.uniform1f(pointSize, size);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.uniform2f(shift, (n++ % 7) / 1000, 0);
    gl.drawArrays(gl.POINTS, 0, gpus);
    gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
  };
}

function timed(work: () => void): number {
  const start = performance.now();
  work();
  return performance.now() - start;
}

const layer = (by: string) => ({ by, label: 10, margin: 6, padding: 4 });
const VIEWS: Record<string, string[]> = {
  physical: ["partition", "rack", "host"],
  workloads: ["project", "user", "workload"],
  bins: ["util", "partition"],
};
const viewOf = (layers: string[]) =>
  parseView({ version: 1, layers: layers.map(layer), colour: { by: "util" } });

/** Eight rules, each violated by every twelfth GPU and its workload, half of them now. */
function madeUpVerdicts(state: ClusterState): Verdicts {
  const gpus = state.gpus.columns.get("gpu") as TextColumn;
  const workloads = new Set((state.workloads.columns.get("workload") as TextColumn).words);
  const some = (slot: number, every: number) =>
    new Set(gpus.words.filter((_, i) => i % every === slot));
  return new Map(
    Array.from({ length: SLOTS }, (_, slot) => [
      `rule.r${slot}`,
      {
        life: { workloads, gpus: some(slot, 12) },
        now: { workloads, gpus: some(slot, 24) },
        notJudged: new Set<string>(),
      },
    ]),
  );
}

async function run(): Promise<Results> {
  const metrics = METRICS.map((id): Metric => ({
    id,
    label: id,
    unit: "%",
    min: 0,
    max: 100,
    resolution: 1,
    kind: "gauge",
    entity: "gpu",
    description: "",
  }));
  const attributes = new Map(attributeList(metrics).map((attribute) => [attribute.id, attribute]));
  const cluster = new Cluster();
  const first = snapshot(gpus, METRICS);
  const snapshotMs = timed(() => {
    cluster.apply(first);
    cluster.state();
  });
  const stage = new Stage(canvas("below"), canvas("above"), { reducedMotion: false });
  stage.invalidate = () => undefined;
  stage.resize(WIDTH, HEIGHT, 1);
  const layouts = new Layouts();
  let shown: (ms: number) => void = () => undefined;
  const engine = new Engine(stage, layouts, attributes, (drawn) => shown(drawn.layoutMs));
  const show = (layers: string[]) =>
    new Promise<number>((resolve) => {
      shown = resolve;
      engine.setView(viewOf(layers));
    });
  shown = () => undefined;
  engine.setState(cluster.state(), { structure: true, rows: new Int32Array(0), metrics: [] });

  const layoutMs: Record<string, number> = {};
  for (const [name, layers] of Object.entries(VIEWS)) {
    const runs: number[] = [];
    for (let i = 0; i < 7; i++) {
      await show(["state"]);
      runs.push(await show(layers));
    }
    layoutMs[name] = median(runs.slice(2));
  }
  await show(VIEWS["physical"]);

  const far = performance.now() + 60_000;
  stage.fit();
  stage.drawFrame(far);
  const cloud = bareCloud();
  // Points as large as the units on screen, at most as large as units are drawn as points.
  const bare = () => cloud(Math.min(QUADS_FROM_PX, Math.max(1, stage.camera.scale * 0.86)));
  // Each kind of frame is held against the bare frames drawn between its own.
  const bares: Record<string, number[]> = {
    pan: [],
    zoom: [],
    move: [],
    panRules: [],
    zoomRules: [],
    tick: [],
  };
  const frames = {
    pan: [] as number[],
    zoom: [] as number[],
    move: [] as number[],
    panRules: [] as number[],
    zoomRules: [] as number[],
  };
  const scripts = structuredClone(frames);
  // Units have arrived before panning and zooming are timed, as they have for a person.
  await new Promise((resolve) => setTimeout(resolve, 1000));
  const frame = (kind: keyof typeof frames, now: number) => {
    const script = timed(() => stage.drawFrame(now));
    scripts[kind].push(script);
    frames[kind].push(script + timed(() => stage.renderer.finish()));
  };
  // Interleaved, so that a busy machine slows both sides alike.
  const panAndZoom = (pan: "pan" | "panRules", zoom: "zoom" | "zoomRules") => {
    for (let i = 0; i < 24; i++) {
      bares[pan].push(timed(bare));
      stage.panBy(i % 2 ? 9 : -9, i % 2 ? 5 : -5);
      frame(pan, performance.now());
    }
    stage.fit();
    stage.drawFrame(far);
    for (let i = 0; i < 24; i++) {
      bares[zoom].push(timed(bare));
      stage.zoomAt(i < 12 ? 1.35 : 1 / 1.35);
      frame(zoom, performance.now());
    }
    stage.fit();
    stage.drawFrame(far);
  };
  panAndZoom("pan", "zoom");
  const verdicts = madeUpVerdicts(cluster.state());
  engine.setRules([...verdicts.keys()]);
  const countRulesMs = timed(() =>
    engine.setState(
      { ...cluster.state(), verdicts },
      { structure: false, rows: new Int32Array(0), metrics: [...verdicts.keys()] },
    ),
  );
  stage.drawFrame(performance.now());
  if (!stage.ruleMarks || stage.ruleMarks.dots.length + stage.ruleMarks.bars.length === 0)
    throw new Error("no rule is marked");
  panAndZoom("panRules", "zoomRules");
  stage.fit();
  stage.drawFrame(far);
  await show(VIEWS["workloads"]);
  const begin = performance.now();
  for (let i = 0; i < 20; i++) {
    bares["move"].push(timed(bare));
    frame("move", begin + i * 30);
  }
  stage.drawFrame(far);

  const picks = 2000;
  const pickMs =
    timed(() => {
      for (let i = 0; i < picks; i++) stage.pickAt((i * 7919) % WIDTH, (i * 104729) % HEIGHT);
    }) / picks;

  const ticks = (names: string[], from: number) => {
    const runs: number[] = [];
    for (let i = 0; i < 9; i++) {
      const message = tick(gpus, names, from + i);
      bares["tick"].push(timed(bare));
      const script = timed(() => {
        const change = cluster.apply(message);
        engine.setState(cluster.state(), change);
      });
      tickScripts.push(script);
      runs.push(
        script +
          timed(() => {
            stage.drawFrame(far);
            stage.renderer.finish();
          }),
      );
    }
    return median(runs.slice(1));
  };
  const tickScripts: number[] = [];
  const tickMs = ticks(["util"], 2);
  const tickScriptMs = median(tickScripts);
  const tick12Ms = ticks(METRICS, 20);
  const bareMs = Object.fromEntries(
    Object.entries(bares).map(([name, runs]) => [name, median(runs)]),
  );
  return {
    gpus,
    bareMs,
    tickScriptMs,
    panFrameMs: median(frames.pan),
    zoomFrameMs: median(frames.zoom),
    transitionFrameMs: median(frames.move),
    panRulesFrameMs: median(frames.panRules),
    zoomRulesFrameMs: median(frames.zoomRules),
    scriptPanRulesMs: median(scripts.panRules),
    scriptZoomRulesMs: median(scripts.zoomRules),
    countRulesMs,
    scriptPanMs: median(scripts.pan),
    scriptZoomMs: median(scripts.zoom),
    scriptTransitionMs: median(scripts.move),
    pickMs,
    layoutMs,
    tickMs,
    tick12Ms,
    snapshotMs,
  };
}

run().then(
  (results) => (window.results = results),
  (error: unknown) => (window.results = { error: String(error) }),
);
