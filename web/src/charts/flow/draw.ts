/** Draws an execution flow that was laid out: nodes with their stacks and sharding, edges by evidence, a minimap. */

import type { Theme } from "@/base/colour";
import { continuousScheme, interpolate } from "@/base/colour";
import type { FlowLayout } from "@/charts/flow/layout";
import { NODE_HEIGHT, NODE_WIDTH } from "@/charts/flow/layout";
import type { Sharding, ShownFlow } from "@/charts/flow/visible";
import type { Palette } from "@/charts/marey/kinds";

/** What part of the plane is seen: the point at the upper left corner, and pixels per unit. */
export interface FlowCamera {
  x: number;
  y: number;
  scale: number;
}

export interface FlowDrawing {
  flow: ShownFlow;
  layout: FlowLayout;
  camera: FlowCamera;
  width: number;
  height: number;
  palette: Palette;
  theme: Theme;
  /** Values that colour the nodes, and the largest of them. */
  values: Float64Array;
  most: number;
  selected: number;
  found: ReadonlySet<number>;
  showQuiet: boolean;
  laneLabel: (lane: number) => string;
  nodeLabel: (node: number) => string;
}

/** Draw the flow into a context that is scaled to CSS pixels. */
export function drawFlow(context: CanvasRenderingContext2D, drawing: FlowDrawing): void {
  const { camera, width, height } = drawing;
  context.clearRect(0, 0, width, height);
  context.save();
  context.scale(camera.scale, camera.scale);
  context.translate(-camera.x, -camera.y);
  drawLanes(context, drawing);
  drawEdges(context, drawing);
  const seen = seenNodes(drawing);
  for (const node of seen) drawNode(context, drawing, node);
  context.restore();
  drawLaneLabels(context, drawing);
}

/** Nodes that the camera sees. */
export function seenNodes({ layout, camera, width, height }: FlowDrawing): number[] {
  const seen: number[] = [];
  const right = camera.x + width / camera.scale + NODE_WIDTH;
  const bottom = camera.y + height / camera.scale + NODE_HEIGHT;
  for (let node = 0; node < layout.x.length; node++) {
    const [x, y] = [layout.x[node], layout.y[node]];
    if (x < camera.x - NODE_WIDTH || x > right) continue;
    if (y < camera.y - NODE_HEIGHT || y > bottom) continue;
    seen.push(node);
  }
  return seen;
}

function drawLanes(context: CanvasRenderingContext2D, drawing: FlowDrawing): void {
  const { layout, palette } = drawing;
  context.strokeStyle = palette.line;
  context.lineWidth = 1 / drawing.camera.scale;
  for (let lane = 1; lane + 1 < layout.laneTop.length; lane++) {
    context.beginPath();
    context.moveTo(-1e4, layout.laneTop[lane]);
    context.lineTo(layout.width + 1e4, layout.laneTop[lane]);
    context.stroke();
  }
}

const NARROW_PX = 640;

/** Width of the column that names the lanes. */
const gutterPx = (width: number): number => (width < NARROW_PX ? 92 : 160);

function drawLaneLabels(context: CanvasRenderingContext2D, drawing: FlowDrawing): void {
  const { layout, camera, palette, height } = drawing;
  const gutter = gutterPx(drawing.width);
  context.fillStyle = palette.panel;
  context.globalAlpha = 0.86;
  context.fillRect(0, 0, gutter, height);
  context.globalAlpha = 1;
  context.font = drawing.width < NARROW_PX ? "10px sans-serif" : "12px sans-serif";
  context.textBaseline = "top";
  context.fillStyle = palette.muted;
  let last = -20;
  for (let lane = 0; lane + 1 < layout.laneTop.length; lane++) {
    const y = Math.max(4, (layout.laneTop[lane] - camera.y) * camera.scale + 5);
    const end = (layout.laneTop[lane + 1] - camera.y) * camera.scale;
    if (end < 20 || y > height || y < last + 14) continue;
    context.fillText(fitText(context, drawing.laneLabel(lane), gutter - 10), 6, y);
    last = y;
  }
}

export const DASHES: Record<string, number[]> = {
  tensor: [],
  communication: [],
  backward: [2, 3],
  order: [6, 5],
};

function drawEdges(context: CanvasRenderingContext2D, drawing: FlowDrawing): void {
  const { flow, layout, palette, camera } = drawing;
  const right = camera.x + drawing.width / camera.scale;
  const bottom = camera.y + drawing.height / camera.scale;
  for (const evidence of ["order", "backward", "tensor", "communication"] as const) {
    context.setLineDash(DASHES[evidence]);
    context.strokeStyle = evidence === "communication" ? palette.accent : palette.muted;
    context.globalAlpha = evidence === "order" ? 0.45 : 0.7;
    context.lineWidth = Math.max(1, 0.7 / camera.scale);
    for (const edge of flow.edges) {
      if (edge.evidence !== evidence || (edge.quiet && !drawing.showQuiet)) continue;
      const [a, b] = [edge.source, edge.target];
      if (Math.max(layout.x[a], layout.x[b]) < camera.x) continue;
      if (Math.min(layout.x[a], layout.x[b]) > right) continue;
      if (Math.min(layout.y[a], layout.y[b]) > bottom) continue;
      if (Math.max(layout.y[a], layout.y[b]) < camera.y) continue;
      const lit = a === drawing.selected || b === drawing.selected;
      drawEdge(context, layout, a, b, lit ? palette.selected : null);
    }
  }
  context.setLineDash([]);
  context.globalAlpha = 1;
}

