/** What stands at a point of the picture. */

import type { Intervals } from "@/charts/marey/bands";
import type { RowLayout } from "@/charts/marey/rows";
import { rowAt } from "@/charts/marey/rows";
import type { TimeWindow } from "@/charts/marey/window";
import { spanNs, timeAt } from "@/charts/marey/window";

export interface Hit {
  row: number;
  timeNs: number;
  /** The interval there, or −1. */
  interval: number;
}

/** How far beside an interval a pointer may be and still mean it. */
const REACH_PX = 3;

/** Find the row, the time and the interval at a point; of two that overlap, the one that began later. */
export function findHit(
  point: { x: number; y: number },
  view: { layout: RowLayout; scroll: number; window: TimeWindow; width: number },
  intervals: Intervals | null,
): Hit | null {
  const row = rowAt(view.layout, point.y + view.scroll);
  if (row < 0) return null;
  const timeNs = timeAt(point.x, view.window, view.width);
  const reachNs = (REACH_PX * spanNs(view.window)) / view.width;
  return { row, timeNs, interval: intervals ? findInterval(intervals, row, timeNs, reachNs) : -1 };
}

function findInterval(
  { begin, firstRow, startNs, endNs }: Intervals,
  row: number,
  timeNs: number,
  reachNs: number,
): number {
  const r = row - firstRow;
  if (r < 0 || r + 1 >= begin.length) return -1;
  let [best, distance] = [-1, Infinity];
  for (let i = begin[r]; i < begin[r + 1]; i++) {
    const away = Math.max(startNs[i] - timeNs, timeNs - endNs[i], 0);
    if (away > reachNs || away > distance) continue;
    if (away === distance && startNs[i] < startNs[best]) continue;
    [best, distance] = [i, away];
  }
  return best;
}

/** The interval of an operator on a row, or −1. */
export function findOperator(intervals: Intervals, row: number, operator: number): number {
  const r = row - intervals.firstRow;
  if (r < 0 || r + 1 >= intervals.begin.length) return -1;
  for (let i = intervals.begin[r]; i < intervals.begin[r + 1]; i++)
    if (intervals.operator[i] === operator) return i;
  return -1;
}
