/** Lines over a shared plane: the curves of several runs. */

import { ticks } from "@/charts/scatter";

export interface Line {
  x: readonly (number | null)[];
  y: readonly (number | null)[];
  colour: string;
}

const MARGIN = { left: 48, top: 8, right: 12, bottom: 34 };

/** Draw axes and lines on a cleared canvas. */
export function drawLines(
  context: CanvasRenderingContext2D,
  lines: readonly Line[],
  size: { width: number; height: number },
  labels: { x: string; y: string },
  style: { text: string; line: string; font: string },
): void {
  const [xLow, xHigh] = extent(lines.flatMap((line) => line.x));
  const [yLow, yHigh] = extent(lines.flatMap((line) => line.y));
  const [width, height] = [
    size.width - MARGIN.left - MARGIN.right,
    size.height - MARGIN.top - MARGIN.bottom,
  ];
  const x = (value: number) => MARGIN.left + ((value - xLow) / (xHigh - xLow)) * width;
  const y = (value: number) => MARGIN.top + height - ((value - yLow) / (yHigh - yLow)) * height;
  context.font = style.font;
  context.fillStyle = style.text;
  context.strokeStyle = style.line;
  context.strokeRect(MARGIN.left + 0.5, MARGIN.top + 0.5, width, height);
  context.textAlign = "center";
  for (const value of ticks(xLow, xHigh, Math.max(2, width / 90)))
    context.fillText(short(value), x(value), MARGIN.top + height + 14);
  context.fillText(labels.x, MARGIN.left + width / 2, MARGIN.top + height + 29);
  context.textAlign = "right";
  for (const value of ticks(yLow, yHigh, Math.max(2, height / 50)))
    context.fillText(short(value), MARGIN.left - 5, y(value) + 4);
  context.textAlign = "left";
  context.fillText(labels.y, MARGIN.left + 6, MARGIN.top + 14);
  for (const line of lines) {
    context.strokeStyle = line.colour;
    context.lineWidth = 1.5;
    context.beginPath();
    line.x.forEach((value, i) => {
      const other = line.y[i];
      if (value !== null && other !== null) context.lineTo(x(value), y(other));
    });
    context.stroke();
  }
}

function extent(values: readonly (number | null)[]): [number, number] {
  const known = values.filter((value): value is number => value !== null && Number.isFinite(value));
  if (known.length === 0) return [0, 1];
  let [low, high] = [known[0], known[0]];
  for (const value of known) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return high > low ? [low, high] : [low, low + 1];
}

function short(value: number): string {
  return Number(value.toPrecision(4)).toLocaleString("en", { notation: "compact" });
}
