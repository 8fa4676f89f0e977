/** Small multiples on one canvas: a plot per GPU in boxes per node, laid out and drawn. */

import type { Rgb } from "@/base/colour";

export type PlotKind = "histogram" | "timeline" | "strip";

export interface Multiple {
  id: string;
  /** Box it stands in; empty for one flow without boxes. */
  group: string;
  counts: readonly number[];
  line: readonly (number | null)[];
  colour: Rgb;
  /** One slot per rule: the colour where the rule is met, null where it is not. */
  slots: readonly (string | null)[];
}

export interface Cell {
  x: number;
  y: number;
  width: number;
  height: number;
  multiple: Multiple;
}

export interface Heading {
  x: number;
  y: number;
  width: number;
  height: number;
  group: string;
}

export interface MultiplesLayout {
  cells: Cell[];
  headings: Heading[];
  height: number;
}

export interface CellSize {
  width: number;
  height: number;
}

const GAP = 3;
const BOX_GAP = 10;
const HEADING = 15;

/** The size at which this many plots stay legible: large while they fit, then smaller. */
export function cellSize(count: number, kind: PlotKind, zoom: number): CellSize {
  if (kind === "strip") return { width: Math.round((count > 1024 ? 96 : 150) * zoom), height: Math.max(4, Math.round((count > 1024 ? 5 : 9) * zoom)) };
  const width = count <= 16 ? 128 : count <= 128 ? 78 : count <= 512 ? 50 : 34;
  return { width: Math.round(width * zoom), height: Math.round(width * 0.6 * zoom) };
}

/** Boxes flow from left to right; inside a box plots stand in a row (strips in a column). */
export function layoutMultiples(multiples: readonly Multiple[], width: number, size: CellSize, kind: PlotKind): MultiplesLayout {
  const groups = new Map<string, Multiple[]>();
  for (const multiple of multiples) {
    const members = groups.get(multiple.group);
    if (members) members.push(multiple);
    else groups.set(multiple.group, [multiple]);
  }
  const cells: Cell[] = [];
  const headings: Heading[] = [];
  let [x, y, rowHeight] = [0, 0, 0];
  for (const [group, members] of groups) {
    const perRow = kind === "strip" ? (group === "" ? Math.max(1, Math.floor((width + GAP) / (size.width + GAP))) : 1) : Math.max(1, Math.min(members.length, Math.floor((width + GAP) / (size.width + GAP))));
    const gap = kind === "strip" ? 1 : GAP;
    const rows = Math.ceil(members.length / perRow);
    const boxWidth = perRow * (size.width + GAP) - GAP;
    const top = group === "" ? 0 : HEADING;
    const boxHeight = top + rows * (size.height + gap) - gap;
    if (x > 0 && x + boxWidth > width) {
      [x, y, rowHeight] = [0, y + rowHeight + BOX_GAP, 0];
    }
    if (group !== "") headings.push({ x, y, width: boxWidth, height: HEADING, group });
    members.forEach((multiple, i) => {
      cells.push({
        x: x + (i % perRow) * (size.width + GAP),
        y: y + top + Math.floor(i / perRow) * (size.height + gap),
        width: size.width,
        height: size.height,
        multiple,
      });
    });
    x += boxWidth + BOX_GAP;
    rowHeight = Math.max(rowHeight, boxHeight);
  }
  return { cells, headings, height: y + rowHeight };
}

/** The plot at a place, or -1. */
export function cellAt(layout: MultiplesLayout, x: number, y: number): number {
  return layout.cells.findIndex((cell) => x >= cell.x && x < cell.x + cell.width && y >= cell.y && y < cell.y + cell.height);
}

/** The node's name at a place, or null. */
export function headingAt(layout: MultiplesLayout, x: number, y: number): string | null {
  return layout.headings.find((one) => x >= one.x && x < one.x + one.width && y >= one.y && y < one.y + one.height)?.group ?? null;
}

export interface MultiplesStyle {
  kind: PlotKind;
  limits: readonly [number, number];
  /** One scale for all plots, or each plot its own. */
  shared: boolean;
  selected: ReadonlySet<string>;
  focus: number;
  ramp: Uint32Array;
  colours: { ground: string; line: string; text: string; selected: string };
}

