/** Draws an ensemble-Sankey: ribbons, nodes filled with the histogram of the ensemble, box plots, the target. */

import type { Rgb } from "@/base/colour";
import { interpolate } from "@/base/colour";
import type { PlacedFlow, PlacedNode, SankeyLayout } from "@/charts/sankey/layout";

export interface NodeFigures {
  name: string;
  label: string;
  /** Counts of profiles from low to high values. */
  counts: readonly number[];
  targetBin: number | null;
  box: { min: number; q1: number; median: number; q3: number; max: number; mean: number };
  outliers: number;
  ofTarget: number | null;
}

export interface SankeyStyle {
  ramp: readonly Rgb[];
  text: string;
  muted: string;
  ground: string;
  line: string;
  flow: string;
  target: string;
  selected: string;
  font: string;
}

export interface SankeyMarks {
  selected: number;
  hovered: number;
}

const BOX_FROM = 22;
const LABEL_FROM = 9;

/** Draw everything on a cleared canvas. */
export function drawSankey(
  context: CanvasRenderingContext2D,
  layout: SankeyLayout,
  figures: readonly NodeFigures[],
  style: SankeyStyle,
  marks: SankeyMarks,
): void {
  const touched = (flow: PlacedFlow) =>
    flow.flow.source === marks.hovered ||
    flow.flow.target === marks.hovered ||
    flow.flow.source === marks.selected ||
    flow.flow.target === marks.selected;
  for (const flow of layout.flows) {
    if (flow.loop) drawLoop(context, flow, style, touched(flow));
    else drawRibbon(context, flow, style, touched(flow));
  }
  for (const node of layout.nodes) {
    drawNode(context, node, figures[node.index], style);
    if (node.index === marks.selected || node.index === marks.hovered)
      outline(context, node, node.index === marks.selected ? style.selected : style.text);
  }
  drawLabels(context, layout, figures, style, marks);
}

function ribbon(
  context: CanvasRenderingContext2D,
  { x0, y0, x1, y1 }: PlacedFlow,
  thickness: number,
): void {
  const middle = (x0 + x1) / 2;
  context.beginPath();
  context.moveTo(x0, y0);
  context.bezierCurveTo(middle, y0, middle, y1, x1, y1);
  context.lineTo(x1, y1 + thickness);
  context.bezierCurveTo(middle, y1 + thickness, middle, y0 + thickness, x0, y0 + thickness);
  context.closePath();
  context.fill();
}

function drawRibbon(
  context: CanvasRenderingContext2D,
  flow: PlacedFlow,
  style: SankeyStyle,
  touched: boolean,
): void {
  context.globalAlpha = touched ? 0.6 : 0.26;
  context.fillStyle = style.flow;
  ribbon(context, flow, flow.thickness);
  if (flow.targetThickness > 0) {
    context.globalAlpha = touched ? 0.6 : 0.32;
    context.fillStyle = style.target;
    // The target's own width; wider than the ensemble's mean stays visible as an overhang of two pixels.
    ribbon(context, flow, Math.min(flow.targetThickness, flow.thickness + 2));
  }
  context.globalAlpha = 1;
}

/** A way back: dashed, above the nodes, with an arrow at its end. */
function drawLoop(
  context: CanvasRenderingContext2D,
  { x0, y0, x1, y1, thickness }: PlacedFlow,
  style: SankeyStyle,
  touched: boolean,
): void {
  const lift = 26 + Math.min(40, Math.abs(x0 - x1) * 0.08);
  context.save();
  context.globalAlpha = touched ? 1 : 0.6;
  context.strokeStyle = style.muted;
  context.fillStyle = style.muted;
  context.lineWidth = Math.max(1, thickness / 2);
  context.setLineDash([4, 3]);
  context.beginPath();
  context.moveTo(x0, y0);
  context.bezierCurveTo(x0 + lift, y0 - lift, x1 - lift, y1 - lift, x1 - 1, y1);
  context.stroke();
  context.setLineDash([]);
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x1 - 6, y1 - 5);
  context.lineTo(x1 - 6, y1 + 2);
  context.fill();
  context.restore();
}

