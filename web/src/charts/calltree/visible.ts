/** What of a tree is shown: collapsed subtrees, rows folded into their caller, and a mass prune by one metric. */

import type { CallTree, Metric } from "@/charts/calltree/tree";
import { valueOf } from "@/charts/calltree/tree";

export interface TreeState {
  collapsed: ReadonlySet<number>;
  folded: ReadonlySet<number>;
  /** Call sites outside are left out, unless something below them is inside. */
  prune: { metric: Metric; low: number; high: number } | null;
}

export const PLAIN: TreeState = { collapsed: new Set(), folded: new Set(), prune: null };

/** A row that is drawn; a surrogate stands for what its caller hides and carries its sums. */
export interface Item {
  row: number;
  surrogate: boolean;
  level: number;
  /** Position of the caller among the items, or -1. */
  above: number;
  hidden: number;
  /** What the hidden call sites took, of the mean profile, and the mean of each metric over them. */
  weight: number;
  means: Record<Metric, number> | null;
}

/** The items to draw, callers first, at most so many; `cut` says how many rows were left out for room. */
export function visibleItems(
  tree: CallTree,
  state: TreeState,
  most: number,
): { items: Item[]; cut: number } {
  const kept = keptRows(tree, state.prune);
  const items: Item[] = [];
  // The item of each shown row; a folded row stands where its caller stands.
  const place = new Int32Array(tree.size).fill(-1);
  const gathered = new Map<number, Gathered>();
  let cut = 0;
  for (let row = 0; row < tree.size; row++) {
    const parent = tree.parent[row];
    const above = parent < 0 ? -1 : place[parent];
    if (!kept[row]) {
      if (above >= 0) gather(gathered, above, tree, row, tree.end[row]);
      row = tree.end[row] - 1;
      continue;
    }
    if (state.folded.has(row) && above >= 0) {
      place[row] = above;
      gather(gathered, above, tree, row, row + 1);
    } else if (items.length >= most) {
      cut += tree.end[row] - row;
      row = tree.end[row] - 1;
      continue;
    } else {
      place[row] = items.length;
      const level = above < 0 ? 0 : items[above].level + 1;
      items.push({
        row,
        surrogate: false,
        level,
        above,
        hidden: 0,
        weight: tree.weight[row],
        means: null,
      });
    }
    if (tree.hidden[row] > 0) left(gathered, place[row], tree, row);
    if (state.collapsed.has(row) && tree.end[row] > row + 1) {
      gather(gathered, place[row], tree, row + 1, tree.end[row]);
      row = tree.end[row] - 1;
    }
  }
  return { items: withSurrogates(items, gathered), cut };
}

interface Gathered {
  hidden: number;
  weight: number;
  sums: Record<Metric, number>;
  counts: Record<Metric, number>;
}

function nothing(): Gathered {
  return {
    hidden: 0,
    weight: 0,
    sums: { inclusive: 0, exclusive: 0, calls: 0, imbalance: 0 },
    counts: { inclusive: 0, exclusive: 0, calls: 0, imbalance: 0 },
  };
}

function gather(
  all: Map<number, Gathered>,
  item: number,
  tree: CallTree,
  first: number,
  last: number,
): void {
  const into = all.get(item) ?? nothing();
  all.set(item, into);
  for (let row = first; row < last; row++) {
    into.hidden += 1 + tree.hidden[row];
    // Of a subtree only its top: what is below is part of it.
    if (row === first || tree.parent[row] < first) into.weight += tree.weight[row];
    for (const metric of ["inclusive", "exclusive", "calls", "imbalance"] as const) {
      const value = valueOf(tree, metric, row);
      if (!Number.isFinite(value)) continue;
      into.sums[metric] += value;
      into.counts[metric] += 1;
    }
  }
}

/** What never arrived: the sender counted it. */
function left(all: Map<number, Gathered>, item: number, tree: CallTree, row: number): void {
  const into = all.get(item) ?? nothing();
  all.set(item, into);
  into.hidden += tree.hidden[row];
  into.weight += tree.hiddenInclusive[row];
}

function withSurrogates(items: Item[], gathered: Map<number, Gathered>): Item[] {
  if (gathered.size === 0) return items;
  const out: Item[] = [];
  const moved = new Int32Array(items.length);
  // A surrogate comes right after everything below its caller.
  const waiting: { item: number; level: number }[] = [];
  const flush = (level: number) => {
    while (waiting.length > 0 && waiting[waiting.length - 1].level >= level) {
      const { item } = waiting.pop() as { item: number };
      out.push(surrogateOf(items[item], moved[item], gathered.get(item) as Gathered));
    }
  };
  items.forEach((item, i) => {
    flush(item.level);
    moved[i] = out.length;
    out.push({ ...item, above: item.above < 0 ? -1 : moved[item.above] });
    if (gathered.has(i)) waiting.push({ item: i, level: item.level });
  });
  flush(-1);
  return out;
}

function surrogateOf(item: Item, above: number, { hidden, weight, sums, counts }: Gathered): Item {
  const mean = (metric: Metric) => (counts[metric] > 0 ? sums[metric] / counts[metric] : NaN);
  return {
    row: item.row,
    surrogate: true,
    level: item.level + 1,
    above,
    hidden,
    weight,
    means: {
      inclusive: mean("inclusive"),
      exclusive: mean("exclusive"),
      calls: mean("calls"),
      imbalance: mean("imbalance"),
    },
  };
}

/** Which rows a prune keeps: those inside, and every caller of one. */
export function keptRows(tree: CallTree, prune: TreeState["prune"]): Uint8Array {
  const kept = new Uint8Array(tree.size).fill(1);
  if (!prune) return kept;
  for (let row = tree.size - 1; row >= 0; row--) {
    const value = valueOf(tree, prune.metric, row);
    kept[row] = value >= prune.low && value <= prune.high ? 1 : 0;
  }
  for (let row = tree.size - 1; row >= 0; row--)
    if (kept[row] && tree.parent[row] >= 0) kept[tree.parent[row]] = 1;
  return kept;
}

/** Counts in bins over the logarithm of a metric; zero and below are in the first bin. */
export function metricHistogram(
  tree: CallTree,
  metric: Metric,
  bins: number,
): { edges: number[]; counts: number[] } {
  let [low, high] = [Infinity, 0];
  for (let row = 0; row < tree.size; row++) {
    const value = valueOf(tree, metric, row);
    if (value > 0 && value < low) low = value;
    if (value > high) high = value;
  }
  if (!(high > 0)) return { edges: [0, 1], counts: [tree.size] };
  if (low >= high) low = high / 10;
  const [from, span] = [Math.log(low), Math.log(high) - Math.log(low)];
  const edges = Array.from({ length: bins + 1 }, (_, i) => Math.exp(from + (span * i) / bins));
  edges[bins] = high;
  const counts = new Array<number>(bins).fill(0);
  for (let row = 0; row < tree.size; row++) {
    const value = valueOf(tree, metric, row);
    if (Number.isNaN(value)) continue;
    const place = value > 0 ? Math.floor(((Math.log(value) - from) / span) * bins) : 0;
    counts[Math.min(bins - 1, Math.max(0, place))] += 1;
  }
  return { edges, counts };
}
