/** GPUs and waiting workloads → units, one row per square, with every attribute as a column. */

import type { Column, Table, TextColumn } from "@/base/columns";
import { Words } from "@/base/columns";
import type { Verdicts } from "@/base/verdicts/verdicts";
import { isVerdictField, verdictColumn } from "@/base/verdicts/verdicts";

/** Which workload holds which GPU, sorted by GPU. */
export interface Allocations {
  gpu: Int32Array;
  workload: Int32Array;
  share: Float32Array;
}

/** The cluster as the server last told it. */
export interface ClusterState {
  timeMs: number;
  gpus: Table;
  workloads: Table;
  allocations: Allocations;
  /** 1 for each GPU row that exists; a row that went is never drawn. */
  present: Uint8Array;
  /** Which rules each GPU and workload violates, once somebody asked. */
  verdicts?: Verdicts;
}

export interface UnitOptions {
  units: "gpus" | "waiting" | "both";
  waiting_unit: "gpu" | "workload";
}

export interface Units extends Table {
  /** Row of the GPU per unit, −1 for a waiting one. */
  gpu: Int32Array;
  /** Row of the workload per unit, −1 for a free GPU. */
  workload: Int32Array;
  /** Parts of GPUs; null where every unit is a whole one. */
  shares: { gpu: Int32Array; offset: Float32Array; share: Float32Array } | null;
  /** The column of an attribute, computed at first use. */
  column: (name: string) => Column | undefined;
}

// A request beyond this many GPUs is drawn with this many squares: a typing error must not stop the page.
const MOST_SQUARES = 20_000;

interface UnitRows {
  rows: number;
  gpu: Int32Array;
  workload: Int32Array;
  shares: Units["shares"];
}

const knownRows = new WeakMap<Allocations, Map<string, UnitRows>>();

/** Every GPU (or its parts), then the waiting requests in the scheduler's order. */
export function buildUnits(state: ClusterState, options: UnitOptions): Units {
  const rows = unitRows(state, options);
  const columns = new Map<string, Column>();
  const column = (name: string): Column | undefined => {
    let found = columns.get(name);
    if (!found) {
      found = gather(state, rows, name);
      if (found) columns.set(name, found);
    }
    return found;
  };
  return { ...rows, columns: lazy(column), column };
}

/** Which squares there are; the same until allocations or workloads change. */
function unitRows(state: ClusterState, options: UnitOptions): UnitRows {
  const kind = `${options.units} ${options.waiting_unit}`;
  const known = knownRows.get(state.allocations) ?? new Map<string, UnitRows>();
  knownRows.set(state.allocations, known);
  let rows = known.get(kind);
  if (!rows) {
    rows = listRows(state, options);
    known.set(kind, rows);
  }
  return rows;
}

function listRows(state: ClusterState, options: UnitOptions): UnitRows {
  const gpu: number[] = [];
  const workload: number[] = [];
  const offset: number[] = [];
  const share: number[] = [];
  const add: Add = (g, w, from, part) => {
    gpu.push(g);
    workload.push(w);
    offset.push(from);
    share.push(part);
  };
  const split = options.units !== "waiting" && addGpus(state, add);
  if (options.units !== "gpus") addWaiting(state, options.waiting_unit, add);
  const gpuRows = Int32Array.from(gpu);
  const shares = split
    ? { gpu: gpuRows, offset: Float32Array.from(offset), share: Float32Array.from(share) }
    : null;
  return { rows: gpu.length, gpu: gpuRows, workload: Int32Array.from(workload), shares };
}

type Add = (gpu: number, workload: number, offset: number, share: number) => void;

function addGpus({ gpus, allocations, present }: ClusterState, add: Add): boolean {
  let split = false;
  let at = 0;
  for (let g = 0; g < gpus.rows; g++) {
    const first = at;
    while (at < allocations.gpu.length && allocations.gpu[at] === g) at++;
    if (!present[g]) continue;
    if (at - first <= 1) {
      add(g, at > first ? allocations.workload[first] : -1, 0, 1);
      continue;
    }
    split = true;
    let total = 0;
    for (let a = first; a < at; a++) total += allocations.share[a];
    let from = 0;
    for (let a = first; a < at; a++) {
      const part = total > 0 ? allocations.share[a] / Math.max(total, 1) : 1 / (at - first);
      add(g, allocations.workload[a], from, part);
      from += part;
    }
  }
  return split;
}

function addWaiting({ workloads }: ClusterState, unit: "gpu" | "workload", add: Add): void {
  for (const w of waitingOrder(workloads)) {
    const requested = workloads.columns.get("gpus_requested");
    const count = unit === "gpu" && requested?.kind === "number" ? requested.values[w] : 1;
    for (let i = 0; i < Math.min(MOST_SQUARES, Math.max(1, count || 1)); i++) add(-1, w, 0, 1);
  }
}