/** One path per edge: a canvas slows down out of proportion when a path has hundreds of parts. */
function drawEdge(
  context: CanvasRenderingContext2D,
  { x, y }: FlowLayout,
  a: number,
  b: number,
  lit: string | null,
): void {
  const [fromX, toX] = [x[a] + NODE_WIDTH / 2, x[b] - NODE_WIDTH / 2];
  const bend = Math.max(18, (toX - fromX) / 2);
  const usual = context.strokeStyle;
  if (lit) context.strokeStyle = lit;
  context.beginPath();
  context.moveTo(fromX, y[a]);
  context.bezierCurveTo(fromX + bend, y[a], toX - bend, y[b], toX, y[b]);
  context.stroke();
  if (lit) context.strokeStyle = usual;
}

function drawNode(context: CanvasRenderingContext2D, drawing: FlowDrawing, node: number): void {
  const { flow, layout, palette, theme, values, most, camera } = drawing;
  const shown = flow.nodes[node];
  const [left, top] = [layout.x[node] - NODE_WIDTH / 2, layout.y[node] - NODE_HEIGHT / 2];
  const colour = interpolate(continuousScheme("marey", theme), most > 0 ? values[node] / most : 0);
  const chosen = node === drawing.selected;
  context.fillStyle = `rgb(${colour[0]} ${colour[1]} ${colour[2]})`;
  const corner = cornerOf(shown);
  const sheets = shown.copies > 1 ? 3 : 1;
  for (let sheet = sheets - 1; sheet >= 0; sheet--) {
    context.lineWidth = sheet > 0 ? 1.5 : chosen ? 3 : 1;
    // The ground shows between the sheets of a stack.
    context.strokeStyle = sheet > 0 ? palette.panel : chosen ? palette.selected : palette.muted;
    context.beginPath();
    context.roundRect(left + sheet * 4, top - sheet * 4, NODE_WIDTH, NODE_HEIGHT, corner);
    context.fill();
    context.stroke();
  }
  if (sheets > 1 && !chosen) {
    context.lineWidth = 1.5;
    context.strokeStyle = palette.panel;
    context.stroke();
  }
  if (drawing.found.has(node) && !chosen) {
    context.lineWidth = 2;
    context.strokeStyle = palette.text;
    context.beginPath();
    context.roundRect(left - 3, top - 3, NODE_WIDTH + 6, NODE_HEIGHT + 6, corner + 3);
    context.stroke();
  }
  if (camera.scale < LABELS_FROM) return;
  // Text keeps a size that can be read; where that leaves no room for the glyph, the name goes first.
  const size = Math.max(11, LEAST_TEXT_PX / camera.scale);
  const glyph = shown.sharding && camera.scale >= GLYPHS_FROM ? shown.sharding : null;
  const ink = inkOn(colour);
  context.fillStyle = ink;
  context.font = `${size}px sans-serif`;
  context.textBaseline = "middle";
  context.textAlign = "left";
  const fit = shown.opens ? fitPath : fitText;
  const label = fit(context, drawing.nodeLabel(node), NODE_WIDTH - 12);
  context.fillText(label, left + 6, layout.y[node] - (glyph ? 7 : 0));
  if (glyph) drawGlyph(context, glyph, left + 6, layout.y[node] + 3, ink);
  if (shown.copies > 1) {
    context.fillStyle = palette.text;
    context.font = `bold ${size}px sans-serif`;
    context.textAlign = "right";
    context.fillText(`×${shown.copies}`, left + NODE_WIDTH + 8, top - 9 - size / 2);
    context.textAlign = "left";
  }
}

/** Below these scales nodes are shapes only, and their strategies are left out. */
const [LABELS_FROM, GLYPHS_FROM] = [0.32, 0.6];
const LEAST_TEXT_PX = 8.5;

/** What is written on a colour: dark on light ones, light on dark ones. */
export const inkOn = ([red, green, blue]: readonly [number, number, number]): string =>
  red * 0.3 + green * 0.59 + blue * 0.11 > 125 ? "#10181f" : "#f4f7fa";

export const cornerOf = ({ opens, kind }: { opens: string; kind: string }): number =>
  opens ? 8 : kind === "operator" ? 3 : NODE_HEIGHT / 2;

