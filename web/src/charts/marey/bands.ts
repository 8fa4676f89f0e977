/**
 * Bands: an operator's interval on a row, joined to the same operator's interval on the next row.
 *
 * An upright band is in step, a slanted one skewed, a flared one slower on one of the two. Bars and the quadrilaterals
 * between them are rasterised here line by line into pixels: nothing is handed to a path or a vertex buffer, so that
 * the cost grows with visible pixels. Bands that do not move by a pixel are drawn once per gap and copied down.
 */

import { BAR, barOf, mixed } from "@/charts/marey/cells";
import { CoverageLine } from "@/charts/marey/coverage";
import { isAbove, isUnder } from "@/charts/marey/kinds";
import type { Picture } from "@/charts/marey/image/picture";
import type { RowLayout } from "@/charts/marey/rows";
import { CELLS_BELOW_PX, LABELS_FROM_PX } from "@/charts/marey/rows";
import type { TimeWindow } from "@/charts/marey/window";
import { spanNs } from "@/charts/marey/window";

/** Intervals of the visible rows, grouped by row; times count from where the window's zero is. */
export interface Intervals {
  /** Intervals of row r stand from `begin[r]` to `begin[r + 1]`, rows counted from `firstRow`. */
  begin: Int32Array;
  firstRow: number;
  startNs: Float64Array;
  endNs: Float64Array;
  kind: Uint8Array;
  /** Identity of the operator, equal across ranks and unique within a row; −1 where there is none. */
  operator: Int32Array;
  operators: number;
}

export interface BandPaint {
  picture: Picture;
  layout: RowLayout;
  scroll: number;
  window: TimeWindow;
  kinds: Uint32Array;
  grey: number;
  ground: number;
  /** One per interval: 0 is drawn pale because it is not part of the selection. */
  chosen?: Uint8Array | null;
}

/** How strong a band is between two bars. */
const BAND_WEIGHT = 0.5;
const PALE = 0.22;
/** Bands that move less than this between two rows are upright. */
const UPRIGHT_PX = 0.75;

/** Draw the bars of all rows and the bands between neighbours of one group. */
export function paintBands(intervals: Intervals, paint: BandPaint): void {
  const lines: Lines = {
    under: new CoverageLine(paint.picture.width),
    below: new CoverageLine(paint.picture.width),
    above: new CoverageLine(paint.picture.width),
    place: new Int32Array(intervals.operators + 1).fill(-1),
  };
  const rows = intervals.begin.length - 1;
  for (let r = 0; r < rows; r++) {
    const row = intervals.firstRow + r;
    if (paint.layout.height[row] < CELLS_BELOW_PX) continue;
    paintBar(intervals, r, paint, lines);
    if (r + 1 < rows && joins(paint.layout, row)) paintGap(intervals, r, paint, lines);
  }
}

/** Lines that are laid over each other: kinds that share one are mixed where they overlap. */
interface Lines {
  under: CoverageLine;
  below: CoverageLine;
  above: CoverageLine;
  /** For each operator, where it stands on the next row. */
  place: Int32Array;
}

function lineOf(lines: Lines, kind: number): CoverageLine {
  return isAbove(kind) ? lines.above : isUnder(kind) ? lines.under : lines.below;
}

function clearLines({ under, below, above }: Lines): void {
  for (const line of [under, below, above]) line.clear();
}

/** Whether bands may be drawn from a row to the next one. */
export function joins(layout: RowLayout, row: number): boolean {
  const [here, next] = [layout.rows[row], layout.rows[row + 1]];
  return (
    next !== undefined &&
    here.group === next.group &&
    [here, next].every(({ kind }) => kind === "rank" || kind === "cluster" || kind === "stream")
  );
}

function paintBar(intervals: Intervals, r: number, paint: BandPaint, lines: Lines): void {
  const { picture, window } = paint;
  const [top, bottom] = barOf(paint.layout, intervals.firstRow + r, paint.scroll);
  const scale = picture.width / spanNs(window);
  const { startNs, endNs, kind } = intervals;
  clearLines(lines);
  for (let i = intervals.begin[r]; i < intervals.begin[r + 1]; i++) {
    const weight = paint.chosen && !paint.chosen[i] ? PALE : 1;
    lineOf(lines, kind[i]).add(
      (startNs[i] - window.fromNs) * scale,
      (endNs[i] - window.fromNs) * scale,
      paint.kinds[kind[i]],
      weight,
    );
  }
  // In a tall row compute leaves the lower part free, so that what runs beside it is seen.
  const tall = bottom - top >= LABELS_FROM_PX * BAR;
  const beside = tall ? top + Math.round((bottom - top) * 0.65) : bottom;
  spread(picture, [lines.under, lines.below, lines.above], top, beside);
  spread(picture, [lines.above, lines.under, lines.below], beside, bottom);
}

