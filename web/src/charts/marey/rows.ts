/**
 * Rows of the picture from top to bottom, and how much each can show at its height: cells below three pixels, bands
 * above them, labels from twelve pixels on.
 */

export type RowKind = "stage" | "cluster" | "rank" | "stream" | "missing";

export interface Row {
  kind: RowKind;
  /** What the row is called: "stage 2", "×127 like rank 4", "rank 17". */
  label: string;
  /** What names it in the data: the rank or the exemplar; −1 for a header. */
  rank: number;
  /** Rows of one group are joined by bands; a header begins a new one. */
  group: number;
  /** How many ranks it stands for. */
  count: number;
  outlier: boolean;
  /** Error of the rank's clock against the run's. */
  clockErrorNs: number;
  /** What stands beside the row: throughput, peak memory. */
  aside?: string;
}

export const CELLS_BELOW_PX = 3;
export const LABELS_FROM_PX = 12;
const HEADER_PX = 18;
const OUTLIER_LEAST_PX = 3;

export type Detail = "cells" | "bands" | "labels";

/** Rows with their places; rows beyond the visible part have places too. */
export interface RowLayout {
  rows: readonly Row[];
  top: Float64Array;
  height: Float64Array;
  total: number;
  rowPx: number;
}

/** Pixels of a plain row so that all fit, within what can be read and what is useful. */
export function fitRowPx(rows: readonly Row[], heightPx: number): number {
  const headers = rows.filter((row) => row.kind === "stage").length;
  const plain = Math.max(1, rows.length - headers);
  return Math.min(40, Math.max(0.02, (heightPx - headers * HEADER_PX) / plain));
}

/** Place rows below each other; an outlier is never thinner than three pixels, whatever the others are. */
export function layoutRows(rows: readonly Row[], rowPx: number): RowLayout {
  const top = new Float64Array(rows.length);
  const height = new Float64Array(rows.length);
  let y = 0;
  rows.forEach((row, i) => {
    top[i] = y;
    height[i] = heightOf(row, rowPx);
    y += height[i];
  });
  return { rows, top, height, total: y, rowPx };
}

function heightOf(row: Row, rowPx: number): number {
  if (row.kind === "stage") return HEADER_PX;
  if (row.kind === "cluster" || row.outlier) return Math.max(OUTLIER_LEAST_PX, rowPx);
  return rowPx;
}

export function detailOf(heightPx: number): Detail {
  if (heightPx < CELLS_BELOW_PX) return "cells";
  return heightPx < LABELS_FROM_PX ? "bands" : "labels";
}

/** The row at a height, or −1 above the first and below the last. */
export function rowAt(layout: RowLayout, y: number): number {
  if (y < 0 || y >= layout.total) return -1;
  let [low, high] = [0, layout.rows.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (layout.top[middle] <= y) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** First and last row (exclusive) that a viewport shows. */
export function visibleRows(layout: RowLayout, scroll: number, heightPx: number): [number, number] {
  if (layout.rows.length === 0) return [0, 0];
  const first = Math.max(0, rowAt(layout, Math.max(0, scroll)));
  const last = rowAt(layout, Math.min(layout.total - 1e-6, scroll + heightPx));
  return [first, (last < 0 ? layout.rows.length - 1 : last) + 1];
}

/** The scroll that brings a row into view, changing as little as needed. */
export function scrollTo(layout: RowLayout, row: number, scroll: number, heightPx: number): number {
  const [top, bottom] = [layout.top[row], layout.top[row] + layout.height[row]];
  if (top < scroll) return top;
  if (bottom > scroll + heightPx) return Math.min(layout.total - heightPx, bottom - heightPx);
  return scroll;
}