const CELL_WIDTH = 14;
const CELL_HEIGHT = 10;

/** A cell per dimension with its number of slices: solid where it is known, hollow where inferred, "?" otherwise. */
export function drawGlyph(
  context: CanvasRenderingContext2D,
  sharding: Sharding,
  x: number,
  y: number,
  colour: string,
): void {
  context.save();
  context.lineWidth = 1;
  context.strokeStyle = colour;
  context.font = "bold 8px sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  const cells = sharding.evidence === "unknown" ? [0] : sharding.slices.slice(0, 6);
  cells.forEach((slices, i) => {
    const left = x + i * (CELL_WIDTH + 2);
    context.beginPath();
    context.rect(left + 0.5, y + 0.5, CELL_WIDTH - 1, CELL_HEIGHT - 1);
    const solid = sharding.evidence === "exact" && slices > 1;
    context.fillStyle = colour;
    if (solid) context.fill();
    context.stroke();
    if (solid) context.fillStyle = colour === "#10181f" ? "#f4f7fa" : "#10181f";
    const text = sharding.evidence === "unknown" ? "?" : String(slices);
    context.fillText(text, left + CELL_WIDTH / 2, y + CELL_HEIGHT / 2 + 0.5);
  });
  context.restore();
}

/** A text cut so that it fits, with an ellipsis. */
export function fitText(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text.slice(0, 400)).width <= width && text.length <= 400) return text;
  let [low, high] = [0, Math.min(text.length, 400)];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return `${text.slice(0, low)}…`;
}

/** A path cut so that it fits: its end tells it from its neighbours. */
export function fitPath(context: CanvasRenderingContext2D, path: string, width: number): string {
  if (context.measureText(path.slice(-400)).width <= width && path.length <= 400) return path;
  let [low, high] = [0, Math.min(path.length, 400)];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`…${path.slice(-middle)}`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low > 0 ? `…${path.slice(-low)}` : "…";
}

/** The whole graph in a corner, as tall and wide as the corner, with a frame around what is seen. */
export function drawMinimap(
  context: CanvasRenderingContext2D,
  drawing: FlowDrawing,
  size: { width: number; height: number },
): void {
  const { layout, palette, camera } = drawing;
  const [across, down] = minimapScale(layout, size);
  context.clearRect(0, 0, size.width, size.height);
  context.fillStyle = palette.muted;
  const [width, height] = [Math.max(1, NODE_WIDTH * across), Math.max(1, NODE_HEIGHT * down)];
  const draw = (node: number, w: number, h: number) =>
    context.fillRect(layout.x[node] * across - w / 2, layout.y[node] * down - h / 2, w, h);
  for (let node = 0; node < layout.x.length; node++)
    if (node !== drawing.selected) draw(node, width, height);
  if (drawing.selected >= 0) {
    context.fillStyle = palette.selected;
    draw(drawing.selected, Math.max(4, width), Math.max(4, height));
  }
  context.strokeStyle = palette.accent;
  context.lineWidth = 1.5;
  const [left, top] = [Math.max(1, camera.x * across), Math.max(1, camera.y * down)];
  const right = Math.min(size.width - 1, (camera.x + drawing.width / camera.scale) * across);
  const bottom = Math.min(size.height - 1, (camera.y + drawing.height / camera.scale) * down);
  context.strokeRect(left, top, Math.max(2, right - left), Math.max(2, bottom - top));
}

/** Pixels of the corner per unit of the plane, across and down: a long chain is stretched to be seen at all. */
export const minimapScale = (
  layout: FlowLayout,
  size: { width: number; height: number },
): [number, number] => [
  size.width / Math.max(1, layout.width),
  Math.min(MINIMAP_TALLEST, size.height / Math.max(1, layout.height)),
];

const MINIMAP_TALLEST = 0.5;

/** The node at a point of the canvas, or −1. */
export function nodeAt(layout: FlowLayout, camera: FlowCamera, x: number, y: number): number {
  const [planeX, planeY] = [camera.x + x / camera.scale, camera.y + y / camera.scale];
  for (let node = layout.x.length - 1; node >= 0; node--)
    if (
      Math.abs(layout.x[node] - planeX) <= NODE_WIDTH / 2 &&
      Math.abs(layout.y[node] - planeY) <= NODE_HEIGHT / 2
    )
      return node;
  return -1;
}

/** A camera that sees the whole graph where that can be read, else all lanes from their beginning, or what fits. */
export function fitCamera(layout: FlowLayout, width: number, height: number): FlowCamera {
  const gutter = gutterPx(width);
  const across = (width - gutter) / (layout.width + 40);
  const down = height / (layout.height + 40);
  const whole = Math.min(1.2, across, down);
  const scale = whole >= READABLE ? whole : Math.min(0.9, Math.max(0.4, down));
  return { x: -gutter / scale, y: -Math.max(16, (height / scale - layout.height) / 2), scale };
}

const READABLE = 0.55;
