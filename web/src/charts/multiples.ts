/** Small multiples on one canvas: a plot per GPU in boxes per node, laid out and drawn. */

import type { Rgb } from "@/base/colour";

export type PlotKind = "histogram" | "timeline" | "strip";

export interface Multiple {
  id: string;
  /** Box it stands in; empty for one flow without boxes. */
  group: string;
  /** What the plot is called where there is room for it. */
  label: string;
  counts: readonly number[];
  line: readonly (number | null)[];
  colour: Rgb;
  /** One slot per rule, always at the same place; null where the rule is not met. */
  slots: readonly (RuleSlot | null)[];
}

/** A rule that is met: now, or only earlier in the workload's life. */
export interface RuleSlot {
  colour: string;
  now: boolean;
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
  /** What its plots have, taken together. */
  slots: readonly (RuleSlot | null)[];
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
  if (kind === "strip")
    return {
      width: Math.round((count > 1024 ? 96 : 150) * zoom),
      height: Math.max(4, Math.round((count > 1024 ? 5 : 9) * zoom)),
    };
  const width = count <= 16 ? 128 : count <= 128 ? 78 : count <= 512 ? 50 : 34;
  return { width: Math.round(width * zoom), height: Math.round(width * 0.6 * zoom) };
}

/** Boxes flow from left to right; inside a box plots stand in a row (strips in a column). */
export function layoutMultiples(
  multiples: readonly Multiple[],
  width: number,
  size: CellSize,
  kind: PlotKind,
): MultiplesLayout {
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
    const fitting = Math.max(1, Math.floor((width + GAP) / (size.width + GAP)));
    const perRow =
      group === "" ? fitting : kind === "strip" ? 1 : evenRows(members.length, fitting);
    const gap = kind === "strip" ? 1 : GAP;
    const rows = Math.ceil(members.length / perRow);
    const boxWidth = perRow * (size.width + GAP) - GAP;
    const top = group === "" ? 0 : HEADING;
    const boxHeight = top + rows * (size.height + gap) - gap;
    if (x > 0 && x + boxWidth > width) {
      [x, y, rowHeight] = [0, y + rowHeight + BOX_GAP, 0];
    }
    if (group !== "")
      headings.push({ x, y, width: boxWidth, height: HEADING, group, slots: together(members) });
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

/** How many plots a row of a box has: as many as fit, with no row much shorter than the others. */
function evenRows(count: number, fitting: number): number {
  return Math.ceil(count / Math.ceil(count / fitting));
}

/** Per rule what any of the plots has; met now goes before met earlier. */
export function together(members: readonly Multiple[]): (RuleSlot | null)[] {
  const found: (RuleSlot | null)[] = [];
  for (const { slots } of members)
    slots.forEach((slot, i) => {
      const known = found[i] ?? null;
      found[i] = slot && (!known || (slot.now && !known.now)) ? slot : known;
    });
  return found;
}

/** The plot at a place, or -1. */
export function cellAt(layout: MultiplesLayout, x: number, y: number): number {
  return layout.cells.findIndex(
    (cell) => x >= cell.x && x < cell.x + cell.width && y >= cell.y && y < cell.y + cell.height,
  );
}

/** The node's name at a place, or null. */
export function headingAt(layout: MultiplesLayout, x: number, y: number): string | null {
  return (
    layout.headings.find(
      (one) => x >= one.x && x < one.x + one.width && y >= one.y && y < one.y + one.height,
    )?.group ?? null
  );
}

export interface MultiplesStyle {
  kind: PlotKind;
  limits: readonly [number, number];
  /** One scale for all plots, or each plot its own. */
  shared: boolean;
  selected: ReadonlySet<string>;
  /** Plots that a rule under the cursor is about; null where there is none. */
  lit: ReadonlySet<string> | null;
  focus: number;
  ramp: Uint32Array;
  colours: { ground: string; line: string; text: string; selected: string };
}

/** Draw every plot; the caller has scaled the context to the screen's pixels. */
export function drawMultiples(
  context: CanvasRenderingContext2D,
  layout: MultiplesLayout,
  style: MultiplesStyle,
): void {
  const most = Math.max(1, ...layout.cells.map((cell) => Math.max(0, ...cell.multiple.counts)));
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.fillStyle = style.colours.text;
  for (const heading of layout.headings) {
    const reserve = heading.slots.length * SLOT_PITCH;
    context.fillStyle = style.colours.text;
    context.fillText(
      fitted(context, heading.group, heading.width - reserve),
      heading.x,
      heading.y + 6,
    );
    drawSlots(
      context,
      heading.slots,
      heading.x + heading.width - reserve,
      heading.y + 4,
      style.colours.line,
    );
  }
  layout.cells.forEach((cell, i) => {
    const { multiple } = cell;
    const chosen = style.selected.has(multiple.id);
    const faded = style.lit ? !style.lit.has(multiple.id) : style.selected.size > 0 && !chosen;
    context.globalAlpha = faded ? 0.35 : 1;
    if (style.kind === "strip") drawStrip(context, cell, style);
    else {
      context.fillStyle = style.colours.ground;
      context.fillRect(cell.x, cell.y, cell.width, cell.height);
      if (style.kind === "histogram")
        drawHistogram(context, cell, style.shared ? most : Math.max(1, ...multiple.counts));
      else drawLine(context, cell, style);
    }
    drawCellSlots(context, cell, style);
    if (style.kind !== "strip") drawLabel(context, cell, style);
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

function drawHistogram(
  context: CanvasRenderingContext2D,
  { x, y, width, height, multiple }: Cell,
  most: number,
): void {
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

/** The values between which a plot is drawn: everybody's, or its own. */
function rangeOf(
  multiple: Multiple,
  style: MultiplesStyle,
): { low: number; high: number; span: number } {
  const present = multiple.line.filter((value): value is number => value !== null);
  const own = !style.shared && present.length > 0;
  const [low, high] = own ? [Math.min(...present), Math.max(...present)] : style.limits;
  return { low, high, span: high > low ? high - low : 1 };
}

function drawLine(
  context: CanvasRenderingContext2D,
  { x, y, width, height, multiple }: Cell,
  style: MultiplesStyle,
): void {
  const { low, high, span } = rangeOf(multiple, style);
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
    const at =
      y + height - 1 - ((Math.min(high, Math.max(low, value)) - low) / span) * (height - 2);
    if (pen) context.lineTo(x + i * step, at);
    else context.moveTo(x + i * step, at);
    pen = true;
  });
  context.stroke();
}

function drawStrip(
  context: CanvasRenderingContext2D,
  { x, y, width, height, multiple }: Cell,
  style: MultiplesStyle,
): void {
  const { low, span } = rangeOf(multiple, style);
  const mark = Math.min(4, width * 0.04);
  context.fillStyle = css(multiple.colour);
  context.fillRect(x, y, mark, height);
  const reserve = multiple.slots.length > 0 ? multiple.slots.length * SLOT_PITCH : 0;
  const step = (width - mark - 1 - reserve) / Math.max(1, multiple.line.length);
  multiple.line.forEach((value, i) => {
    if (value === null) return;
    const packed = style.ramp[Math.max(0, Math.min(255, Math.round(((value - low) / span) * 255)))];
    context.fillStyle = `rgb(${packed & 255} ${(packed >> 8) & 255} ${(packed >> 16) & 255})`;
    context.fillRect(x + mark + 1 + i * step, y, step + 0.4, height);
  });
}

/** From this width on a plot has room for its name beside the rules' slots. */
const LABEL_FROM = 48;

function drawLabel(
  context: CanvasRenderingContext2D,
  { x, y, width, multiple }: Cell,
  style: MultiplesStyle,
): void {
  if (width < LABEL_FROM) return;
  const left = 3 + multiple.slots.length * SLOT_PITCH;
  context.fillStyle = style.colours.text;
  context.fillText(fitted(context, multiple.label, width - left), x + left, y + 7);
}

const SLOT_PITCH = 6;
const SLOT_SIZE = 4;

/** On a plot slots stand above it at the left; beside a strip, behind its end. */
function drawCellSlots(
  context: CanvasRenderingContext2D,
  { x, y, width, height, multiple }: Cell,
  style: MultiplesStyle,
): void {
  const { slots } = multiple;
  if (slots.length === 0) return;
  if (style.kind === "strip")
    drawSlots(
      context,
      slots,
      x + width - slots.length * SLOT_PITCH + 2,
      y + Math.max(0, (height - SLOT_SIZE) / 2),
      null,
    );
  else
    drawSlots(
      context,
      slots,
      x + 2,
      y + 2,
      width >= slots.length * SLOT_PITCH + 20 ? style.colours.line : null,
    );
}

/** Filled where a rule is met now, a frame where it was met earlier, empty (or nothing) where it is not. */
function drawSlots(
  context: CanvasRenderingContext2D,
  slots: readonly (RuleSlot | null)[],
  x: number,
  y: number,
  empty: string | null,
): void {
  slots.forEach((slot, i) => {
    const left = x + i * SLOT_PITCH;
    if (slot?.now) {
      context.fillStyle = slot.colour;
      context.fillRect(left, y, SLOT_SIZE + 1, SLOT_SIZE + 1);
    } else if (slot || empty) {
      context.strokeStyle = slot?.colour ?? empty ?? "";
      context.lineWidth = slot ? 1.2 : 0.8;
      context.strokeRect(left + 0.5, y + 0.5, SLOT_SIZE, SLOT_SIZE);
    }
  });
}

function fitted(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end--;
  return `${text.slice(0, end)}…`;
}
