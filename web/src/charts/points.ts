/** A plain scatter plot with a lasso: points in a plane, chosen by drawing round them. */

import { ticks } from "@/charts/scatter";

export interface Point {
  x: number;
  y: number;
}

export interface PointsFrame {
  left: number;
  top: number;
  width: number;
  height: number;
  x: (value: number) => number;
  y: (value: number) => number;
}

export interface PointsStyle {
  text: string;
  line: string;
  selected: string;
  font: string;
}

const MARGIN = { left: 74, top: 8, right: 10, bottom: 34 };

/** Scales that hold every point, with a little air; `square` keeps one scale for both axes. */
export function pointsFrame(points: readonly Point[], width: number, height: number): PointsFrame {
  const [inner, outer] = [width - MARGIN.left - MARGIN.right, height - MARGIN.top - MARGIN.bottom];
  const [xLow, xHigh] = extent(points.map((point) => point.x));
  const [yLow, yHigh] = extent(points.map((point) => point.y));
  return {
    left: MARGIN.left,
    top: MARGIN.top,
    width: inner,
    height: outer,
    x: (value) => MARGIN.left + ((value - xLow) / (xHigh - xLow)) * inner,
    y: (value) => MARGIN.top + outer - ((value - yLow) / (yHigh - yLow)) * outer,
  };
}

function extent(values: readonly number[]): [number, number] {
  const known = values.filter(Number.isFinite);
  if (known.length === 0) return [0, 1];
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const air = (high - low || Math.abs(high) || 1) * 0.05;
  return [low - air, high + air];
}

/** Draw axes and points. */
export function drawPoints(
  context: CanvasRenderingContext2D,
  frame: PointsFrame,
  points: readonly Point[],
  labels: { x: string; y: string; tick: (value: number) => string },
  style: PointsStyle & {
    colour: (index: number) => string;
    chosen: (index: number) => boolean;
    radius: number;
  },
): void {
  drawAxes(context, frame, points, labels, style);
  points.forEach((point, i) => {
    if (!Number.isFinite(point.x) || !Number.isFinite(point.y)) return;
    context.beginPath();
    context.arc(frame.x(point.x), frame.y(point.y), style.radius, 0, 7);
    context.globalAlpha = 0.8;
    context.fillStyle = style.colour(i);
    context.fill();
    context.globalAlpha = 1;
    if (!style.chosen(i)) return;
    context.strokeStyle = style.selected;
    context.lineWidth = 2;
    context.stroke();
  });
}

function drawAxes(
  context: CanvasRenderingContext2D,
  frame: PointsFrame,
  points: readonly Point[],
  labels: { x: string; y: string; tick: (value: number) => string },
  style: PointsStyle,
): void {
  context.font = style.font;
  context.fillStyle = style.text;
  context.strokeStyle = style.line;
  context.lineWidth = 1;
  context.strokeRect(frame.left + 0.5, frame.top + 0.5, frame.width, frame.height);
  const [xs, ys] = [extent(points.map((p) => p.x)), extent(points.map((p) => p.y))];
  context.textAlign = "center";
  context.textBaseline = "top";
  const edge = frame.left + frame.width + MARGIN.right;
  for (const value of ticks(...xs, Math.max(2, frame.width / 90))) {
    const text = labels.tick(value);
    const half = context.measureText(text).width / 2;
    context.fillText(text, Math.min(frame.x(value), edge - half), frame.top + frame.height + 4);
  }
  context.fillText(labels.x, frame.left + frame.width / 2, frame.top + frame.height + 19);
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const value of ticks(...ys, Math.max(2, frame.height / 50)))
    context.fillText(labels.tick(value), frame.left - 5, frame.y(value));
  context.save();
  context.translate(8, frame.top + frame.height / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.fillText(labels.y, 0, 0);
  context.restore();
  context.textAlign = "left";
}

/** Whether a point lies inside a polygon (even-odd rule). */
export function insideLasso(lasso: readonly Point[], { x, y }: Point): boolean {
  let inside = false;
  for (let i = 0, j = lasso.length - 1; i < lasso.length; j = i++) {
    const [a, b] = [lasso[i], lasso[j]];
    if (a.y > y !== b.y > y && x < ((b.x - a.x) * (y - a.y)) / (b.y - a.y) + a.x) inside = !inside;
  }
  return inside;
}
