/** The bivariate tree, left to right: colour is one metric, area another. */

import type { Rgb } from "@/base/colour";
import { interpolate } from "@/base/colour";
import { shortened } from "@/charts/sankey/draw";
import type { CallTree, Metric } from "@/charts/calltree/tree";
import { nameOf, valueOf } from "@/charts/calltree/tree";
import type { Item } from "@/charts/calltree/visible";

export interface PlacedItem extends Item {
  x: number;
  y: number;
  radius: number;
  /** Place on the colour scale in [0, 1], NaN where nothing is known. */
  colour: number;
}

export interface BivariateLayout {
  items: PlacedItem[];
  width: number;
  height: number;
  colour: { metric: Metric; low: number; high: number };
  area: { metric: Metric; high: number };
}

export interface BivariateStyle {
  ramp: readonly Rgb[];
  text: string;
  muted: string;
  ground: string;
  line: string;
  selected: string;
  font: string;
}

const ROW = 22;
const LEVEL = 118;
const LARGEST_RADIUS = 10;
const SMALLEST_RADIUS = 2;
const LEFT = 16;

/** One line per leaf, callers at the middle of what they call. */
export function layoutBivariate(
  tree: CallTree,
  items: readonly Item[],
  colour: Metric,
  area: Metric,
): BivariateLayout {
  const of = (item: Item, metric: Metric) =>
    item.means ? item.means[metric] : valueOf(tree, metric, item.row);
  const range = (metric: Metric) => {
    const known = items.map((item) => of(item, metric)).filter(Number.isFinite);
    return known.length ? [Math.min(...known), Math.max(...known)] : [0, 0];
  };
  const [low, high] = range(colour);
  const largest = range(area)[1];
  const y = rowsOf(items);
  const placed = items.map((item, i) => {
    const value = of(item, colour);
    const share = Math.max(0, of(item, area)) / largest;
    return {
      ...item,
      x: LEFT + item.level * LEVEL,
      y: y[i],
      radius: Math.max(
        SMALLEST_RADIUS,
        (Number.isFinite(share) ? Math.sqrt(share) : 0) * LARGEST_RADIUS,
      ),
      colour: Number.isFinite(value) ? (high > low ? (value - low) / (high - low) : 0.5) : NaN,
    };
  });
  const deepest = items.reduce((most, item) => Math.max(most, item.level), 0);
  const lowest = y.reduce((most, one) => Math.max(most, one), 0);
  return {
    items: placed,
    width: LEFT + (deepest + 1) * LEVEL + 80,
    height: lowest + ROW,
    colour: { metric: colour, low, high },
    area: { metric: area, high: largest },
  };
}

function rowsOf(items: readonly Item[]): number[] {
  const y = new Array<number>(items.length).fill(NaN);
  const [first, last] = [new Map<number, number>(), new Map<number, number>()];
  const inner = new Set(items.map((item) => item.above));
  let line = 0;
  for (let i = 0; i < items.length; i++) if (!inner.has(i)) y[i] = ROW * (line++ + 0.7);
  for (let i = items.length - 1; i >= 0; i--) {
    if (Number.isNaN(y[i])) y[i] = ((first.get(i) ?? 0) + (last.get(i) ?? 0)) / 2;
    const { above } = items[i];
    if (above < 0) continue;
    first.set(above, Math.min(first.get(above) ?? Infinity, y[i]));
    last.set(above, Math.max(last.get(above) ?? -Infinity, y[i]));
  }
  return y;
}

/** Draw links, nodes and names of a cleared canvas. */
export function drawBivariate(
  context: CanvasRenderingContext2D,
  tree: CallTree,
  layout: BivariateLayout,
  style: BivariateStyle,
  marks: { selected: ReadonlySet<number>; hovered: number; hides: (count: number) => string },
): void {
  context.strokeStyle = style.line;
  context.lineWidth = 1;
  for (const item of layout.items) {
    if (item.above < 0) continue;
    const from = layout.items[item.above];
    const middle = (from.x + item.x) / 2;
    context.beginPath();
    context.moveTo(from.x + from.radius, from.y);
    context.bezierCurveTo(middle, from.y, middle, item.y, item.x - item.radius, item.y);
    context.stroke();
  }
  context.font = style.font;
  context.textBaseline = "middle";
  layout.items.forEach((item, i) => {
    drawGlyph(context, item, style);
    const lit = !item.surrogate && marks.selected.has(item.row);
    if (lit || marks.hovered === i) {
      context.strokeStyle = lit ? style.selected : style.text;
      context.lineWidth = 2;
      context.beginPath();
      context.arc(item.x, item.y, item.radius + 3, 0, 7);
      context.stroke();
    }
    const text = item.surrogate ? marks.hides(item.hidden) : nameOf(tree, item.row);
    const shown = shortened(context, text, LEVEL - LARGEST_RADIUS - 14);
    const x = item.x + item.radius + 5;
    context.lineWidth = 3;
    context.strokeStyle = style.ground;
    context.strokeText(shown, x, item.y);
    context.fillStyle = lit ? style.selected : item.surrogate ? style.muted : style.text;
    context.fillText(shown, x, item.y);
  });
}

/** A circle; a surrogate is a triangle, as wide as what it hides deserves. */
function drawGlyph(
  context: CanvasRenderingContext2D,
  { x, y, radius, colour, surrogate }: PlacedItem,
  style: BivariateStyle,
): void {
  if (Number.isNaN(colour)) context.fillStyle = style.ground;
  else {
    const [r, g, b] = interpolate(style.ramp, colour);
    context.fillStyle = `rgb(${r} ${g} ${b})`;
  }
  context.strokeStyle = style.muted;
  context.lineWidth = 1;
  context.beginPath();
  if (surrogate) {
    const size = Math.max(4, radius);
    context.moveTo(x - size, y);
    context.lineTo(x + size, y - size);
    context.lineTo(x + size, y + size);
    context.closePath();
  } else context.arc(x, y, radius, 0, 7);
  context.fill();
  context.stroke();
}

/** The item under a point, or -1: its glyph or its name. */
export function itemAt(layout: BivariateLayout, x: number, y: number): number {
  return layout.items.findIndex(
    (item) =>
      Math.abs(y - item.y) <= ROW / 2 && x >= item.x - item.radius - 3 && x <= item.x + LEVEL - 14,
  );
}