/** Rows of the waiting workloads, first the one the scheduler considers next. */
function waitingOrder(workloads: Table): number[] {
  const state = workloads.columns.get("state");
  const position = workloads.columns.get("queue_position");
  if (state?.kind !== "text") return [];
  const pending = state.words.indexOf("pending");
  const rows: number[] = [];
  for (let w = 0; w < workloads.rows; w++)
    if (state.codes[w] === pending && pending >= 0) rows.push(w);
  if (position?.kind !== "number") return rows;
  const place = (w: number): number =>
    Number.isNaN(position.values[w]) ? Infinity : position.values[w];
  return rows.sort((a, b) => place(a) - place(b) || a - b);
}

function gather(state: ClusterState, units: UnitRows, name: string): Column | undefined {
  switch (name) {
    case "pool":
      return {
        kind: "text",
        codes: units.gpu.map((g) => (g < 0 ? 1 : 0)),
        words: ["GPUs", "Waiting"],
      };
    case "state":
      return withWaiting(gatherText(units.gpu, state.gpus.columns.get("state")), units.gpu);
    case "waiting_s":
      return since(state, units, "submit_ms", true);
    case "running_s":
      return since(state, units, "start_ms", false);
    case "queue_position":
      return waitingOnly(
        gatherNumber(units.workload, state.workloads.columns.get(name)),
        units.gpu,
      );
    default:
      if (isVerdictField(name)) return verdictOf(state, units, name);
      return merged(units, state.gpus.columns.get(name), state.workloads.columns.get(name));
  }
}

/** The verdict of a rule on each unit: it is held against a workload, on the GPUs that fulfil it. */
function verdictOf(state: ClusterState, units: UnitRows, name: string): Column | undefined {
  const verdict = state.verdicts?.get(name);
  if (!verdict) return undefined;
  return verdictColumn(
    verdict,
    gatherText(units.gpu, state.gpus.columns.get("gpu")),
    gatherText(units.workload, state.workloads.columns.get("workload")),
  );
}

/** The GPU's own value where it has one, else its workload's. */
function merged(
  units: UnitRows,
  ofGpu: Column | undefined,
  ofWorkload: Column | undefined,
): Column | undefined {
  if (ofGpu?.kind === "number") return { kind: "number", values: gatherNumber(units.gpu, ofGpu) };
  if (!ofGpu && ofWorkload?.kind === "number")
    return { kind: "number", values: gatherNumber(units.workload, ofWorkload) };
  if (!ofGpu && ofWorkload?.kind === "text") return gatherText(units.workload, ofWorkload);
  if (ofGpu?.kind !== "text") return undefined;
  const own = gatherText(units.gpu, ofGpu);
  return ofWorkload?.kind === "text" && units.gpu.includes(-1)
    ? filled(own, units, ofWorkload)
    : own;
}

function filled(own: TextColumn, units: UnitRows, ofWorkload: TextColumn): TextColumn {
  const words = new Words();
  for (const word of own.words) words.code(word);
  const codes = own.codes.slice();
  for (let i = 0; i < units.rows; i++) {
    const w = units.workload[i];
    if (units.gpu[i] < 0 && w >= 0 && ofWorkload.codes[w] >= 0)
      codes[i] = words.code(ofWorkload.words[ofWorkload.codes[w]]);
  }
  return { kind: "text", codes, words: words.list };
}

function gatherText(rows: Int32Array, column: Column | undefined): TextColumn {
  if (column?.kind !== "text")
    return { kind: "text", codes: new Int32Array(rows.length).fill(-1), words: [] };
  const codes = new Int32Array(rows.length);
  for (let i = 0; i < rows.length; i++) codes[i] = rows[i] < 0 ? -1 : column.codes[rows[i]];
  return { kind: "text", codes, words: column.words };
}

function gatherNumber(rows: Int32Array, column: Column | undefined): Float32Array {
  const values = new Float32Array(rows.length).fill(NaN);
  if (column?.kind === "number") {
    for (let i = 0; i < rows.length; i++) if (rows[i] >= 0) values[i] = column.values[rows[i]];
  }
  return values;
}

function withWaiting(column: TextColumn, gpu: Int32Array): TextColumn {
  const words = [...column.words, "waiting"];
  return {
    kind: "text",
    codes: column.codes.map((code, i) => (gpu[i] < 0 ? words.length - 1 : code)),
    words,
  };
}

function waitingOnly(values: Float32Array, gpu: Int32Array): Column {
  return { kind: "number", values: values.map((value, i) => (gpu[i] < 0 ? value : NaN)) };
}

function since(state: ClusterState, units: UnitRows, field: string, waiting: boolean): Column {
  const started = state.workloads.columns.get(field);
  const values = new Float32Array(units.rows).fill(NaN);
  if (started?.kind === "number") {
    for (let i = 0; i < units.rows; i++) {
      const w = units.workload[i];
      if (w >= 0 && units.gpu[i] < 0 === waiting)
        values[i] = (state.timeMs - started.values[w]) / 1000;
    }
  }
  return { kind: "number", values };
}

function lazy(column: (name: string) => Column | undefined): ReadonlyMap<string, Column> {
  return {
    get: column,
    has: (name: string) => column(name) !== undefined,
  } as unknown as ReadonlyMap<string, Column>;
}
