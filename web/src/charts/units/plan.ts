/** A view over units → what to lay out: keys, orders, geometry and the rows that pass the filter. */

import type { Attribute } from "@/base/attributes";
import type { Column } from "@/base/columns";
import { wordRanks } from "@/base/columns";
import { formatValue } from "@/base/format";
import type { Predicate } from "@/base/predicate";
import { select } from "@/base/predicate";
import type { Units } from "@/base/units";
import type { GroupKey, GroupOrder } from "@/charts/units/group";
import type { LayoutRequest } from "@/charts/units/layout";
import type { Layer, Sort, View } from "@/charts/units/view";

export interface Plan {
  request: LayoutRequest;
  /** The name of each group code, per layer. */
  names: (readonly string[])[];
  /** What is true of the units of a group code, per layer. */
  conditions: ((code: number) => Predicate)[];
  /** 1 where a unit passes the filter. */
  passing: Uint8Array;
}

/** Work out what to lay out. */
export function planLayout(
  view: View,
  units: Units,
  attributes: ReadonlyMap<string, Attribute>,
  viewport: { width: number; height: number },
): Plan {
  const passing = select({ and: view.filter }, units);
  const keyed = view.layers.map((layer) => layerKey(layer, units, attributes.get(layer.by)));
  return {
    request: {
      rows:
        view.others === "hide"
          ? rowsOf(passing)
          : Int32Array.from({ length: units.rows }, (_, i) => i),
      keys: keyed.map(({ key }) => key),
      orders: view.layers.map((layer) => groupOrder(layer.sort, units)),
      unitOrder: unitOrder(view.unit.sort, units),
      layers: view.layers.map(({ layout, size, margin, padding, label, aspect, across }) => ({
        layout,
        size,
        margin,
        padding,
        label,
        aspect,
        across,
      })),
      unit: {
        layout: view.unit.layout,
        gap: view.unit.gap,
        aspect: view.unit.aspect,
        across: view.unit.across,
        align: view.unit.align,
      },
      shares: units.shares,
      viewport,
    },
    names: keyed.map(({ names }) => names),
    conditions: keyed.map(({ condition }) => condition),
    passing,
  };
}

function rowsOf(passing: Uint8Array): Int32Array {
  const rows = new Int32Array(passing.length);
  let n = 0;
  for (let i = 0; i < passing.length; i++) if (passing[i]) rows[n++] = i;
  return rows.slice(0, n);
}

interface Keyed {
  key: GroupKey;
  names: readonly string[];
  condition: (code: number) => Predicate;
}

function layerKey(layer: Layer, units: Units, attribute: Attribute | undefined): Keyed {
  const column = units.column(layer.by);
  const absent: Predicate = { field: layer.by, op: "missing", value: true };
  if (!column)
    return {
      key: { codes: new Int32Array(units.rows).fill(-1), size: 0, ranks: new Int32Array(0) },
      names: [],
      condition: () => absent,
    };
  if (column.kind === "text") {
    return {
      key: { codes: column.codes, size: column.words.length, ranks: wordRanks(column.words) },
      names: column.words,
      condition: (code) =>
        code < 0 ? absent : { field: layer.by, op: "eq", value: column.words[code] },
    };
  }
  const { key, names, edges } = binned(column.values, layer.bins, attribute);
  const last = edges.length - 2;
  return {
    key,
    names,
    condition: (code) => {
      if (code < 0) return absent;
      const from: Predicate[] =
        code === 0 ? [] : [{ field: layer.by, op: "ge", value: edges[code] }];
      const to: Predicate[] =
        code === last ? [] : [{ field: layer.by, op: "lt", value: edges[code + 1] }];
      return { and: [...from, ...to, { field: layer.by, op: "missing", value: false }] };
    },
  };
}

/** A numeric attribute in equal bins over the catalogue's range, or over the data where that has no end. */
function binned(
  values: Float32Array | Float64Array,
  bins: number,
  attribute: Attribute | undefined,
): { key: GroupKey; names: string[]; edges: number[] } {
  let [low, high] = [attribute?.min ?? Infinity, attribute?.max ?? -Infinity];
  if (!Number.isFinite(low) || !Number.isFinite(high)) {
    for (const value of values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  if (!(high > low))
    [low, high] = [Number.isFinite(low) ? low : 0, (Number.isFinite(low) ? low : 0) + 1];
  const width = (high - low) / bins;
  const codes = new Int32Array(values.length);
  for (let i = 0; i < values.length; i++) {
    codes[i] = Number.isNaN(values[i])
      ? -1
      : Math.min(bins - 1, Math.max(0, Math.floor((values[i] - low) / width)));
  }
  const unit = attribute?.unit ?? "";
  const names = Array.from(
    { length: bins },
    (_, b) => `${formatValue(low + b * width)} – ${formatValue(low + (b + 1) * width, unit)}`,
  );
  const edges = Array.from({ length: bins + 1 }, (_, b) => low + b * width);
  return {
    key: { codes, size: bins, ranks: Int32Array.from({ length: bins }, (_, b) => b) },
    names,
    edges,
  };
}

function groupOrder(sort: Sort, units: Units): GroupOrder {
  const descending = sort.order === "descending";
  if (sort.by === "name" || sort.by === "count") return { by: sort.by, descending };
  const column = units.column(sort.by);
  const aggregate = sort.aggregate ?? (column?.kind === "text" ? "min" : "mean");
  return { by: "value", values: sortValues(column, units.rows), aggregate, descending };
}

function unitOrder(sort: Sort, units: Units): LayoutRequest["unitOrder"] {
  // Units already come in the order of their names: hosts and indices, then the scheduler's order.
  if (sort.by === "name" || sort.by === "count") {
    if (sort.order !== "descending") return null;
    return { values: Float32Array.from({ length: units.rows }, (_, i) => i), descending: true };
  }
  return {
    values: sortValues(units.column(sort.by), units.rows),
    descending: sort.order === "descending",
  };
}

function sortValues(column: Column | undefined, rows: number): Float32Array | Float64Array {
  if (!column) return new Float32Array(rows).fill(NaN);
  if (column.kind === "number") return column.values;
  const ranks = wordRanks(column.words);
  return Float32Array.from(column.codes, (code) => (code < 0 ? NaN : ranks[code]));
}
