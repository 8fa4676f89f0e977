/** Cells, bands and time-spans of a step from the server, in the form that is drawn. */

import { tableFromIPC } from "@uwdata/flechette";
import { getBuffer } from "@/api/client";
import { decodeCells } from "@/charts/marey/cells";
import type { Bands, MareySource, Wanted } from "@/charts/marey/stage";
import { CELLS_BELOW_PX } from "@/charts/marey/rows";
import type { Spans } from "@/charts/marey/spans";
import type { MareyRow } from "@/features/traces/marey/rows";
import { printRanks } from "@/features/traces/marey/rows";
import { runPath } from "@/features/traces/queries";

const ARROW = "application/vnd.apache.arrow.stream";
const CELLS = "application/vnd.marey.cells";
/** Up to this many rows are asked for by name; more go by their places in the order. */
const MOST_NAMED = 400;
const MOST_BANDS = 60_000;

/** What is told about the intervals on the screen beside their times. */
export interface BandFacts {
  module: (interval: number) => string;
  stream: (interval: number) => number;
  confidence: (interval: number) => number;
  rank: (interval: number) => number;
  leftOut: number;
}

export type ToldBands = Bands & BandFacts;

/** A source for one step of a run; `heightOf` tells how tall rows are at the moment. */
export function makeSource(
  run: string,
  step: number,
  order: string,
  heightOf: (row: number) => number,
): MareySource {
  const base = runPath(run);
  return {
    fetchCells: async (wanted, signal) => {
      const seen = rowsOf(wanted).filter(({ row }) => row.rank >= 0 && row.kind !== "missing");
      if (seen.length === 0) return null;
      const named = seen.length <= MOST_NAMED;
      const positions = seen.map(({ row }) => row.position);
      const first = positions.reduce((a, b) => Math.min(a, b));
      const last = positions.reduce((a, b) => Math.max(a, b)) + 1;
      const query = {
        step,
        ...windowOf(wanted),
        width: Math.min(4096, wanted.width),
        height: Math.min(4096, named ? seen.length : wanted.height),
        ...(named
          ? { ranks: printRanks(seen.map(({ row }) => row.rank)) }
          : { order, first, last }),
      };
      const cells = decodeCells(await getBuffer(`${base}/cells`, CELLS, query, signal));
      if (!cells) return null;
      const places = new Int32Array(wanted.rows.length).fill(-1);
      seen.forEach(({ row, at }, i) => (places[at] = named ? i : row.position - first));
      return { cells, places };
    },
    fetchBands: async (wanted, signal) => {
      const tall = rowsOf(wanted).filter(
        ({ row, at }) => row.rank >= 0 && row.kind !== "missing" && heightOf(at) >= CELLS_BELOW_PX,
      );
      if (tall.length === 0) return null;
      const ranks = [...new Set(tall.map(({ row }) => row.rank))];
      const query = {
        step,
        ...windowOf(wanted),
        ranks: printRanks(ranks),
        min_ns: wanted.leastNs,
        limit: MOST_BANDS,
      };
      const bytes = await getBuffer(`${base}/bands`, ARROW, query, signal);
      return decodeBands(bytes, wanted, tall);
    },
    fetchSpans: async (wanted, signal) => {
      const clusters = rowsOf(wanted).filter(({ row }) => row.kind === "cluster");
      if (clusters.length === 0) return null;
      const query = {
        step,
        by: "cluster",
        ...windowOf(wanted),
        min_ns: wanted.leastNs,
        limit: MOST_BANDS,
      };
      const bytes = await getBuffer(`${base}/spans`, ARROW, query, signal);
      return decodeSpans(bytes, clusters);
    },
  };
}

interface Seen {
  row: MareyRow;
  at: number;
}

function rowsOf({ rows, first, last }: Wanted): Seen[] {
  return rows.slice(first, last).map((row, i) => ({ row: row as MareyRow, at: first + i }));
}

const windowOf = ({ window }: Wanted) => ({
  from: Math.floor(window.fromNs),
  to: Math.ceil(window.toNs),
});

type Numbers = ArrayLike<number | bigint>;

/** Order intervals by row; a rank that stands on two rows (exemplar and itself) gets them on both. */
function decodeBands(bytes: ArrayBuffer, wanted: Wanted, tall: readonly Seen[]): ToldBands {
  const table = tableFromIPC(new Uint8Array(bytes), { useBigInt: false });
  const numbers = (name: string) => (table.getChild(name)?.toArray() ?? []) as Numbers;
  const [rank, start, duration] = [numbers("rank"), numbers("start_ns"), numbers("dur_ns")];
  const [kind, operator, batch] = [numbers("kind"), numbers("operator"), numbers("micro_batch")];
  const byRank = new Map<number, number[]>();
  for (let i = 0; i < table.numRows; i++) push(byRank, Number(rank[i]), i);
  for (const list of byRank.values()) list.sort((a, b) => Number(start[a]) - Number(start[b]));
  const rankAt = new Map(tall.map(({ row, at }) => [at, row.rank]));
  const order: number[] = [];
  const begin = new Int32Array(wanted.last - wanted.first + 1);
  for (let r = 0; r < wanted.last - wanted.first; r++) {
    const one = rankAt.get(wanted.first + r);
    if (one !== undefined) for (const i of byRank.get(one) ?? []) order.push(i);
    begin[r + 1] = order.length;
  }
  const [names, modules] = [table.getChild("name"), table.getChild("module")];
  const [streams, sure] = [numbers("stream"), numbers("operator_confidence")];
  const operators = Int32Array.from(order, (i) => Number(operator[i]));
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
    leftOut: Number(table.schema.metadata?.get("left_out") ?? 0),
  };
}

function push(into: Map<number, number[]>, key: number, value: number): void {
  const list = into.get(key);
  if (list) list.push(value);
  else into.set(key, [value]);
}

/** Time-spans of the clusters that stand closed, row by row. */
function decodeSpans(bytes: ArrayBuffer, clusters: readonly Seen[]): Spans {
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
