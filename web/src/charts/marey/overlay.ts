/** What lies over the pixels of the Marey view: rows' names, the axis of time, labels, lines and the selection. */

import type { Intervals } from "@/charts/marey/bands";
import { barOf } from "@/charts/marey/cells";
import { findOperator } from "@/charts/marey/hit";
import type { Palette } from "@/charts/marey/kinds";
import { isAbove, shortenKernel } from "@/charts/marey/kinds";
import type { RowLayout } from "@/charts/marey/rows";
import { detailOf, visibleRows } from "@/charts/marey/rows";
import type { TimeWindow } from "@/charts/marey/window";
import { formatNs, pixelOf, spanNs, timeTicks } from "@/charts/marey/window";

export const AXIS_PX = 22;

/** Memory of a row over time, to be drawn as a line on it. */
export interface MemoryLine {
  timeNs: Float64Array;
  bytes: Float64Array;
  mostBytes: number;
}

export interface Overlay {
  layout: RowLayout;
  scroll: number;
  window: TimeWindow;
  /** Plot without gutter and axis. */
  width: number;
  height: number;
  gutter: number;
  palette: Palette;
  intervals: Intervals | null;
  nameOf: (interval: number) => string;
  microBatch: Int32Array | null;
  /** Operator that is selected, −1 for none; and the row that has the focus. */
  operator: number;
  /** Micro-batch that stands out, −1 for none. */
  followed: number;
  focusRow: number;
  /** Where the pointer is. */
  cursor: { timeNs: number; row: number } | null;
  /** A span of time that is being marked, or that the selection names. */
  marked: TimeWindow | null;
  memory: ReadonlyMap<number, MemoryLine>;
  missingLabel: string;
  /** Where steps begin, if several share the axis. */
  steps: readonly StepMark[];
}

export interface StepMark {
  label: string;
  timeNs: number;
}

/** Draw everything that is not a pixel of the picture itself. */
export function drawOverlay(context: CanvasRenderingContext2D, overlay: Overlay): void {
  const { gutter, width, height } = overlay;
  context.clearRect(0, 0, gutter + width, height + AXIS_PX);
  drawAxis(context, overlay);
  context.save();
  context.translate(0, AXIS_PX);
  context.beginPath();
  context.rect(0, 0, gutter + width, height);
  context.clip();
  drawRows(context, overlay);
  drawSteps(context, overlay);
  context.translate(gutter, 0);
  context.beginPath();
  context.rect(0, 0, width, height);
  context.clip();
  drawLabels(context, overlay);
  drawMemory(context, overlay);
  drawMarked(context, overlay);
  drawSelection(context, overlay);
  drawCursor(context, overlay);
  context.restore();
}

function drawAxis(context: CanvasRenderingContext2D, overlay: Overlay): void {
  const { window, width, gutter, palette } = overlay;
  context.font = "11px sans-serif";
  context.textBaseline = "middle";
  context.textAlign = "left";
  const ticks = timeTicks(window, width);
  const resolution = ticks.length > 1 ? ticks[1] - ticks[0] : spanNs(window);
  for (const tick of ticks) {
    const x = Math.round(gutter + pixelOf(tick, window, width)) + 0.5;
    context.strokeStyle = palette.line;
    context.beginPath();
    context.moveTo(x, AXIS_PX - 6);
    context.lineTo(x, AXIS_PX);
    context.stroke();
    context.fillStyle = palette.muted;
    if (x + 60 < gutter + width) context.fillText(formatNs(tick, resolution), x + 3, AXIS_PX / 2);
  }
}

/** A line where each step begins, with its name at the top. */
function drawSteps(context: CanvasRenderingContext2D, overlay: Overlay): void {
  const { steps, window, width, gutter, palette, layout } = overlay;
  const height = Math.min(overlay.height, layout.total - overlay.scroll);
  context.font = "bold 11px sans-serif";
  context.textBaseline = "top";
  context.textAlign = "left";
  for (const { label, timeNs } of steps) {
    const x = pixelOf(timeNs, window, width);
    if (x < -1 || x > width) continue;
    const at = gutter + Math.round(x) + 0.5;
    context.strokeStyle = palette.text;
    context.setLineDash([4, 3]);
    context.beginPath();
    context.moveTo(at, 0);
    context.lineTo(at, height);
    context.stroke();
    context.setLineDash([]);
    const room = context.measureText(label).width;
    if (x + room + 8 > width) continue;
    context.fillStyle = palette.panel;
    context.fillRect(at + 1, 1, room + 6, 14);
    context.fillStyle = palette.text;
    context.fillText(label, at + 4, 3);
  }
}

