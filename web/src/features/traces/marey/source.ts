/** Cells, bands and time-spans of a step from the server, in the form that is drawn. */

import { tableFromIPC } from "@uwdata/flechette";
import { getBuffer } from "@/api/client";
import { decodeCells } from "@/charts/marey/cells";
import type { StepAxis } from "@/charts/marey/decode";
import { decodeBands, decodeSpans, numberIn, rowsOf } from "@/charts/marey/decode";
import type { MareySource, Wanted } from "@/charts/marey/stage";
import { CELLS_BELOW_PX } from "@/charts/marey/rows";
import { printRanks } from "@/charts/marey/ranks";
import { runPath } from "@/features/traces/queries";

const ARROW = "application/vnd.apache.arrow.stream";
const CELLS = "application/vnd.marey.cells";
/** Up to this many rows are asked for by name; more go by their places in the order. */
const MOST_NAMED = 400;
const MOST_BANDS = 60_000;

/** A source for steps of a run on one axis; `heightOf` tells how tall rows are at the moment. */
export function makeSource(
  run: string,
  axis: StepAxis,
  order: string,
  heightOf: (row: number) => number,
): MareySource {
  const base = runPath(run);
  const step = axis.steps[0];
  const through = axis.steps.length > 1 ? { through: axis.steps[axis.steps.length - 1] } : {};
  return {
    fetchCells: async (wanted, signal) => {
      // A stream's row has bands only: cells are told by rank.
      const seen = rowsOf(wanted).filter(
        ({ row }) => row.rank >= 0 && row.kind !== "missing" && row.kind !== "stream",
      );
      if (seen.length === 0) return null;
      const named = seen.length <= MOST_NAMED;
      const positions = seen.map(({ row }) => row.position);
      const first = positions.reduce((a, b) => Math.min(a, b));
      const last = positions.reduce((a, b) => Math.max(a, b)) + 1;
      const query = {
        step,
        ...through,
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
        ...through,
        ...windowOf(wanted),
        ranks: printRanks(ranks),
        min_ns: wanted.leastNs,
        limit: MOST_BANDS,
      };
      const bytes = await getBuffer(`${base}/bands`, ARROW, query, signal);
      return decodeBands(bytes, wanted, tall, axis);
    },
    fetchSpans: async (wanted, signal) => {
      const clusters = rowsOf(wanted).filter(({ row }) => row.kind === "cluster");
      if (clusters.length === 0) return null;
      const query = {
        step,
        ...through,
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

/** The longest interval of a rank that a selection means, with its number on the axis; null where there is none. */
export async function fetchLongest(
  run: string,
  axis: StepAxis,
  where: string,
  rank: number,
): Promise<{ number: number; fromNs: number; toNs: number } | null> {
  const [step, last] = [axis.steps[0], axis.steps[axis.steps.length - 1]];
  const query = {
    step,
    ...(last > step ? { through: last } : {}),
    ranks: String(rank),
    where,
    limit: 1,
  };
  const bytes = await getBuffer(`${runPath(run)}/bands`, ARROW, query).catch(() => null);
  if (!bytes) return null;
  const table = tableFromIPC(new Uint8Array(bytes), { useBigInt: false });
  if (table.numRows === 0) return null;
  const at = (name: string) => Number(table.getChild(name)?.at(0));
  const fromNs = at("start_ns");
  return {
    number: numberIn(axis, at("operator"), at("step")),
    ...{ fromNs, toNs: fromNs + at("dur_ns") },
  };
}

const windowOf = ({ window }: Wanted) => ({
  from: Math.floor(window.fromNs),
  to: Math.ceil(window.toNs),
});
