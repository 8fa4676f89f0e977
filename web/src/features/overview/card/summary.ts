/** What can be said of a selection: facts that all its units share, counts, and means beside the cluster's. */

import { valueAt } from "@/base/columns";
import type { Predicate } from "@/base/predicate";
import { select } from "@/base/predicate";
import type { ClusterState, Units } from "@/base/units";
import { buildUnits } from "@/base/units";

export interface MetricSummary {
  metric: string;
  mean: number | null;
  min: number | null;
  max: number | null;
  /** Mean over all allocated GPUs of the cluster. */
  clusterMean: number | null;
}

export interface Summary {
  gpus: number;
  waiting: number;
  states: [string, number][];
  /** Distinct values of each fact, most frequent first. */
  values: Map<string, [string, number][]>;
  gpuIds: string[];
  metrics: MetricSummary[];
  /** Its running workloads, those that leave most of their GPUs unused first. */
  worst: WorkloadUse[];
}

export interface WorkloadUse {
  workload: string;
  name: string;
  user: string;
  gpus: number;
  /** Mean utilization in percent; null where nothing is measured. */
  util: number | null;
}

const FACT_FIELDS = [
  "host",
  "rack",
  "partition",
  "model",
  "user",
  "project",
  "experiment",
  "workload",
  "name",
  "resource_type",
  "reason",
  "qos",
];

/** Summarise the units that satisfy any of the predicates. */
export function summarise(
  state: ClusterState,
  selection: readonly Predicate[],
  metrics: readonly string[],
): Summary {
  const units = buildUnits(state, { units: "both", waiting_unit: "workload" });
  const chosen = select({ or: [...selection] }, units);
  const rows: number[] = [];
  for (let i = 0; i < units.rows; i++) if (chosen[i]) rows.push(i);
  const gpuRows = rows.filter((row) => units.gpu[row] >= 0);
  const share = (row: number) => (units.shares ? units.shares.share[row] : 1);
  const ids = new Set(gpuRows.map((row) => String(valueAt(units.column("gpu"), row) ?? "")));
  return {
    gpus: Math.round(gpuRows.reduce((sum, row) => sum + share(row), 0) * 100) / 100,
    waiting: rows.length - gpuRows.length,
    states: countValues(units, rows, "state"),
    values: new Map(FACT_FIELDS.map((field) => [field, countValues(units, rows, field)])),
    gpuIds: [...ids],
    metrics: metrics.map((metric) => summariseMetric(units, gpuRows, metric)),
    worst: rankWorkloads(units, gpuRows),
  };
}

/** GPUs that a workload leaves unused, in whole GPUs; without values nothing is known against it. */
function unused({ gpus, util }: WorkloadUse): number {
  return util === null ? 0 : (gpus * (100 - util)) / 100;
}

function rankWorkloads(units: Units, gpuRows: readonly number[]): WorkloadUse[] {
  const found = new Map<string, WorkloadUse & { sum: number; measured: number }>();
  const text = (field: string, row: number) => String(valueAt(units.column(field), row) ?? "");
  for (const row of gpuRows) {
    const workload = text("workload", row);
    if (workload === "") continue;
    const one = found.get(workload) ?? {
      ...{ workload, name: text("name", row), user: text("user", row) },
      ...{ gpus: 0, util: null, sum: 0, measured: 0 },
    };
    const share = units.shares ? units.shares.share[row] : 1;
    one.gpus += share;
    const value = valueAt(units.column("util"), row);
    if (typeof value === "number" && !Number.isNaN(value)) {
      one.sum += value * share;
      one.measured += share;
      one.util = one.sum / one.measured;
    }
    found.set(workload, one);
  }
  return [...found.values()]
    .map(({ workload, name, user, gpus, util }) => ({ workload, name, user, gpus, util }))
    .sort((a, b) => unused(b) - unused(a) || (a.workload < b.workload ? -1 : 1));
}

function countValues(units: Units, rows: readonly number[], field: string): [string, number][] {
  const column = units.column(field);
  if (column?.kind !== "text") return [];
  const counts = new Map<number, number>();
  for (const row of rows)
    if (column.codes[row] >= 0)
      counts.set(column.codes[row], (counts.get(column.codes[row]) ?? 0) + 1);
  return [...counts]
    .map(([code, count]): [string, number] => [column.words[code], count])
    .sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}

function summariseMetric(units: Units, rows: readonly number[], metric: string): MetricSummary {
  const column = units.column(metric);
  const values = column?.kind === "number" ? column.values : new Float32Array(units.rows).fill(NaN);
  let [sum, n, min, max] = [0, 0, Infinity, -Infinity];
  for (const row of rows) {
    const value = values[row];
    if (Number.isNaN(value)) continue;
    sum += value;
    n++;
    min = Math.min(min, value);
    max = Math.max(max, value);
  }
  const whole = clusterMean(units, values);
  return n > 0
    ? { metric, mean: sum / n, min, max, clusterMean: whole }
    : { metric, mean: null, min: null, max: null, clusterMean: whole };
}

function clusterMean(units: Units, values: Float32Array | Float64Array): number | null {
  const states = units.column("state");
  if (states?.kind !== "text") return null;
  const allocated = states.words.indexOf("allocated");
  let [sum, n] = [0, 0];
  for (let i = 0; i < units.rows; i++) {
    if (states.codes[i] === allocated && !Number.isNaN(values[i])) {
      sum += values[i];
      n++;
    }
  }
  return n > 0 ? sum / n : null;
}

/** One workload's row as plain facts, or null where it is not known. */
export function workloadFacts(
  state: ClusterState,
  id: string,
): Record<string, string | number | null> | null {
  const ids = state.workloads.columns.get("workload");
  if (ids?.kind !== "text") return null;
  const row = ids.codes.indexOf(ids.words.indexOf(id));
  if (row < 0) return null;
  return Object.fromEntries(
    [...state.workloads.columns].map(([name, column]) => [name, valueAt(column, row)]),
  );
}

/** Mean over GPUs in equal spans of time, for a small line. */
export function meanLine(
  points: readonly { time_ms: number; value: number | null }[],
  buckets: number,
): (number | null)[] {
  if (points.length === 0) return [];
  let [from, to] = [Infinity, -Infinity];
  for (const { time_ms } of points) {
    from = Math.min(from, time_ms);
    to = Math.max(to, time_ms);
  }
  const sums = new Float64Array(buckets);
  const counts = new Int32Array(buckets);
  for (const { time_ms, value } of points) {
    if (value === null) continue;
    const bucket = Math.min(
      buckets - 1,
      Math.floor(((time_ms - from) / Math.max(1, to - from)) * buckets),
    );
    sums[bucket] += value;
    counts[bucket]++;
  }
  return Array.from(sums, (sum, i) => (counts[i] > 0 ? sum / counts[i] : null));
}