/** Draw every plot; the caller has scaled the context to the screen's pixels. */
export function drawMultiples(context: CanvasRenderingContext2D, layout: MultiplesLayout, style: MultiplesStyle): void {
  const most = Math.max(1, ...layout.cells.map((cell) => Math.max(0, ...cell.multiple.counts)));
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.fillStyle = style.colours.text;
  for (const { x, y, width, group } of layout.headings) context.fillText(fitted(context, group, width), x, y + 6);
  layout.cells.forEach((cell, i) => {
    const { multiple } = cell;
    const chosen = style.selected.has(multiple.id);
    context.globalAlpha = style.selected.size > 0 && !chosen ? 0.45 : 1;
    if (style.kind === "strip") drawStrip(context, cell, style);
    else {
      context.fillStyle = style.colours.ground;
      context.fillRect(cell.x, cell.y, cell.width, cell.height);
      if (style.kind === "histogram") drawHistogram(context, cell, style.shared ? most : Math.max(1, ...multiple.counts));
      else drawLine(context, cell, style);
    }
    drawSlots(context, cell);
    context.globalAlpha = 1;
    if (chosen || i === style.focus) {
      context.strokeStyle = chosen ? style.colours.selected : style.colours.text;
      context.lineWidth = chosen ? 1.5 : 1;
      context.setLineDash(i === style.focus ? [3, 2] : []);
      context.strokeRect(cell.x - 0.5, cell.y - 0.5, cell.width + 1, cell.height + 1);
      context.setLineDash([]);
    }
  });
}

function css([r, g, b]: Rgb, alpha = 1): string {
  return `rgb(${r} ${g} ${b} / ${alpha})`;
}

function drawHistogram(context: CanvasRenderingContext2D, { x, y, width, height, multiple }: Cell, most: number): void {
  const bins = multiple.counts.length;
  const bar = width / bins;
  context.fillStyle = css(multiple.colour);
  context.beginPath();
  multiple.counts.forEach((count, i) => {
    if (count === 0) return;
    const tall = Math.max(1, (count / most) ** 0.5 * (height - 2));
    context.rect(x + i * bar, y + height - tall, Math.max(0.7, bar), tall);
  });
  context.fill();
}

function drawLine(context: CanvasRenderingContext2D, { x, y, width, height, multiple }: Cell, style: MultiplesStyle): void {
  const present = multiple.line.filter((value): value is number => value !== null);
  let [low, high] = style.limits;
  if (!style.shared && present.length > 0) [low, high] = [Math.min(...present), Math.max(...present)];
  const span = high > low ? high - low : 1;
  const step = multiple.line.length > 1 ? width / (multiple.line.length - 1) : 0;
  context.strokeStyle = css(multiple.colour);
  context.lineWidth = 1;
  context.beginPath();
  let pen = false;
  multiple.line.forEach((value, i) => {
    if (value === null) {
      pen = false;
      return;
    }
    const at = y + height - 1 - ((Math.min(high, Math.max(low, value)) - low) / span) * (height - 2);
    if (pen) context.lineTo(x + i * step, at);
    else context.moveTo(x + i * step, at);
    pen = true;
  });
  context.stroke();
}

function drawStrip(context: CanvasRenderingContext2D, { x, y, width, height, multiple }: Cell, style: MultiplesStyle): void {
  const present = multiple.line.filter((value): value is number => value !== null);
  let [low, high] = style.limits;
  if (!style.shared && present.length > 0) [low, high] = [Math.min(...present), Math.max(...present)];
  const span = high > low ? high - low : 1;
  const mark = Math.min(4, width * 0.04);
  context.fillStyle = css(multiple.colour);
  context.fillRect(x, y, mark, height);
  const step = (width - mark - 1) / Math.max(1, multiple.line.length);
  multiple.line.forEach((value, i) => {
    if (value === null) return;
    const packed = style.ramp[Math.max(0, Math.min(255, Math.round(((value - low) / span) * 255)))];
    context.fillStyle = `rgb(${packed & 255} ${(packed >> 8) & 255} ${(packed >> 16) & 255})`;
    context.fillRect(x + mark + 1 + i * step, y, step + 0.4, height);
  });
}

function drawSlots(context: CanvasRenderingContext2D, { x, y, width, multiple }: Cell): void {
  const pitch = Math.min(5, width / Math.max(1, multiple.slots.length));
  const size = Math.max(2, pitch - 1);
  multiple.slots.forEach((colour, i) => {
    if (colour === null) return;
    context.fillStyle = colour;
    context.fillRect(x + i * pitch, y + 1, size, 4);
  });
}

function fitted(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end--;
  return `${text.slice(0, end)}…`;
}
