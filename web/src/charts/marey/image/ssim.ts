/** Structural similarity of two pictures (Wang et al., 2004) on luminance, in windows of 8 × 8 pixels. */

import type { Picture } from "@/charts/marey/image/picture";

const SIDE = 8;
const C1 = (0.01 * 255) ** 2;
const C2 = (0.03 * 255) ** 2;

/** Mean similarity, 1 for equal pictures. */
export function computeSsim(a: Picture, b: Picture): number {
  if (a.width !== b.width || a.height !== b.height) return 0;
  let [sum, count] = [0, 0];
  for (let y = 0; y + SIDE <= a.height; y += SIDE / 2)
    for (let x = 0; x + SIDE <= a.width; x += SIDE / 2) {
      sum += compareWindow(a, b, x, y);
      count++;
    }
  return count > 0 ? sum / count : 1;
}

function compareWindow(a: Picture, b: Picture, x: number, y: number): number {
  let [sumA, sumB, squareA, squareB, product] = [0, 0, 0, 0, 0];
  for (let j = y; j < y + SIDE; j++)
    for (let i = x; i < x + SIDE; i++) {
      const u = luminance(a.pixels[j * a.width + i]);
      const v = luminance(b.pixels[j * b.width + i]);
      sumA += u;
      sumB += v;
      squareA += u * u;
      squareB += v * v;
      product += u * v;
    }
  const n = SIDE * SIDE;
  const [meanA, meanB] = [sumA / n, sumB / n];
  const covariance = product / n - meanA * meanB;
  const variance = squareA / n - meanA * meanA + squareB / n - meanB * meanB;
  const means = (2 * meanA * meanB + C1) / (meanA * meanA + meanB * meanB + C1);
  return means * ((2 * covariance + C2) / (variance + C2));
}

const luminance = (colour: number): number =>
  0.299 * (colour & 255) + 0.587 * ((colour >> 8) & 255) + 0.114 * ((colour >> 16) & 255);
