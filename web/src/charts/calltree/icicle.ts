/** An icicle of a call tree: a line per level, width is time. */

import type { Rgb } from "@/base/colour";
import { interpolate } from "@/base/colour";
import { shortened } from "@/charts/sankey/draw";
import type { CallTree } from "@/charts/calltree/tree";
import { nameOf } from "@/charts/calltree/tree";

export interface Bar {
  row: number;
  level: number;
  x: number;
  width: number;
}

export interface IcicleLayout {
  bars: Bar[];
  levels: number;
  height: number;
}

export const BAR_HEIGHT = 20;
const NARROWEST = 0.6;
const MOST_LEVELS = 60;

/** Bars below `root` (-1: everything), as wide as their share of it; what is narrower than a hair is left out. */
export function layoutIcicle(tree: CallTree, root: number, width: number): IcicleLayout {
  const bars: Bar[] = [];
  const at = new Float64Array(tree.size + 1);
  const scale = new Float64Array(tree.size + 1);
  const [first, last] = root < 0 ? [0, tree.size] : [root, tree.end[root]];
  const base = root < 0 ? 0 : tree.depth[root];
  const whole = root < 0 ? topWeight(tree) : tree.weight[root];
  const top = tree.size;
  [at[top], scale[top]] = [0, whole > 0 ? width / whole : 0];
  let levels = 0;
  for (let row = first; row < last; row++) {
    const level = tree.depth[row] - base;
    const up = row === root || tree.parent[row] < 0 ? top : tree.parent[row];
    const room = tree.weight[row] * scale[up];
    if (room < NARROWEST || level >= MOST_LEVELS) {
      row = tree.end[row] - 1;
      continue;
    }
    bars.push({ row, level, x: at[up], width: room });
    levels = Math.max(levels, level + 1);
    [at[row], scale[row]] = [at[up], room / tree.weight[row] / crowding(tree, row)];
    at[up] += room;
  }
  return { bars, levels, height: levels * BAR_HEIGHT };
}

function topWeight(tree: CallTree): number {
  let sum = 0;
  for (let row = 0; row < tree.size; row = tree.end[row]) sum += tree.weight[row];
  return sum;
}

/** How much more the callees took than their caller, where work runs beside it; 1 where they fit. */
function crowding(tree: CallTree, row: number): number {
  let sum = 0;
  for (let child = row + 1; child < tree.end[row]; child = tree.end[child])
    sum += tree.weight[child];
  return Math.max(1, sum / tree.weight[row]);
}

export interface IcicleStyle {
  ramp: readonly Rgb[];
  ground: string;
  text: string;
  dark: string;
  selected: string;
  font: string;
}

/** Draw the bars; `shade` gives a row's place on the colour scale in [0, 1]. */
export function drawIcicle(
  context: CanvasRenderingContext2D,
  tree: CallTree,
  layout: IcicleLayout,
  style: IcicleStyle,
  marks: { shade: (row: number) => number; selected: ReadonlySet<number>; hovered: number },
): void {
  context.font = style.font;
  context.textBaseline = "middle";
  for (const { row, level, x, width } of layout.bars) {
    const [r, g, b] = interpolate(style.ramp, marks.shade(row));
    const y = level * BAR_HEIGHT;
    context.fillStyle = `rgb(${r} ${g} ${b})`;
    context.fillRect(x, y, Math.max(0.5, width - 1), BAR_HEIGHT - 1);
    const lit = marks.selected.has(row);
    if (lit || marks.hovered === row) {
      context.strokeStyle = lit ? style.selected : style.text;
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 1, Math.max(1, width - 3), BAR_HEIGHT - 3);
    }
    if (width < 28) continue;
    // Light bars carry dark letters.
    context.fillStyle = r * 0.299 + g * 0.587 + b * 0.114 > 140 ? style.dark : "#ffffff";
    context.fillText(shortened(context, nameOf(tree, row), width - 8), x + 4, y + BAR_HEIGHT / 2);
  }
}

/** The row under a point, or -1. */
export function rowAt(layout: IcicleLayout, x: number, y: number): number {
  const level = Math.floor(y / BAR_HEIGHT);
  const found = layout.bars.find(
    (bar) => bar.level === level && x >= bar.x && x < bar.x + bar.width,
  );
  return found ? found.row : -1;
}