/** A node: bands from the lowest value (top) to the highest, darker or lighter by how many profiles are there. */
function drawNode(
  context: CanvasRenderingContext2D,
  { x, y, width, height }: PlacedNode,
  figures: NodeFigures,
  style: SankeyStyle,
): void {
  const most = Math.max(1, ...figures.counts);
  const bins = Math.max(1, figures.counts.length);
  for (let bin = 0; bin < bins; bin++) {
    const [r, g, b] = interpolate(style.ramp, (figures.counts[bin] ?? 0) / most);
    context.fillStyle = `rgb(${r} ${g} ${b})`;
    context.fillRect(x, y + (height * bin) / bins, width, height / bins + 0.5);
  }
  context.strokeStyle = style.line;
  context.lineWidth = 1;
  context.strokeRect(x + 0.5, y + 0.5, width - 1, Math.max(0.5, height - 1));
  if (figures.targetBin !== null && height >= 6) {
    const at = y + (height * (figures.targetBin + 0.5)) / bins;
    context.fillStyle = style.target;
    context.fillRect(x - 3, at - 1.5, width + 6, 3);
  }
  if (height >= BOX_FROM && figures.counts.length > 0)
    drawBox(context, { x: x + width + 4, y, height }, figures, style);
}

/** A box plot beside the node, from its lowest to its highest value. */
function drawBox(
  context: CanvasRenderingContext2D,
  { x, y, height }: { x: number; y: number; height: number },
  { box, outliers, ofTarget }: NodeFigures,
  style: SankeyStyle,
): void {
  const span = box.max - box.min;
  if (!(span > 0)) return;
  const at = (value: number) => y + 2 + ((value - box.min) / span) * (height - 4);
  context.strokeStyle = style.text;
  context.fillStyle = style.ground;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(x + 3, at(box.min));
  context.lineTo(x + 3, at(box.max));
  context.stroke();
  context.fillRect(x, at(box.q1), 6, Math.max(1, at(box.q3) - at(box.q1)));
  context.strokeRect(x, at(box.q1), 6, Math.max(1, at(box.q3) - at(box.q1)));
  context.beginPath();
  context.moveTo(x, at(box.median));
  context.lineTo(x + 6, at(box.median));
  context.stroke();
  if (outliers > 0) {
    context.fillStyle = style.target;
    context.beginPath();
    context.arc(x + 3, at(box.max), 2.5, 0, 7);
    context.fill();
  }
  if (ofTarget !== null) {
    context.fillStyle = style.target;
    context.fillRect(x - 1, at(ofTarget) - 1, 8, 2);
  }
}

function outline(
  context: CanvasRenderingContext2D,
  { x, y, width, height }: PlacedNode,
  colour: string,
): void {
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.strokeRect(x - 2, y - 2, width + 4, height + 4);
}

function drawLabels(
  context: CanvasRenderingContext2D,
  layout: SankeyLayout,
  figures: readonly NodeFigures[],
  style: SankeyStyle,
  marks: SankeyMarks,
): void {
  context.font = style.font;
  context.textBaseline = "middle";
  const step = layout.columns > 1 ? (layout.width - layout.labels) / layout.columns : layout.width;
  // The last column has the margin of labels besides.
  const between = Math.max(40, step - 44);
  let [column, free] = [-1, 0];
  const rows = [...layout.nodes].sort((a, b) => a.column - b.column || a.y - b.y);
  for (const node of rows) {
    if (node.column !== column) [column, free] = [node.column, -Infinity];
    const marked = node.index === marks.selected || node.index === marks.hovered;
    const y = node.y + node.height / 2;
    if ((node.height < LABEL_FROM && y - 7 < free && !marked) || y - 6 < free) continue;
    free = y + 7;
    const x = node.x + node.width + (node.height >= BOX_FROM ? 15 : 6);
    const text = shortened(
      context,
      figures[node.index].label,
      node.column < layout.columns - 1 ? between : layout.width - x,
    );
    context.lineWidth = 3;
    context.strokeStyle = style.ground;
    context.strokeText(text, x, y);
    context.fillStyle = marked ? style.selected : style.text;
    context.fillText(text, x, y);
  }
}

/** The text, cut so that it fits; its end tells more than its middle. */
export function shortened(
  context: { measureText: (text: string) => { width: number } },
  text: string,
  room: number,
): string {
  if (context.measureText(text).width <= room) return text;
  let [low, high] = [1, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= room) low = middle;
    else high = middle - 1;
  }
  return `${text.slice(0, low)}…`;
}
