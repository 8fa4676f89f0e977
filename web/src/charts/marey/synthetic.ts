/** A made-up step of many ranks, for tests and measurements: a collective every eighth operator, one slow rank. */

import type { Intervals } from "@/charts/marey/bands";
import type { Cells } from "@/charts/marey/cells";
import { KIND_CODES } from "@/charts/marey/kinds";
import type { Row } from "@/charts/marey/rows";
import type { TimeWindow } from "@/charts/marey/window";
import { spanNs } from "@/charts/marey/window";

export interface SyntheticStep extends TimeWindow {
  ranks: number;
  operators: number;
  /** Intervals of all ranks, rank by rank. */
  intervals: Intervals;
  rows: Row[];
}

/** Build a step; `slow` ranks take 1.6 times as long for compute, and all wait for them in collectives. */
export function makeStep(ranks: number, operators: number, slow: readonly number[]): SyntheticStep {
  const random = makeRandom(7);
  const size = ranks * operators;
  const intervals: Intervals = {
    begin: Int32Array.from({ length: ranks + 1 }, (_, r) => r * operators),
    firstRow: 0,
    startNs: new Float64Array(size),
    endNs: new Float64Array(size),
    kind: new Uint8Array(size),
    operator: Int32Array.from({ length: size }, (_, i) => i % operators),
    operators,
  };
  const clock = new Float64Array(ranks);
  for (let op = 0; op < operators; op++) {
    const base = 20_000 + 60_000 * random();
    if (op % 8 === 7) addCollective(intervals, clock, op, base);
    else addCompute(intervals, clock, op, (rank) => base * (slow.includes(rank) ? 1.6 : 1));
  }
  const rows = Array.from({ length: ranks }, (_, rank) => makeRow(rank, slow.includes(rank)));
  return { fromNs: 0, toNs: Math.max(...clock), ranks, operators, intervals, rows };
}

function makeRow(rank: number, outlier: boolean): Row {
  return {
    kind: "rank",
    label: `rank ${rank}`,
    rank,
    group: 0,
    count: 1,
    outlier,
    clockErrorNs: 0,
  };
}

function addCompute(
  into: Intervals,
  clock: Float64Array,
  op: number,
  durationOf: (rank: number) => number,
): void {
  for (let rank = 0; rank < clock.length; rank++) {
    const i = rank * into.operators + op;
    into.kind[i] = KIND_CODES.compute;
    into.startNs[i] = clock[rank];
    clock[rank] = into.endNs[i] = clock[rank] + durationOf(rank);
  }
}

function addCollective(into: Intervals, clock: Float64Array, op: number, transfer: number): void {
  const end = Math.max(...clock) + transfer;
  for (let rank = 0; rank < clock.length; rank++) {
    const i = rank * into.operators + op;
    into.kind[i] = KIND_CODES.collective;
    into.startNs[i] = clock[rank];
    clock[rank] = into.endNs[i] = end;
  }
}

/** Random numbers that are the same in every run. */
export function makeRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** Count cells from intervals as the server does: what fills most of each, and where a rank differs from most. */
export function countCells(
  { intervals }: SyntheticStep,
  ranks: readonly number[],
  window: TimeWindow,
  bins: number,
): Cells {
  const kinds = new Uint8Array(ranks.length * bins);
  const perBin = spanNs(window) / bins;
  ranks.forEach((rank, line) => {
    const filled = new Float64Array(bins * 10);
    for (let i = intervals.begin[rank]; i < intervals.begin[rank + 1]; i++)
      fillBins(filled, bins, {
        from: (intervals.startNs[i] - window.fromNs) / perBin,
        to: (intervals.endNs[i] - window.fromNs) / perBin,
        kind: intervals.kind[i],
      });
    for (let bin = 0; bin < bins; bin++) kinds[line * bins + bin] = mostOf(filled, bin);
  });
  const deviations = compareLines(kinds, ranks.length, bins);
  const bounds = Uint32Array.from({ length: ranks.length + 1 }, (_, line) => line);
  return { ...window, lines: ranks.length, bins, ranks: ranks.length, bounds, kinds, deviations };
}

function fillBins(
  filled: Float64Array,
  bins: number,
  { from, to, kind }: { from: number; to: number; kind: number },
): void {
  const last = Math.min(bins - 1, Math.floor(to));
  for (let bin = Math.max(0, Math.floor(from)); bin <= last; bin++)
    filled[bin * 10 + kind] += Math.min(bin + 1, to) - Math.max(bin, from);
}

function mostOf(filled: Float64Array, bin: number): number {
  let [best, most] = [0, 0];
  for (let kind = 1; kind < 10; kind++)
    if (filled[bin * 10 + kind] > most) [best, most] = [kind, filled[bin * 10 + kind]];
  return (best << 4) | Math.min(15, Math.round(most * 15));
}

function compareLines(kinds: Uint8Array, lines: number, bins: number): Uint8Array {
  const deviations = new Uint8Array(kinds.length);
  const votes = new Int32Array(16);
  for (let bin = 0; bin < bins; bin++) {
    votes.fill(0);
    for (let line = 0; line < lines; line++) votes[kinds[line * bins + bin] >> 4]++;
    const usual = votes.indexOf(Math.max(...votes));
    for (let line = 0; line < lines; line++) {
      const code = kinds[line * bins + bin];
      if (code >> 4 !== usual) deviations[line * bins + bin] = (code & 15) * 17;
    }
  }
  return deviations;
}

/** The intervals that are at least as long as `leastNs` and meet a window, as the server leaves the others out. */
export function cutIntervals(all: Intervals, window: TimeWindow, leastNs: number): Intervals {
  const keep: number[] = [];
  const begin = [0];
  for (let r = 0; r + 1 < all.begin.length; r++) {
    for (let i = all.begin[r]; i < all.begin[r + 1]; i++)
      if (
        all.endNs[i] - all.startNs[i] >= leastNs &&
        all.endNs[i] > window.fromNs &&
        all.startNs[i] < window.toNs
      )
        keep.push(i);
    begin.push(keep.length);
  }
  return {
    begin: Int32Array.from(begin),
    firstRow: all.firstRow,
    startNs: Float64Array.from(keep, (i) => all.startNs[i]),
    endNs: Float64Array.from(keep, (i) => all.endNs[i]),
    kind: Uint8Array.from(keep, (i) => all.kind[i]),
    operator: Int32Array.from(keep, (i) => all.operator[i]),
    operators: all.operators,
  };
}