function drawRows(context: CanvasRenderingContext2D, overlay: Overlay): void {
  const { layout, scroll, height, gutter, width, palette } = overlay;
  const [first, last] = visibleRows(layout, scroll, height);
  context.textBaseline = "middle";
  context.textAlign = "left";
  let lowest = -20;
  for (let row = first; row < last; row++) {
    const { kind, label, outlier, aside } = layout.rows[row];
    const [top, bottom] = barOf(layout, row, scroll);
    const beside = aside && layout.height[row] >= 24;
    const middle =
      kind === "stage"
        ? layout.top[row] + layout.height[row] / 2 - scroll
        : (top + bottom) / 2 - (beside ? 4 : 0);
    if (row === overlay.focusRow) {
      context.fillStyle = palette.selected;
      context.fillRect(0, layout.top[row] - scroll, 3, Math.max(2, layout.height[row]));
    }
    if (kind === "stage") {
      context.fillStyle = palette.line;
      context.fillRect(0, layout.top[row] - scroll, gutter + width, 1);
    }
    if (kind === "missing") hatchRow(context, overlay, row);
    const important = kind === "stage" || outlier || row === overlay.focusRow;
    if (detailOf(layout.height[row]) !== "labels" && !important) continue;
    if (middle < lowest + 11 && !(important && middle >= lowest + 9)) continue;
    context.font = `${kind === "stage" ? "bold " : ""}11px sans-serif`;
    context.fillStyle =
      outlier && kind !== "stage"
        ? palette.selected
        : kind === "rank"
          ? palette.text
          : palette.muted;
    const indent = kind === "stage" ? 6 : kind === "stream" ? 30 : kind === "rank" ? 20 : 14;
    context.fillText(cutText(context, label, gutter - indent - 6), indent, middle);
    if (beside) {
      context.fillStyle = palette.muted;
      context.font = "10px sans-serif";
      context.fillText(cutText(context, aside, gutter - indent - 6), indent, middle + 12);
    }
    lowest = middle;
  }
}

/** A rank that should be there and was not traced: an empty row that says so. */
function hatchRow(context: CanvasRenderingContext2D, overlay: Overlay, row: number): void {
  const { layout, scroll, gutter, width, palette } = overlay;
  const [top, height] = [layout.top[row] - scroll, layout.height[row]];
  context.save();
  context.beginPath();
  context.rect(gutter, top + 1, width, Math.max(1, height - 2));
  context.clip();
  context.strokeStyle = palette.line;
  for (let x = gutter - height; x < gutter + width; x += 9) {
    context.beginPath();
    context.moveTo(x, top + height);
    context.lineTo(x + height, top);
    context.stroke();
  }
  context.restore();
  if (height < 12) return;
  context.font = "11px sans-serif";
  context.fillStyle = palette.muted;
  context.fillText(overlay.missingLabel, gutter + 8, top + height / 2);
}