/** Lay lines over every row of pixels between two heights. */
function spread(
  picture: Picture,
  lines: readonly CoverageLine[],
  top: number,
  bottom: number,
): void {
  const end = Math.min(picture.height, bottom);
  for (let y = Math.max(0, top); y < end; y++)
    for (const line of lines) line.over(picture.pixels, y * picture.width);
}

/** Slanted bands of one gap: where they begin and end above and below, in pixels. */
interface Slants {
  count: number;
  edges: Float64Array;
  colour: Uint32Array;
  weight: Float32Array;
  kind: Uint8Array;
}

function paintGap(intervals: Intervals, r: number, paint: BandPaint, lines: Lines): void {
  const [, top, bottom] = barOf(paint.layout, intervals.firstRow + r, paint.scroll);
  if (bottom <= top || bottom <= 0 || top >= paint.picture.height) return;
  paintGround(intervals.firstRow + r, paint, lines);
  const slants = findSlants(intervals, r, paint, lines);
  spread(paint.picture, [lines.under, lines.below, lines.above], top, bottom);
  if (slants.count === 0) return;
  for (let y = Math.max(0, top); y < Math.min(paint.picture.height, bottom); y++)
    paintSlants(slants, (y + 0.5 - top) / (bottom - top), y, paint.picture, lines);
}

/** Carry what is too narrow for bands of its own through the gap, where both rows show the same. */
function paintGround(row: number, paint: BandPaint, lines: Lines): void {
  const { width, height, pixels } = paint.picture;
  const [here, top, bottom] = barOf(paint.layout, row, paint.scroll);
  if (here < 0 || bottom >= height) return;
  for (let x = 0; x < width; x++) {
    const colour = pixels[here * width + x];
    if (colour === paint.ground || colour !== pixels[bottom * width + x]) continue;
    if (lines.under.covers(x) || lines.below.covers(x) || lines.above.covers(x)) continue;
    const pale = mixed(colour, paint.ground, 255 * BAND_WEIGHT);
    for (let y = Math.max(0, top); y < bottom; y++) pixels[y * width + x] = pale;
  }
}

/** Put upright bands of a gap onto the two lines and return those that slant. */
function findSlants(intervals: Intervals, r: number, paint: BandPaint, lines: Lines): Slants {
  const { begin, startNs, endNs, kind, operator } = intervals;
  const { layout, window, picture } = paint;
  const row = intervals.firstRow + r;
  const scale = picture.width / spanNs(window);
  const errorPx = (layout.rows[row].clockErrorNs + layout.rows[row + 1].clockErrorNs) * scale;
  const size = begin[r + 1] - begin[r];
  const slants: Slants = {
    count: 0,
    edges: new Float64Array(size * 4),
    colour: new Uint32Array(size),
    weight: new Float32Array(size),
    kind: new Uint8Array(size),
  };
  clearLines(lines);
  for (let i = begin[r + 1]; i < begin[r + 2]; i++)
    if (operator[i] >= 0) lines.place[operator[i]] = i;
  for (let i = begin[r]; i < begin[r + 1]; i++) {
    const other = operator[i] < 0 ? -1 : lines.place[operator[i]];
    if (other < begin[r + 1] || other >= begin[r + 2]) continue;
    const a = (startNs[i] - window.fromNs) * scale;
    const b = (endNs[i] - window.fromNs) * scale;
    const c = (startNs[other] - window.fromNs) * scale;
    const d = (endNs[other] - window.fromNs) * scale;
    if (Math.max(b, d) <= 0 || Math.min(a, c) >= picture.width) continue;
    const weight = BAND_WEIGHT * (paint.chosen && !paint.chosen[i] ? PALE : 1);
    const slant = Math.max(Math.abs(a - c), Math.abs(b - d));
    if (slant < UPRIGHT_PX) {
      lineOf(lines, kind[i]).add((a + c) / 2, (b + d) / 2, paint.kinds[kind[i]], weight);
      continue;
    }
    const at = slants.count++;
    slants.edges[at * 4] = a;
    slants.edges[at * 4 + 1] = b;
    slants.edges[at * 4 + 2] = c;
    slants.edges[at * 4 + 3] = d;
    slants.colour[at] = slant <= errorPx ? paint.grey : paint.kinds[kind[i]];
    slants.weight[at] = weight;
    slants.kind[at] = kind[i];
  }
  for (let i = begin[r + 1]; i < begin[r + 2]; i++)
    if (operator[i] >= 0) lines.place[operator[i]] = -1;
  return slants;
}

function paintSlants(
  { count, edges, colour, weight, kind }: Slants,
  share: number,
  y: number,
  picture: Picture,
  lines: Lines,
): void {
  clearLines(lines);
  for (let i = 0; i < count; i++) {
    const at = i * 4;
    const from = edges[at] + (edges[at + 2] - edges[at]) * share;
    const to = edges[at + 1] + (edges[at + 3] - edges[at + 1]) * share;
    lineOf(lines, kind[i]).add(from, to, colour[i], weight[i]);
  }
  for (const line of [lines.under, lines.below, lines.above])
    line.over(picture.pixels, y * picture.width);
}
