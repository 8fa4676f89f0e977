/** Walking over groups and units with arrow keys: the nearest one in a direction, into a group and out of it. */

import type { UnitLayout } from "@/charts/units/layout";
import type { Mark } from "@/charts/units/drawing/overlay";

export type Direction = "left" | "right" | "up" | "down";

interface Centre {
  x: number;
  y: number;
}

/** The mark to begin with: the first group, or the first unit where nothing is grouped. */
export function firstMark(layout: UnitLayout): Mark | null {
  if (layout.tree.groups > 1) return { group: 1 };
  return layout.tree.order.length > 0 ? { position: 0 } : null;
}

/** The nearest group of the same layer, or unit, in a direction; null where there is none. */
export function nextMark(layout: UnitLayout, from: Mark, direction: Direction): Mark | null {
  const here = centreOf(layout, from);
  let best: Mark | null = null;
  let bestCost = Infinity;
  for (const mark of peersOf(layout, from)) {
    const cost = costOf(here, centreOf(layout, mark), direction);
    if (cost < bestCost) [best, bestCost] = [mark, cost];
  }
  return best;
}

/** The first thing inside a group; a unit has nothing inside. */
export function innerMark(layout: UnitLayout, mark: Mark): Mark | null {
  if (!("group" in mark)) return null;
  const { tree } = layout;
  if (tree.childCount[mark.group] > 0) return { group: tree.firstChild[mark.group] };
  return tree.unitCount[mark.group] > 0 ? { position: tree.firstUnit[mark.group] } : null;
}

/** The group around a group or a unit. */
export function outerMark(layout: UnitLayout, mark: Mark): Mark | null {
  const { tree } = layout;
  const around = "group" in mark ? tree.parent[mark.group] : leafOf(layout, mark.position);
  return around > 0 ? { group: around } : null;
}

function leafOf({ tree }: UnitLayout, position: number): number {
  for (let g = tree.layerStart[tree.layers]; g < tree.groups; g++)
    if (position < tree.firstUnit[g] + tree.unitCount[g]) return g;
  return 0;
}

function* peersOf({ tree }: UnitLayout, mark: Mark): Generator<Mark> {
  if ("position" in mark) {
    for (let i = 0; i < tree.order.length; i++) if (i !== mark.position) yield { position: i };
    return;
  }
  let layer = 0;
  while (layer < tree.layers && mark.group >= tree.layerStart[layer + 1]) layer++;
  for (let g = tree.layerStart[layer]; g < tree.layerStart[layer + 1]; g++)
    if (g !== mark.group) yield { group: g };
}

function centreOf(layout: UnitLayout, mark: Mark): Centre {
  if ("position" in mark)
    return { x: layout.x[mark.position] + 0.5, y: layout.y[mark.position] + 0.5 };
  const g = mark.group;
  return {
    x: layout.groupX[g] + layout.groupW[g] / 2,
    y: layout.groupY[g] + layout.groupH[g] / 2,
  };
}

/** How far away in a direction; what lies aside counts double, what lies behind is out of reach. */
function costOf(from: Centre, to: Centre, direction: Direction): number {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const along = { left: -dx, right: dx, up: -dy, down: dy }[direction];
  const aside = Math.abs(direction === "left" || direction === "right" ? dy : dx);
  return along > 1e-6 && along >= aside * 0.3 ? along + 2 * aside : Infinity;
}
