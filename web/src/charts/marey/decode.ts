/** Bands and time-spans of a step as Arrow tables → the form that is drawn. */

import { tableFromIPC } from "@uwdata/flechette";
import type { MareyRow } from "@/charts/marey/ranks";
import type { Spans } from "@/charts/marey/spans";
import type { Bands, Wanted } from "@/charts/marey/stage";

/** What is told about the intervals on the screen beside their times. */
export interface BandFacts {
  module: (interval: number) => string;
  stream: (interval: number) => number;
  confidence: (interval: number) => number;
  rank: (interval: number) => number;
  step: (interval: number) => number;
  leftOut: number;
}

export type DescribedBands = Bands & BandFacts;

/** A row of the picture and its place. */
export interface Seen {
  row: MareyRow;
  at: number;
}

/** The rows that are wanted, with their places. */
export function rowsOf({ rows, first, last }: Wanted): Seen[] {
  return rows.slice(first, last).map((row, i) => ({ row: row as MareyRow, at: first + i }));
}

type Numbers = ArrayLike<number | bigint>;

/** Steps that share the axis of time, and how many operators the run has. */
export interface StepAxis {
  steps: readonly number[];
  operators: number;
}

const ONE_STEP: StepAxis = { steps: [], operators: 0 };

/** The number of an operator in a step: no two of a row are equal, also where several steps share the axis. */
export function numberIn(axis: StepAxis, operator: number, step: number | null): number {
  const nth = step === null ? 0 : Math.max(0, axis.steps.indexOf(step));
  return operator < 0 ? operator : operator + nth * axis.operators;
}

/** The operator and the step behind such a number. */
export function splitNumber(axis: StepAxis, number: number): { operator: number; step: number } {
  if (axis.steps.length < 2) return { operator: number, step: axis.steps[0] ?? -1 };
  const nth = Math.floor(number / axis.operators);
  return { operator: number - nth * axis.operators, step: axis.steps[nth] };
}

/** Order intervals by row; a rank that stands on two rows (exemplar and itself) gets them on both. */
export function decodeBands(
  bytes: ArrayBuffer,
  wanted: Wanted,
  tall: readonly Seen[],
  axis: StepAxis = ONE_STEP,
): DescribedBands {
  const table = tableFromIPC(new Uint8Array(bytes), { useBigInt: false });
  const numbers = (name: string) => (table.getChild(name)?.toArray() ?? []) as Numbers;
  const [rank, start, duration] = [numbers("rank"), numbers("start_ns"), numbers("dur_ns")];
  const [kind, operator, batch] = [numbers("kind"), numbers("operator"), numbers("micro_batch")];
  const byRank = new Map<number, number[]>();
  for (let i = 0; i < table.numRows; i++) push(byRank, Number(rank[i]), i);
  for (const list of byRank.values()) list.sort((a, b) => Number(start[a]) - Number(start[b]));
  const streams = numbers("stream");
  const rowAt = new Map(tall.map(({ row, at }) => [at, row]));
  const order: number[] = [];
  const begin = new Int32Array(wanted.last - wanted.first + 1);
  for (let r = 0; r < wanted.last - wanted.first; r++) {
    const row = rowAt.get(wanted.first + r);
    for (const i of (row && byRank.get(row.rank)) ?? [])
      if (row?.kind !== "stream" || Number(streams[i]) === row.stream) order.push(i);
    begin[r + 1] = order.length;
  }
  const [names, modules] = [table.getChild("name"), table.getChild("module")];
  const sure = numbers("operator_confidence");
  const steps = numbers("step");
  const operators = Int32Array.from(order, (i) =>
    numberIn(axis, Number(operator[i]), Number(steps[i])),
  );
  return {
    intervals: {
      begin,
      firstRow: wanted.first,
      startNs: Float64Array.from(order, (i) => Number(start[i])),
      endNs: Float64Array.from(order, (i) => Number(start[i]) + Number(duration[i])),
      kind: Uint8Array.from(order, (i) => Number(kind[i])),
      operator: operators,
      operators: operators.reduce((most, one) => Math.max(most, one), 0) + 1,
    },
    microBatch: Int32Array.from(order, (i) => Number(batch[i])),
    nameOf: (interval) => String(names?.at(order[interval]) ?? ""),
    module: (interval) => String(modules?.at(order[interval]) ?? ""),
    stream: (interval) => Number(streams[order[interval]]),
    confidence: (interval) => Number(sure[order[interval]] ?? 1),
    rank: (interval) => Number(rank[order[interval]]),
    step: (interval) => Number(steps[order[interval]] ?? -1),
    leftOut: Number(table.schema.metadata?.get("left_out") ?? 0),
  };
}

function push(into: Map<number, number[]>, key: number, value: number): void {
  const list = into.get(key);
  if (list) list.push(value);
  else into.set(key, [value]);
}

/** Time-spans of the clusters that stand closed, row by row. */
export function decodeSpans(bytes: ArrayBuffer, clusters: readonly Seen[]): Spans {
  const table = tableFromIPC(new Uint8Array(bytes), { useBigInt: false });
  const numbers = (name: string) => (table.getChild(name)?.toArray() ?? []) as Numbers;
  const group = numbers("group");
  const byGroup = new Map<number, number[]>();
  for (let i = 0; i < table.numRows; i++) push(byGroup, Number(group[i]), i);
  const order: [number, number][] = clusters.flatMap(({ row, at }) =>
    (byGroup.get(row.spanGroup) ?? []).map((i): [number, number] => [at, i]),
  );
  const column = (name: string) => {
    const values = numbers(name);
    return Float64Array.from(order, ([, i]) => Number(values[i]));
  };
  const [kind, operator] = [numbers("kind"), numbers("operator")];
  return {
    row: Int32Array.from(order, ([at]) => at),
    kind: Uint8Array.from(order, ([, i]) => Number(kind[i])),
    operator: Int32Array.from(order, ([, i]) => Number(operator[i])),
    startMinNs: column("start_min_ns"),
    startMeanNs: column("start_mean_ns"),
    startMaxNs: column("start_max_ns"),
    endMinNs: column("end_min_ns"),
    endMeanNs: column("end_mean_ns"),
    endMaxNs: column("end_max_ns"),
  };
}
