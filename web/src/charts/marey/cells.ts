/** Cells: what ranks do in each slice of time, as the server counted it, painted pixel by pixel. */

import type { Palette } from "@/charts/marey/kinds";
import type { Picture } from "@/charts/marey/image/picture";
import type { RowLayout } from "@/charts/marey/rows";
import type { TimeWindow } from "@/charts/marey/window";
import { spanNs } from "@/charts/marey/window";

/** A grid of lines × slices. A line stands for one rank or several neighbours in the order asked for. */
export interface Cells extends TimeWindow {
  lines: number;
  bins: number;
  /** Ranks that the grid covers; line r shows those at the places from `bounds[r]` to `bounds[r + 1]`. */
  ranks: number;
  bounds: Uint32Array;
  /** `kind << 4 | level`: what fills most of the cell, and how much of it in fifteenths. */
  kinds: Uint8Array;
  /** How much of the cell the most unusual rank of the line does something else than its peers, 0 to 255. */
  deviations: Uint8Array;
}

const HEAD_BYTES = 40;

/** Read the server's picture of cells; null where the bytes are not one. */
export function decodeCells(buffer: ArrayBuffer): Cells | null {
  const view = new DataView(buffer);
  if (buffer.byteLength < HEAD_BYTES || view.getUint32(0, false) !== 0x4d43454c) return null;
  const [lines, bins] = [view.getUint32(8, true), view.getUint32(12, true)];
  const size = lines * bins;
  const planes = HEAD_BYTES + 4 * (lines + 1);
  if (view.getUint16(4, true) !== 1 || buffer.byteLength < planes + 2 * size) return null;
  return {
    lines,
    bins,
    fromNs: Number(view.getBigInt64(16, true)),
    toNs: Number(view.getBigInt64(24, true)),
    ranks: view.getUint32(32, true),
    bounds: new Uint32Array(buffer, HEAD_BYTES, lines + 1),
    kinds: new Uint8Array(buffer, planes, size),
    deviations: new Uint8Array(buffer, planes + size, size),
  };
}

/** The line of the grid that shows the rank at a place in the order. */
export function lineOf({ lines, bounds }: Cells, place: number): number {
  let [low, high] = [0, lines - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (bounds[middle] <= place) low = middle;
    else high = middle - 1;
  }
  return low;
}

export interface CellPaint {
  picture: Picture;
  layout: RowLayout;
  scroll: number;
  window: TimeWindow;
  palette: Palette;
}

/** Share of a row's height that a bar takes; the rest is the gap to the next row. */
export const BAR = 0.6;

/** Heights of a row's bar on the picture: from, to, and where the next row begins. */
export function barOf(layout: RowLayout, row: number, scroll: number): [number, number, number] {
  const top = Math.round(layout.top[row] - scroll);
  const next = Math.max(top + 1, Math.round(layout.top[row] + layout.height[row] - scroll));
  const height = next - top;
  return [top, height < 3 ? next : top + Math.max(1, Math.round(height * BAR)), next];
}

/**
 * Paint the cells of rows; `places` says where each row of the layout stands in the grid (−1: nowhere).
 *
 * A grid of another window is stretched to this one, so that something stands there while the right one is on its way.
 * Rows that share a line of pixels keep the most unusual of them: the larger deviation wins, pixel by pixel.
 */
export function paintCells(
  cells: Cells,
  places: Int32Array,
  paint: CellPaint,
  [first, last]: readonly [number, number],
): void {
  const { picture, layout, scroll } = paint;
  const binOf = findBins(cells, paint.window, picture.width);
  const colours = cellColours(paint.palette);
  const marks = deviationColours(paint.palette, colours);
  const line = new Uint32Array(picture.width);
  const worst = new Uint8Array(picture.width);
  let shown = -1;
  let paintedTop = -1;
  for (let row = first; row < last; row++) {
    if (places[row] < 0) continue;
    const [top, bottom] = barOf(layout, row, scroll);
    const at = lineOf(cells, places[row]);
    const merged = cells.ranks > cells.lines || layout.height[row] < 1;
    if (top !== paintedTop) {
      worst.fill(0);
      shown = -1;
    }
    if (at !== shown)
      fillLine(line, worst, cells.kinds, cells.deviations, {
        base: at * cells.bins,
        binOf,
        colours,
        marks: merged ? marks : null,
        fresh: top !== paintedTop,
        ground: paint.palette.ground,
      });
    copyRows(picture, line, top, bottom);
    [shown, paintedTop] = [at, top];
  }
}

function copyRows(picture: Picture, line: Uint32Array, top: number, bottom: number): void {
  const end = Math.min(picture.height, bottom);
  for (let y = Math.max(0, top); y < end; y++) picture.pixels.set(line, y * picture.width);
}

/** The slice of each pixel, −1 where the grid does not reach. */
function findBins(cells: Cells, window: TimeWindow, width: number): Int32Array {
  const bins = new Int32Array(width);
  const perPixel = spanNs(window) / width;
  const perBin = spanNs(cells) / cells.bins;
  for (let x = 0; x < width; x++) {
    const time = window.fromNs + (x + 0.5) * perPixel;
    const bin = Math.floor((time - cells.fromNs) / perBin);
    bins[x] = bin >= 0 && bin < cells.bins ? bin : -1;
  }
  return bins;
}

interface LineFill {
  base: number;
  binOf: Int32Array;
  colours: Uint32Array;
  marks: Uint32Array | null;
  /** Whether nothing stands on this line of pixels yet. */
  fresh: boolean;
  ground: number;
}

function fillLine(
  line: Uint32Array,
  worst: Uint8Array,
  kinds: Uint8Array,
  deviations: Uint8Array,
  { base, binOf, colours, marks, fresh, ground }: LineFill,
): void {
  for (let x = 0; x < line.length; x++) {
    const bin = binOf[x];
    if (bin < 0) {
      if (fresh) line[x] = ground;
      continue;
    }
    const deviation = deviations[base + bin];
    if (!fresh && deviation <= worst[x]) continue;
    worst[x] = deviation;
    const kind = kinds[base + bin];
    line[x] = marks && deviation > 0 ? marks[(deviation >> 4) * 256 + kind] : colours[kind];
  }
}

/** Colours of all 256 combinations of kind and level. */
function cellColours({ kinds, ground }: Palette): Uint32Array {
  return Uint32Array.from({ length: 256 }, (_, code) => {
    const colour = kinds[Math.min(kinds.length - 1, code >> 4)];
    return mixed(colour, ground, 70 + ((code & 15) * 185) / 15);
  });
}

/** The same, laid under the colour of deviations in sixteen strengths. */
function deviationColours({ deviation }: Palette, colours: Uint32Array): Uint32Array {
  return Uint32Array.from({ length: 16 * 256 }, (_, i) =>
    mixed(deviation, colours[i & 255], ((i >> 8) * 235) / 15),
  );
}

/** A colour laid over another, `share` of 255 of it. */
export function mixed(colour: number, ground: number, share: number): number {
  if (share >= 255) return colour;
  const rest = 255 - share;
  const r = ((colour & 255) * share + (ground & 255) * rest) / 255;
  const g = (((colour >> 8) & 255) * share + ((ground >> 8) & 255) * rest) / 255;
  const b = (((colour >> 16) & 255) * share + ((ground >> 16) & 255) * rest) / 255;
  return (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
}
