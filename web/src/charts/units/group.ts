/** Units → nested groups, as flat arrays: one pass per layer, stable, any depth. */

import { sortRows } from "@/charts/units/order";

export type Aggregate = "mean" | "sum" | "min" | "max";

/** What one layer groups by: a small integer per unit, −1 where the unit has no value. */
export interface GroupKey {
  codes: Int32Array;
  /** How many codes there are; every code is below it. */
  size: number;
  /** Where each code stands in the order of names. */
  ranks: Int32Array;
}

/** How the groups of a layer stand among their siblings. */
export interface GroupOrder {
  by: "name" | "count" | "value";
  /** The value per unit, for `by: "value"`. */
  values?: ArrayLike<number>;
  aggregate?: Aggregate;
  descending: boolean;
}

/** Groups in breadth-first order: root first, each layer in one run, siblings side by side. */
export interface GroupTree {
  groups: number;
  layers: number;
  /** First group of each layer; layer 0 is the root alone. One entry more than there are layers. */
  layerStart: Int32Array;
  parent: Int32Array;
  code: Int32Array;
  firstChild: Int32Array;
  childCount: Int32Array;
  firstUnit: Int32Array;
  unitCount: Int32Array;
  /** GPUs in the group: a unit that is a share of a GPU counts as that share. */
  weight: Float64Array;
  /** Unit ids in the order of the groups. */
  order: Int32Array;
}

export interface GroupRequest {
  rows: Int32Array;
  keys: GroupKey[];
  orders: GroupOrder[];
  /** Share of a GPU per unit; absent where every unit is a whole one. */
  weights: Float32Array | null;
  unitOrder: { values: ArrayLike<number>; descending: boolean } | null;
}

class Grower {
  parent: number[] = [-1];
  code: number[] = [-1];
  firstChild: number[] = [0];
  childCount: number[] = [0];
  firstUnit: number[] = [0];
  unitCount: number[];
  layerStart: number[] = [0, 1];

  constructor(units: number) {
    this.unitCount = [units];
  }

  add(parent: number, code: number, firstUnit: number, unitCount: number): void {
    this.parent.push(parent);
    this.code.push(code);
    this.firstChild.push(0);
    this.childCount.push(0);
    this.firstUnit.push(firstUnit);
    this.unitCount.push(unitCount);
  }
}

/** Group the units by every key in turn. */
export function groupUnits(request: GroupRequest): GroupTree {
  const { rows, keys, orders, weights, unitOrder } = request;
  let order: Int32Array = unitOrder
    ? sortRows(rows, unitOrder.values, unitOrder.descending)
    : rows.slice();
  let spare: Int32Array = new Int32Array(order.length);
  const grown = new Grower(order.length);
  keys.forEach((key, layer) => {
    splitLayer(grown, key, orders[layer], order, spare, weights);
    [order, spare] = [spare, order];
  });
  return finish(grown, keys.length, order, weights);
}

function splitLayer(
  grown: Grower,
  key: GroupKey,
  sort: GroupOrder,
  order: Int32Array,
  out: Int32Array,
  weights: Float32Array | null,
): void {
  // Slot size is the code of "no value", so that such units form a group of their own.
  const counts = new Int32Array(key.size + 1);
  const starts = new Int32Array(key.size + 1);
  const statistic = new Float64Array(key.size + 1);
  const first = grown.layerStart[grown.layerStart.length - 2];
  const end = grown.parent.length;
  for (let g = first; g < end; g++) {
    const from = grown.firstUnit[g];
    const to = from + grown.unitCount[g];
    const present: number[] = [];
    for (let i = from; i < to; i++) {
      const code = slotOf(key, order[i]);
      if (counts[code]++ === 0) present.push(code);
    }
    if (sort.by !== "name")
      measure(sort, key, order.subarray(from, to), weights, present, counts, statistic);
    sortSiblings(present, sort, key, statistic);
    grown.firstChild[g] = grown.parent.length;
    grown.childCount[g] = present.length;
    let place = from;
    for (const code of present) {
      starts[code] = place;
      grown.add(g, code === key.size ? -1 : code, place, counts[code]);
      place += counts[code];
    }
    for (let i = from; i < to; i++) out[starts[slotOf(key, order[i])]++] = order[i];
    for (const code of present) counts[code] = 0;
  }
  grown.layerStart.push(grown.parent.length);
}

function slotOf(key: GroupKey, unit: number): number {
  const code = key.codes[unit];
  return code < 0 ? key.size : code;
}

function measure(
  sort: GroupOrder,
  key: GroupKey,
  units: Int32Array,
  weights: Float32Array | null,
  present: number[],
  counts: Int32Array,
  statistic: Float64Array,
): void {
  const aggregate = sort.by === "count" ? "sum" : (sort.aggregate ?? "mean");
  const start = aggregate === "min" ? Infinity : aggregate === "max" ? -Infinity : 0;
  for (const code of present) statistic[code] = start;
  const seen = sort.by === "value" ? new Int32Array(key.size + 1) : counts;
  for (const unit of units) {
    const code = slotOf(key, unit);
    const value =
      sort.by === "count" ? (weights ? weights[unit] : 1) : (sort.values?.[unit] ?? NaN);
    if (Number.isNaN(value)) continue;
    if (sort.by === "value") seen[code]++;
    if (aggregate === "min") statistic[code] = Math.min(statistic[code], value);
    else if (aggregate === "max") statistic[code] = Math.max(statistic[code], value);
    else statistic[code] += value;
  }
  if (sort.by !== "value") return;
  for (const code of present) {
    if (seen[code] === 0) statistic[code] = NaN;
    else if (aggregate === "mean") statistic[code] /= seen[code];
  }
}

function sortSiblings(
  present: number[],
  sort: GroupOrder,
  key: GroupKey,
  statistic: Float64Array,
): void {
  const sign = sort.descending ? -1 : 1;
  const byName = (a: number, b: number): number => {
    if (a === key.size || b === key.size) return a === b ? 0 : a === key.size ? 1 : -1;
    return key.ranks[a] - key.ranks[b];
  };
  present.sort((a, b) => {
    if (sort.by === "name")
      return a === key.size || b === key.size ? byName(a, b) : sign * byName(a, b);
    const [x, y] = [statistic[a], statistic[b]];
    if (Number.isNaN(x) || Number.isNaN(y))
      return Number.isNaN(x) ? (Number.isNaN(y) ? byName(a, b) : 1) : -1;
    return sign * (x - y) || byName(a, b);
  });
}

function finish(
  grown: Grower,
  layers: number,
  order: Int32Array,
  weights: Float32Array | null,
): GroupTree {
  const groups = grown.parent.length;
  const weight = new Float64Array(groups);
  for (let g = 0; g < groups; g++) {
    if (!weights) {
      weight[g] = grown.unitCount[g];
      continue;
    }
    const end = grown.firstUnit[g] + grown.unitCount[g];
    for (let i = grown.firstUnit[g]; i < end; i++) weight[g] += weights[order[i]];
  }
  return {
    groups,
    layers,
    layerStart: Int32Array.from(grown.layerStart),
    parent: Int32Array.from(grown.parent),
    code: Int32Array.from(grown.code),
    firstChild: Int32Array.from(grown.firstChild),
    childCount: Int32Array.from(grown.childCount),
    firstUnit: Int32Array.from(grown.firstUnit),
    unitCount: Int32Array.from(grown.unitCount),
    weight,
    order,
  };
}
