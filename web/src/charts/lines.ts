/** Lines over a shared plane: the curves of several runs, or of call sites over a parameter. */

import { ticks } from "@/charts/scatter";

export interface Line {
  x: readonly (number | null)[];
  y: readonly (number | null)[];
  colour: string;
}

export interface LineAxes {
  x: string;
  y: string;
  /** Both axes logarithmic; values that are not positive are left out. */
  logarithmic?: boolean;
  /** Where the x axis is marked; round values unless given. */
  marks?: readonly number[];
  formatY?: (value: number) => string;
}

const MARGIN = { left: 56, top: 8, right: 12, bottom: 34 };

/** Draw axes and lines on a cleared canvas. */
export function drawLines(
  context: CanvasRenderingContext2D,
  lines: readonly Line[],
  size: { width: number; height: number },
  axes: LineAxes,
  style: { text: string; line: string; font: string },
): void {
  const log = axes.logarithmic ?? false;
  const [xLow, xHigh] = extent(
    lines.flatMap((line) => line.x),
    log,
  );
  const [yLow, yHigh] = extent(
    lines.flatMap((line) => line.y),
    log,
  );
  const [width, height] = [
    size.width - MARGIN.left - MARGIN.right,
    size.height - MARGIN.top - MARGIN.bottom,
  ];
  const x = (value: number) => MARGIN.left + share(value, xLow, xHigh, log) * width;
  const y = (value: number) => MARGIN.top + height - share(value, yLow, yHigh, log) * height;
  context.font = style.font;
  context.fillStyle = style.text;
  context.strokeStyle = style.line;
  context.strokeRect(MARGIN.left + 0.5, MARGIN.top + 0.5, width, height);
  context.textAlign = "center";
  for (const value of axes.marks ?? ticks(xLow, xHigh, Math.max(2, width / 90)))
    context.fillText(short(value), x(value), MARGIN.top + height + 14);
  context.fillText(axes.x, MARGIN.left + width / 2, MARGIN.top + height + 29);
  context.textAlign = "right";
  const marks = log ? powers(yLow, yHigh) : ticks(yLow, yHigh, Math.max(2, height / 50));
  for (const value of marks)
    context.fillText((axes.formatY ?? short)(value), MARGIN.left - 5, y(value) + 4);
  context.textAlign = "left";
  context.fillText(axes.y, MARGIN.left + 6, MARGIN.top + 14);
  for (const line of lines) {
    context.strokeStyle = line.colour;
    context.lineWidth = 1.5;
    context.beginPath();
    line.x.forEach((value, i) => {
      const other = line.y[i];
      if (isShown(value, log) && isShown(other, log)) context.lineTo(x(value), y(other));
    });
    context.stroke();
  }
}

/** Where a value lies between two ends, from 0 to 1. */
export function share(value: number, low: number, high: number, log: boolean): number {
  return log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
}

/** Powers of ten between two ends; the ends themselves where there are fewer than two. */
export function powers(low: number, high: number): number[] {
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  if (last - first < 1) return [low, high];
  return Array.from({ length: last - first + 1 }, (_, n) => 10 ** (first + n));
}

function isShown(value: number | null, log: boolean): value is number {
  return value !== null && Number.isFinite(value) && (!log || value > 0);
}

function extent(values: readonly (number | null)[], log: boolean): [number, number] {
  const known = values.filter((value): value is number => isShown(value, log));
  if (known.length === 0) return log ? [1, 10] : [0, 1];
  let [low, high] = [known[0], known[0]];
  for (const value of known) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (high > low) return [low, high];
  return log ? [low / 2, low * 2] : [low, low + 1];
}

function short(value: number): string {
  return Number(value.toPrecision(4)).toLocaleString("en", { notation: "compact" });
}