function cutText(context: CanvasRenderingContext2D, text: string, width: number): string {
  const short = text.length > 120 ? text.slice(0, 120) : text;
  if (short === text && context.measureText(short).width <= width) return short;
  let [low, high] = [0, short.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${short.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low === 0 ? "" : `${short.slice(0, low)}…`;
}

const LABEL_LEAST_PX = 34;
const NUMBER_LEAST_PX = 11;

/** Names of operators on rows that are tall enough, and the numbers of their micro-batches. */
function drawLabels(context: CanvasRenderingContext2D, overlay: Overlay): void {
  const { intervals, layout, scroll, window, width } = overlay;
  if (!intervals) return;
  context.font = "10.5px sans-serif";
  context.textBaseline = "middle";
  const scale = width / spanNs(window);
  for (let r = 0; r + 1 < intervals.begin.length; r++) {
    const row = intervals.firstRow + r;
    if (row >= layout.rows.length || detailOf(layout.height[row]) !== "labels") continue;
    const [top, bottom] = barOf(layout, row, scroll);
    if (bottom < 0 || top > overlay.height) continue;
    // Compute lies over what runs beside it: only what sticks out of it has room for a name, and only one of two.
    let named = 0;
    for (let i = intervals.begin[r]; i < intervals.begin[r + 1]; i++) {
      const above = isAbove(intervals.kind[i]);
      const start = Math.max(0, (intervals.startNs[i] - window.fromNs) * scale);
      const to = Math.min(width, (intervals.endNs[i] - window.fromNs) * scale);
      const from = above ? start : Math.max(start, coveredUntil(intervals, r, i, window, scale));
      if (to - from < NUMBER_LEAST_PX || (!above && from < named)) continue;
      if (!above) named = to;
      const number = overlay.microBatch ? overlay.microBatch[i] : -1;
      const prefix = number >= 0 ? `${number}` : "";
      const name = to - from >= LABEL_LEAST_PX ? shortenKernel(overlay.nameOf(i)) : "";
      const text = cutText(context, [prefix, name].filter(Boolean).join(" "), to - from - 4);
      context.fillStyle = isDarkKind(intervals.kind[i]) ? "#f4f7fa" : "#0e1217";
      context.fillText(text, from + 2, (top + bottom) / 2);
    }
  }
}

/** Where the compute that overlaps an interval ends: it begins before the interval does, or soon after. */
function coveredUntil(
  { begin, startNs, endNs, kind }: Intervals,
  r: number,
  interval: number,
  window: TimeWindow,
  scale: number,
): number {
  let until = startNs[interval];
  for (let i = interval - 1; i >= begin[r] && i >= interval - 8; i--)
    if (isAbove(kind[i])) until = Math.max(until, endNs[i]);
  for (let i = interval + 1; i < begin[r + 1] && startNs[i] < endNs[interval]; i++)
    if (isAbove(kind[i])) until = Math.max(until, endNs[i]);
  return (until - window.fromNs) * scale;
}

/** Kinds whose colour is dark enough to need a light label, in either theme. */
const isDarkKind = (kind: number): boolean => kind === 6 || kind === 7;

function drawMemory(context: CanvasRenderingContext2D, overlay: Overlay): void {
  const { layout, scroll, window, width, palette } = overlay;
  context.strokeStyle = palette.text;
  context.lineWidth = 1.2;
  for (const [row, line] of overlay.memory) {
    if (row < 0 || row >= layout.rows.length || layout.height[row] < 8 || line.mostBytes <= 0)
      continue;
    const [top, , next] = barOf(layout, row, scroll);
    context.beginPath();
    let drawn = 0;
    for (let i = 0; i < line.timeNs.length; i++) {
      const x = pixelOf(line.timeNs[i], window, width);
      const y = next - 1 - (line.bytes[i] / line.mostBytes) * (next - top - 2);
      if (drawn++ === 0) context.moveTo(x, y);
      else context.lineTo(x, y);
      // What was allocated last stays.
      if (i + 1 === line.timeNs.length) context.lineTo(Math.max(x, width), y);
    }
    context.stroke();
  }
  context.lineWidth = 1;
}

function drawMarked(context: CanvasRenderingContext2D, overlay: Overlay): void {
  if (!overlay.marked) return;
  const from = pixelOf(overlay.marked.fromNs, overlay.window, overlay.width);
  const to = pixelOf(overlay.marked.toNs, overlay.window, overlay.width);
  context.fillStyle = overlay.palette.accent;
  context.globalAlpha = 0.16;
  context.fillRect(from, 0, to - from, overlay.height);
  context.globalAlpha = 1;
  context.strokeStyle = overlay.palette.accent;
  context.strokeRect(Math.round(from) + 0.5, -1, Math.round(to - from), overlay.height + 2);
}

/** Outline the selected operator on every visible row, and join the outlines. */
function drawSelection(context: CanvasRenderingContext2D, overlay: Overlay): void {
  const { intervals, layout, scroll, window, width, operator } = overlay;
  if (!intervals || operator < 0) return;
  context.strokeStyle = overlay.palette.selected;
  context.lineWidth = 2;
  for (let r = 0; r + 1 < intervals.begin.length; r++) {
    const row = intervals.firstRow + r;
    const at = findOperator(intervals, row, operator);
    if (at < 0) continue;
    const [top, bottom] = barOf(layout, row, scroll);
    const from = pixelOf(intervals.startNs[at], window, width);
    const to = pixelOf(intervals.endNs[at], window, width);
    context.strokeRect(from, top + 0.5, Math.max(2, to - from), Math.max(1, bottom - top - 1));
  }
  context.lineWidth = 1;
}

/** A line through the moment under the pointer, with the error of that row's clock to both sides. */
function drawCursor(context: CanvasRenderingContext2D, overlay: Overlay): void {
  const { cursor, layout, scroll, window, width, height, palette } = overlay;
  if (!cursor) return;
  const x = pixelOf(cursor.timeNs, window, width);
  const row = layout.rows[cursor.row];
  const errorPx = row ? (row.clockErrorNs / spanNs(window)) * width : 0;
  context.fillStyle = palette.muted;
  context.globalAlpha = 0.22;
  if (errorPx >= 0.5) context.fillRect(x - errorPx, 0, 2 * errorPx, height);
  context.globalAlpha = 1;
  context.strokeStyle = palette.muted;
  context.beginPath();
  context.moveTo(Math.round(x) + 0.5, 0);
  context.lineTo(Math.round(x) + 0.5, height);
  context.stroke();
  if (!row || row.clockErrorNs <= 0) return;
  const y = layout.top[cursor.row] - scroll;
  context.font = "10.5px sans-serif";
  context.textBaseline = "bottom";
  context.fillStyle = palette.text;
  const text = `±${formatNs(row.clockErrorNs)}`;
  const right = x + 6 + context.measureText(text).width > width;
  context.textAlign = right ? "right" : "left";
  context.fillText(text, x + (right ? -5 : 5), Math.max(12, y));
  context.textAlign = "left";
}
