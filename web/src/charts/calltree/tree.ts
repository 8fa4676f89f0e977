/** A calling-context tree in rows, depth first, as the server and the notebook send it. */

export const METRICS = ["inclusive", "exclusive", "calls", "imbalance"] as const;
export type Metric = (typeof METRICS)[number];

/** Columns as they arrive; NaN or null where nothing is known. */
export interface TreeColumns {
  names: readonly string[];
  depth: ArrayLike<number>;
  name: ArrayLike<number>;
  /** How many profiles have the call site. */
  count: ArrayLike<number>;
  /** Call sites that have no row, below this one, and what they took. */
  hidden: ArrayLike<number>;
  hiddenInclusive: ArrayLike<number>;
  values: Record<Metric, ArrayLike<number | null>>;
  profiles: number;
  unit: string;
  total: number;
}

export interface CallTree extends TreeColumns {
  size: number;
  /** The row of the caller, or -1. */
  parent: Int32Array;
  /** The row after the last one below this. */
  end: Int32Array;
  /** What the call site took of the mean profile: absent profiles count as nothing. */
  weight: Float64Array;
}

/** Find callers and ends of subtrees. */
export function buildTree(columns: TreeColumns): CallTree {
  const size = columns.depth.length;
  const parent = new Int32Array(size).fill(-1);
  const end = new Int32Array(size);
  const weight = new Float64Array(size);
  const path: number[] = [];
  for (let row = 0; row < size; row++) {
    while (path.length > 0 && columns.depth[path[path.length - 1]] >= columns.depth[row])
      end[path.pop() ?? 0] = row;
    if (path.length > 0) parent[row] = path[path.length - 1];
    path.push(row);
    const value = columns.values.inclusive[row] ?? NaN;
    weight[row] = Number.isFinite(value)
      ? (value * columns.count[row]) / Math.max(1, columns.profiles)
      : 0;
  }
  for (const row of path) end[row] = size;
  return { ...columns, size, parent, end, weight };
}

/** The names from the root to a row. */
export function pathOf(tree: CallTree, row: number): string[] {
  const names: string[] = [];
  for (let at = row; at >= 0; at = tree.parent[at]) names.push(tree.names[tree.name[at]]);
  return names.reverse();
}

export function nameOf(tree: CallTree, row: number): string {
  return tree.names[tree.name[row]];
}

/** A metric of a row; NaN where it is not known. */
export function valueOf(tree: CallTree, metric: Metric, row: number): number {
  return tree.values[metric][row] ?? NaN;
}

/** The rows of these paths; a path that is not there is left out. */
export function rowsOfPaths(tree: CallTree, paths: readonly (readonly string[])[]): number[] {
  const wanted = new Set(paths.map((path) => JSON.stringify(path)));
  if (wanted.size === 0) return [];
  const ends = new Set(paths.map((path) => path[path.length - 1]));
  const found: number[] = [];
  for (let row = 0; row < tree.size; row++)
    if (ends.has(nameOf(tree, row)) && wanted.has(JSON.stringify(pathOf(tree, row))))
      found.push(row);
  return found;
}
