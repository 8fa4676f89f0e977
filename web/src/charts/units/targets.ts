/** What was clicked or selected, as a predicate: the form that every other view understands. */

import type { Predicate } from "@/base/predicate";
import { select } from "@/base/predicate";
import { valueAt } from "@/base/columns";
import type { Units } from "@/base/units";
import type { UnitLayout } from "@/charts/units/layout";
import type { Mark } from "@/charts/units/drawing/overlay";
import type { Plan } from "@/charts/units/plan";

/** What is true of all units of a group: one condition per layer down to it. */
export function groupPredicate(layout: UnitLayout, plan: Plan, group: number): Predicate {
  const conditions: Predicate[] = [];
  for (let g = group, layer = layerOf(layout, group); g > 0; g = layout.tree.parent[g], layer--) {
    conditions.unshift(plan.conditions[layer - 1](layout.tree.code[g]));
  }
  return conditions.length === 1 ? conditions[0] : { and: conditions };
}

/** The layer a group belongs to; the root is layer 0. */
export function layerOf(layout: UnitLayout, group: number): number {
  let layer = 0;
  while (layer < layout.tree.layers && group >= layout.tree.layerStart[layer + 1]) layer++;
  return layer;
}

/** One unit: its GPU (and workload, where it shares the GPU), or the waiting workload. */
export function unitPredicate(units: Units, unit: number): Predicate {
  const workload = valueAt(units.column("workload"), unit);
  if (units.gpu[unit] < 0) return { field: "workload", op: "eq", value: workload ?? "" };
  const gpu: Predicate = {
    field: "gpu",
    op: "eq",
    value: valueAt(units.column("gpu"), unit) ?? "",
  };
  const shared = units.shares && units.shares.share[unit] < 0.999;
  return shared && workload !== null
    ? { and: [gpu, { field: "workload", op: "eq", value: workload }] }
    : gpu;
}

/** Several units as one predicate. */
export function unitsPredicate(units: Units, list: readonly number[]): Predicate | null {
  const gpus = new Set<string>();
  const waiting = new Set<string>();
  for (const unit of list) {
    const name = valueAt(units.column(units.gpu[unit] < 0 ? "workload" : "gpu"), unit);
    if (name !== null) (units.gpu[unit] < 0 ? waiting : gpus).add(String(name));
  }
  const parts: Predicate[] = [];
  if (gpus.size > 0) parts.push({ field: "gpu", op: "in", value: [...gpus] });
  if (waiting.size > 0)
    parts.push({
      and: [
        { field: "state", op: "eq", value: "waiting" },
        { field: "workload", op: "in", value: [...waiting] },
      ],
    });
  return parts.length === 0 ? null : parts.length === 1 ? parts[0] : { or: parts };
}

/** Outlines for a selection: whole groups where all of their units are selected, else the units. */
export function selectionMarks(
  layout: UnitLayout,
  units: Units,
  selection: readonly Predicate[],
): Mark[] {
  if (selection.length === 0) return [];
  const chosen = select({ or: [...selection] }, units);
  const { tree } = layout;
  const before = new Int32Array(tree.order.length + 1);
  for (let i = 0; i < tree.order.length; i++) before[i + 1] = before[i] + chosen[tree.order[i]];
  const marks: Mark[] = [];
  visit(0);
  return marks;

  function visit(group: number): void {
    const first = tree.firstUnit[group];
    const end = first + tree.unitCount[group];
    const count = before[end] - before[first];
    if (count === 0) return;
    if (group > 0 && count === end - first) {
      marks.push({ group });
    } else if (tree.childCount[group] > 0) {
      for (let c = 0; c < tree.childCount[group]; c++) visit(tree.firstChild[group] + c);
    } else {
      for (let i = first; i < end; i++) if (chosen[tree.order[i]]) marks.push({ position: i });
    }
  }
}
