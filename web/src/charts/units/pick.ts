/** What lies under a point: answered from the layout tree on the CPU, never by reading pixels. */

import type { UnitLayout } from "@/charts/units/layout";

export interface Hit {
  /** Innermost group under the point; 0 is the whole canvas. */
  group: number;
  /** Place in the layout's order of the unit under the point, or −1. */
  position: number;
  /** Whether the point lies in the group's label band. */
  onLabel: boolean;
}

/** The innermost group and the unit at a point in cells, or null outside of everything. */
export function pick(layout: UnitLayout, x: number, y: number): Hit | null {
  if (!(x >= 0 && y >= 0 && x <= layout.width && y <= layout.height)) return null;
  const { tree } = layout;
  let group = 0;
  for (let layer = 1; layer <= tree.layers; layer++) {
    const child = childAt(layout, group, x, y);
    if (child < 0) return { group, position: -1, onLabel: isOnLabel(layout, group, layer - 1, y) };
    group = child;
  }
  return {
    group,
    position: unitAt(layout, group, x, y),
    onLabel: isOnLabel(layout, group, tree.layers, y),
  };
}

function isOnLabel(layout: UnitLayout, group: number, layer: number, y: number): boolean {
  return group > 0 && y < layout.groupY[group] + layout.paddings[layer] + layout.bands[layer];
}

function childAt(
  { tree, groupX, groupY, groupW, groupH }: UnitLayout,
  group: number,
  x: number,
  y: number,
): number {
  const first = tree.firstChild[group];
  const end = first + tree.childCount[group];
  for (let g = first; g < end; g++) {
    if (x >= groupX[g] && x < groupX[g] + groupW[g] && y >= groupY[g] && y < groupY[g] + groupH[g])
      return g;
  }
  return -1;
}

function unitAt(layout: UnitLayout, group: number, x: number, y: number): number {
  const { tree, share } = layout;
  const end = tree.firstUnit[group] + tree.unitCount[group];
  for (let i = tree.firstUnit[group]; i < end; i++) {
    const width = share ? share[i] : 1;
    if (x >= layout.x[i] && x < layout.x[i] + width && y >= layout.y[i] && y < layout.y[i] + 1)
      return i;
  }
  return -1;
}

/** Places in the layout's order of every unit that touches a rectangle in cells. */
export function unitsWithin(
  layout: UnitLayout,
  left: number,
  top: number,
  right: number,
  bottom: number,
): number[] {
  const found: number[] = [];
  visit(0, 0);
  return found;

  function visit(group: number, layer: number): void {
    const { tree, groupX, groupY, groupW, groupH } = layout;
    if (groupX[group] > right || groupX[group] + groupW[group] < left) return;
    if (groupY[group] > bottom || groupY[group] + groupH[group] < top) return;
    if (layer < tree.layers) {
      for (let c = 0; c < tree.childCount[group]; c++) visit(tree.firstChild[group] + c, layer + 1);
      return;
    }
    const end = tree.firstUnit[group] + tree.unitCount[group];
    for (let i = tree.firstUnit[group]; i < end; i++) {
      const width = layout.share ? layout.share[i] : 1;
      if (
        layout.x[i] < right &&
        layout.x[i] + width > left &&
        layout.y[i] < bottom &&
        layout.y[i] + 1 > top
      )
        found.push(i);
    }
  }
}
