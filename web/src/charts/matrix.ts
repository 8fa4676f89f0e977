/** A matrix of values as colours: rank × step, who made whom wait, traffic between ranks. */

import { interpolate, packed } from "@/base/colour";
import type { Rgb } from "@/base/colour";
import type { Picture } from "@/charts/marey/image/picture";

export interface Matrix {
  rows: number;
  columns: number;
  /** Row by row; NaN where there is nothing. */
  values: Float64Array;
}

/** Least and greatest value that there is. */
export function rangeOf({ values }: Matrix): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [0, 0];
}

/**
 * Paint a matrix over the whole picture. Where several cells share a pixel the greatest is shown, so that one that
 * stands out never vanishes.
 */
export function paintMatrix(
  matrix: Matrix,
  picture: Picture,
  scheme: readonly Rgb[],
  [low, high]: readonly [number, number],
): void {
  const colours = Uint32Array.from({ length: 256 }, (_, i) => packed(interpolate(scheme, i / 255)));
  const scale = high > low ? 255 / (high - low) : 0;
  for (let y = 0; y < picture.height; y++) {
    const [top, bottom] = cellSpan(y, picture.height, matrix.rows);
    for (let x = 0; x < picture.width; x++) {
      const [left, right] = cellSpan(x, picture.width, matrix.columns);
      let most = NaN;
      for (let r = top; r < bottom; r++)
        for (let c = left; c < right; c++) {
          const value = matrix.values[r * matrix.columns + c];
          if (!(value <= most)) most = Number.isNaN(value) ? most : value;
        }
      if (Number.isNaN(most)) continue;
      const place = Math.min(255, Math.max(0, Math.round((most - low) * scale)));
      picture.pixels[y * picture.width + x] = colours[place];
    }
  }
}

/** The cells that a pixel covers: at least one. */
function cellSpan(pixel: number, pixels: number, cells: number): [number, number] {
  const first = Math.floor((pixel * cells) / pixels);
  return [first, Math.max(first + 1, Math.floor(((pixel + 1) * cells) / pixels))];
}

/** The cell at a share of the width and height, or null outside. */
export function cellAt(
  { rows, columns }: Matrix,
  x: number,
  y: number,
): { row: number; column: number } | null {
  if (x < 0 || y < 0 || x >= 1 || y >= 1) return null;
  return { row: Math.floor(y * rows), column: Math.floor(x * columns) };
}

/** Rows or columns that are named beside a matrix: the first, then each that stands far enough from the one before. */
export function chooseTicks(count: number, px: number, room: number): number[] {
  const each = px / Math.max(1, count);
  const by = [1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 50, 64].find((one) => one * each >= room);
  const step = by ?? Math.max(1, 100 * Math.ceil(room / Math.max(1e-9, each) / 100));
  return Array.from({ length: Math.ceil(count / step) }, (_, i) => i * step);
}
