/** Nested groups → places: every unit a square of the same size, every group a box around its own. */

import type { Arrangement, LayoutKind } from "@/charts/units/arrange";
import { arrange, gridColumns } from "@/charts/units/arrange";
import type { GroupKey, GroupOrder, GroupTree } from "@/charts/units/group";
import { groupUnits } from "@/charts/units/group";
import type { Kept, KeptUnits, Memory } from "@/charts/units/calm";
import { arrangeCalmly, keepCells } from "@/charts/units/calm";

/** How one layer of groups is laid out; lengths in pixels at the zoom that fits everything. */
export interface LayerGeometry {
  layout: LayoutKind;
  size: "uniform" | "count";
  margin: number;
  padding: number;
  label: number;
  aspect: number;
  across: number;
}

export interface UnitGeometry {
  layout: LayoutKind;
  /** Space between units as a share of a cell. */
  gap: number;
  aspect: number;
  across: number;
  /** "end" grows from the far side: bars that stand on the ground. */
  align: "start" | "end";
}

/** Units that are parts of one GPU: which GPU, where the part begins, and how much of it. */
export interface Shares {
  gpu: Int32Array;
  offset: Float32Array;
  share: Float32Array;
}

export interface LayoutRequest {
  rows: Int32Array;
  keys: GroupKey[];
  orders: GroupOrder[];
  unitOrder: { values: ArrayLike<number>; descending: boolean } | null;
  layers: LayerGeometry[];
  unit: UnitGeometry;
  shares: Shares | null;
  viewport: { width: number; height: number };
  /** How much wider than asked for nested groups are made; chosen to fill the window unless given. */
  stretch?: number;
  /** What groups and units are, the same number at every time; only a layout with a memory needs it. */
  ids?: { groups: Int32Array[]; units: Int32Array };
}

/** Places in cells: one unit with its gap is 1 × 1. Unit arrays follow `tree.order`. */
export interface UnitLayout {
  tree: GroupTree;
  x: Float32Array;
  y: Float32Array;
  /** Width of each unit's part of its cell; absent where every unit is a whole GPU. */
  share: Float32Array | null;
  gap: number;
  groupX: Float32Array;
  groupY: Float32Array;
  groupW: Float32Array;
  groupH: Float32Array;
  /** Whether the innermost groups are bars that stand on the ground. */
  bars: boolean;
  /** Height of the label band per layer; the root has none. */
  bands: Float64Array;
  /** Space inside the edge of each layer's boxes. */
  paddings: Float64Array;
  width: number;
  height: number;
  /** Pixels per cell at the zoom that fits everything. */
  fitScale: number;
  /** The stretch that was chosen; giving it back keeps the shape while the data change. */
  stretch: number;
}

interface Chrome {
  band: number;
  padding: number;
  gap: number;
}

// Few large boxes seldom fill a window; other shapes of what is inside them often do.
const STRETCHES = [1, 0.6, 0.8, 1.3, 1.7, 2.3];
const MOST_UNITS_TO_TRY = 20_000;

/** Group and lay out; the same request always gives the same result. */
export function layoutUnits(request: LayoutRequest): UnitLayout {
  return layoutAnew(request, groupUnits({ ...request, weights: request.shares?.share ?? null }));
}

function layoutAnew(request: LayoutRequest, tree: GroupTree, recall?: Recall): UnitLayout {
  const cells = countCells(tree, request.shares);
  const tries =
    request.stretch !== undefined
      ? [request.stretch]
      : tree.layers < 2 || tree.order.length > MOST_UNITS_TO_TRY
        ? [1]
        : STRETCHES;
  let best: UnitLayout | null = null;
  for (const stretch of tries) {
    const layout = settle(request, tree, cells, stretch);
    if (!best || layout.fitScale > best.fitScale * 1.02) best = layout;
  }
  const chosen = best as UnitLayout;
  // Once more at the scale that was settled on, to remember what stands where.
  if (recall)
    return place(request, tree, cells, {
      scale: chosen.fitScale,
      stretch: chosen.stretch,
      tries: 7,
      recall,
    });
  return chosen;
}

/** What a layout starts from, and what it leaves for the next one. */
interface Recall {
  before: Memory | null;
  after: Memory;
  paths: string[];
  /** Give up the room that is not needed any more, without changing who is left of or above whom. */
  compact: boolean;
}

/** A canvas that was filled this much less than when it was packed is packed anew. */
const SPARSE = 0.55;

/** Lay out so that what was there before keeps its place; without a memory like `layoutUnits`. */
export function layoutCalmly(
  request: LayoutRequest,
  before: Memory | null,
): { layout: UnitLayout; memory: Memory } {
  const tree = groupUnits({ ...request, weights: request.shares?.share ?? null });
  const paths = pathsOf(tree, request.ids?.groups ?? []);
  if (before) {
    const calm = layoutFrom(request, tree, { before, paths, compact: false });
    if (calm.memory.fill >= SPARSE * before.fill) {
      calm.memory.fill = Math.max(calm.memory.fill, before.fill);
      return calm;
    }
    return layoutFrom(request, tree, { before, paths, compact: true });
  }
  const after = emptyMemory(1);
  const layout = layoutAnew(request, tree, { before: null, after, paths, compact: false });
  after.stretch = layout.stretch;
  after.fill = fillOf(layout);
  return { layout, memory: after };
}

function layoutFrom(
  request: LayoutRequest,
  tree: GroupTree,
  from: { before: Memory; paths: string[]; compact: boolean },
): { layout: UnitLayout; memory: Memory } {
  const { stretch } = from.before;
  const after = emptyMemory(stretch);
  const cells = countCells(tree, request.shares);
  const round = { scale: 1, stretch, tries: 7, recall: { ...from, after } };
  const layout = place(request, tree, cells, round);
  after.fill = fillOf(layout);
  return { layout, memory: after };
}

function emptyMemory(stretch: number): Memory {
  return { groups: new Map(), leaves: new Map(), chrome: [], stretch, fill: 0 };
}

/** Share of the canvas that units cover. */
function fillOf(layout: UnitLayout): number {
  return layout.x.length / Math.max(1, layout.width * layout.height);
}

function pathsOf(tree: GroupTree, ids: Int32Array[]): string[] {
  const paths = [""];
  for (let layer = 1; layer <= tree.layers; layer++)
    for (let g = tree.layerStart[layer]; g < tree.layerStart[layer + 1]; g++)
      paths.push(`${paths[tree.parent[g]]}/${idOf(tree, ids, layer, g)}`);
  return paths;
}

function idOf(tree: GroupTree, ids: Int32Array[], layer: number, group: number): number {
  const code = tree.code[group];
  return code < 0 ? -1 : (ids[layer - 1]?.[code] ?? code);
}

function settle(
  request: LayoutRequest,
  tree: GroupTree,
  cells: Cells,
  stretch: number,
): UnitLayout {
  const { width, height } = request.viewport;
  // Labels and margins are given in pixels, so their size in cells follows from the scale that they
  // themselves change: a first guess, and one more round settle it.
  const guess = Math.sqrt((0.5 * width * height) / Math.max(1, tree.order.length));
  const first = place(request, tree, cells, { scale: guess, stretch, tries: 2 });
  return place(request, tree, cells, { scale: first.fitScale, stretch, tries: 7 });
}

/** Cell of each unit inside its leaf group: parts of one GPU that meet in a group share a cell. */
interface Cells {
  index: Int32Array | null;
  count: Int32Array;
}

function leafRange(tree: GroupTree): [number, number] {
  return [tree.layerStart[tree.layers], tree.layerStart[tree.layers + 1]];
}

function countCells(tree: GroupTree, shares: Shares | null): Cells {
  if (!shares) return { index: null, count: tree.unitCount };
  const index = new Int32Array(tree.order.length);
  const count = new Int32Array(tree.groups);
  const [first, end] = leafRange(tree);
  for (let g = first; g < end; g++) {
    let cell = -1;
    let gpu = -1;
    let used = 0;
    for (let i = tree.firstUnit[g]; i < tree.firstUnit[g] + tree.unitCount[g]; i++) {
      const unit = tree.order[i];
      const same =
        shares.gpu[unit] >= 0 && shares.gpu[unit] === gpu && shares.offset[unit] >= used - 1e-6;
      if (!same) cell++;
      index[i] = cell;
      gpu = shares.gpu[unit];
      used = shares.offset[unit] + shares.share[unit];
    }
    count[g] = cell + 1;
  }
  return { index, count };
}

interface Round {
  /** Pixels per cell that lengths in pixels are reckoned with. */
  scale: number;
  stretch: number;
  /** How many widths a packing may try. */
  tries: number;
  recall?: Recall;
}

function place(request: LayoutRequest, tree: GroupTree, cells: Cells, round: Round): UnitLayout {
  const { scale, stretch, tries, recall } = round;
  const fresh = unitGrid(request, tree, cells);
  const leaves = recall ? keepLeaves(request, tree, cells, fresh, recall) : null;
  const gridOf: GridOf = leaves
    ? (g) => leaves.grids[g - leaves.first]
    : (g) => fresh(cells.count[g]);
  const w = new Float64Array(tree.groups);
  const h = new Float64Array(tree.groups);
  const dx = new Float64Array(tree.groups);
  const dy = new Float64Array(tree.groups);
  const chrome: Chrome[] = [];
  const [firstLeaf, endLeaf] = leafRange(tree);
  for (let g = firstLeaf; g < endLeaf; g++) {
    const size = gridOf(g);
    w[g] = size.width;
    h[g] = size.height;
  }
  for (let layer = tree.layers; layer >= 1; layer--) {
    const geometry = request.layers[layer - 1];
    const frame =
      recall?.before?.chrome[layer] ?? chromeOf(geometry, scale, typicalSide(tree, layer, w, h));
    chrome[layer] = frame;
    for (let g = tree.layerStart[layer]; g < tree.layerStart[layer + 1]; g++) {
      w[g] += 2 * frame.padding;
      h[g] += 2 * frame.padding + frame.band;
    }
    const rootAspect = request.viewport.width / Math.max(1, request.viewport.height);
    for (let p = tree.layerStart[layer - 1]; p < tree.layerStart[layer]; p++) {
      const aspect = layer === 1 ? rootAspect : geometry.aspect * stretch;
      const options = { gap: frame.gap, aspect, tries };
      const children = { tree, parent: p, layer, ids: request.ids?.groups ?? [] };
      arrangeChildren(children, geometry, options, { w, h, dx, dy }, recall);
    }
  }
  if (recall) recall.after.chrome = chrome;
  const index = leaves?.index ?? cells.index;
  return {
    ...absolute(request, tree, index, gridOf, chrome, { w, h, dx, dy }),
    stretch,
  };
}

interface Boxes {
  w: Float64Array;
  h: Float64Array;
  dx: Float64Array;
  dy: Float64Array;
}

interface Children {
  tree: GroupTree;
  parent: number;
  layer: number;
  ids: Int32Array[];
}

function arrangeChildren(
  children: Children,
  geometry: LayerGeometry,
  options: { gap: number; aspect: number; tries: number },
  boxes: Boxes,
  recall?: Recall,
): void {
  const { tree, parent } = children;
  const first = tree.firstChild[parent];
  const end = first + tree.childCount[parent];
  const widths = boxes.w.subarray(first, end);
  const heights = boxes.h.subarray(first, end);
  if (geometry.size === "uniform") {
    widths.fill(widths.reduce((a, b) => Math.max(a, b), 0));
    heights.fill(heights.reduce((a, b) => Math.max(a, b), 0));
  }
  const placed =
    (recall && arrangeAsBefore(children, geometry, options, { widths, heights }, recall)) ??
    arrange(widths, heights, { ...options, layout: geometry.layout, across: geometry.across });
  boxes.dx.set(placed.x, first);
  boxes.dy.set(placed.y, first);
  boxes.w[parent] = placed.width;
  boxes.h[parent] = placed.height;
  if (recall) rememberChildren(children, boxes, recall);
}

function arrangeAsBefore(
  { tree, parent, layer, ids }: Children,
  geometry: LayerGeometry,
  options: { gap: number; aspect: number },
  sizes: { widths: Float64Array; heights: Float64Array },
  recall: Recall,
): Arrangement | null {
  const kept = recall.before?.groups.get(recall.paths[parent]);
  if (!kept) return null;
  const first = tree.firstChild[parent];
  const own = Int32Array.from(sizes.widths, (_, i) => idOf(tree, ids, layer, first + i));
  // Groups of groups keep their sides always; the innermost ones are packed anew where that saves much.
  return arrangeCalmly(own, sizes.widths, sizes.heights, kept, {
    ...options,
    uniform: geometry.size === "uniform",
    keepSides: layer < tree.layers,
    compact: recall.compact,
  });
}

function rememberChildren(
  { tree, parent, layer, ids }: Children,
  { w, h, dx, dy }: Boxes,
  { after, paths }: Recall,
): void {
  const boxes: Kept["boxes"] = new Map();
  const first = tree.firstChild[parent];
  for (let g = first; g < first + tree.childCount[parent]; g++)
    boxes.set(idOf(tree, ids, layer, g), { x: dx[g], y: dy[g], w: w[g], h: h[g] });
  after.groups.set(paths[parent], { boxes, width: w[parent], height: h[parent] });
}

interface Leaves {
  first: number;
  grids: ReturnType<Grid>[];
  /** The cell of each unit inside its leaf, in the order of the tree. */
  index: Int32Array;
}

/** Cells of the units where their order says nothing: each keeps its own. */
function keepLeaves(
  request: LayoutRequest,
  tree: GroupTree,
  cells: Cells,
  fresh: Grid,
  { before, after, paths, compact }: Recall,
): Leaves | null {
  const bars = request.unit.layout.startsWith("fill");
  if (bars || request.shares || request.unitOrder || !request.ids) return null;
  const [first, end] = leafRange(tree);
  const index = new Int32Array(tree.order.length);
  const grids: ReturnType<Grid>[] = [];
  for (let g = first; g < end; g++) {
    const from = tree.firstUnit[g];
    const ids = tree.order
      .subarray(from, from + tree.unitCount[g])
      .map((unit) => (request.ids as { units: Int32Array }).units[unit]);
    const was = compact ? undefined : before?.leaves.get(paths[g]);
    const { kept, cells: own, grid } = keepLeaf(ids, was, fresh, cells.count[g]);
    index.set(own, from);
    grids.push(grid);
    after.leaves.set(paths[g], kept);
  }
  return { first, grids, index };
}

function keepLeaf(
  ids: Int32Array,
  was: KeptUnits | undefined,
  fresh: Grid,
  units: number,
): { kept: KeptUnits; cells: Int32Array; grid: ReturnType<Grid> } {
  const anew = fresh(units);
  const { cells, count } = keepCells(ids, was);
  let grid = anew;
  if (was) {
    const lines = Math.ceil(count / was.perLine);
    const [along, across] = [Math.min(count, was.perLine), lines];
    grid = anew.byRow
      ? { ...anew, perLine: was.perLine, width: along, height: across }
      : { ...anew, perLine: was.perLine, width: across, height: along };
  }
  const shape = (size: ReturnType<Grid>) => size.width / size.height;
  const bent = Math.max(shape(grid) / shape(anew), shape(anew) / shape(grid));
  if (was && bent > 2.5 && count > 4) return keepLeaf(ids, undefined, fresh, units);
  const kept = { perLine: grid.perLine, cells: new Map<number, number>() };
  ids.forEach((id, i) => kept.cells.set(id, cells[i]));
  return { kept, cells, grid };
}

/** Pixels → cells, bounded by the size of the boxes: small groups keep their room for their units. */
function chromeOf(geometry: LayerGeometry, scale: number, side: number): Chrome {
  const wanted = (geometry.label * 1.35) / scale / side;
  return {
    // A label that would be too large at this zoom gets a thin band, and appears as one zooms in.
    band: side * Math.min(wanted, Math.max(0.08, 0.3 - 0.25 * wanted)),
    padding: Math.min(geometry.padding / scale, side * 0.04),
    gap: Math.min(geometry.margin / scale, side * 0.09),
  };
}

function typicalSide(tree: GroupTree, layer: number, w: Float64Array, h: Float64Array): number {
  let sum = 0;
  const [from, to] = [tree.layerStart[layer], tree.layerStart[layer + 1]];
  for (let g = from; g < to; g++) sum += Math.sqrt(w[g] * h[g]);
  return to > from ? sum / (to - from) : 1;
}

type GridOf = (group: number) => ReturnType<Grid>;

type Grid = (n: number) => { perLine: number; byRow: boolean; width: number; height: number };

/** How many cells stand in a line of a leaf group, by its count. */
function unitGrid({ unit, keys, viewport }: LayoutRequest, tree: GroupTree, cells: Cells): Grid {
  const aspect = keys.length === 0 ? viewport.width / Math.max(1, viewport.height) : unit.aspect;
  const byRow = unit.layout === "pack" || unit.layout === "list_x" || unit.layout === "fill_y";
  const known = new Map<number, ReturnType<Grid>>();
  const fixed =
    unit.across > 0 ? unit.across : unit.layout.startsWith("fill") ? fillAcross(tree, cells) : 0;
  const leastHigh = isBars(unit) ? leastBarHeight(tree, cells, fixed) : 0;
  return (n) => {
    let size = known.get(n);
    if (!size) {
      const perLine = fixed || gridColumns(n, 1, 1, byRow ? aspect : 1 / aspect);
      const lines = Math.ceil(n / perLine);
      // Fill keeps its fixed side even where one line is not full; the others shrink to what is there.
      const side = unit.layout.startsWith("fill") ? perLine : Math.min(n, perLine);
      const high = Math.max(byRow ? lines : side, leastHigh);
      size = { perLine, byRow, width: byRow ? side : lines, height: high };
      known.set(n, size);
    }
    return size;
  };
}

/** A bar's breadth: the same for all, so that lengths compare; the longest comes to about 1 : 7. */
function fillAcross(tree: GroupTree, cells: Cells): number {
  return Math.max(1, Math.round(Math.sqrt(mostCells(tree, cells) / 7)));
}

function mostCells(tree: GroupTree, cells: Cells): number {
  const [first, end] = leafRange(tree);
  let most = 1;
  for (let g = first; g < end; g++) most = Math.max(most, cells.count[g]);
  return most;
}

/** Whether units are bars that stand on the ground. */
function isBars(unit: LayoutRequest["unit"]): boolean {
  return unit.align === "end" && unit.layout === "fill_y";
}

/** Of several charts of bars the low ones have room for the names above their bars too. */
const LEAST_BAR = 0.5;

function leastBarHeight(tree: GroupTree, cells: Cells, across: number): number {
  return Math.ceil((LEAST_BAR * mostCells(tree, cells)) / across);
}

function absolute(
  request: LayoutRequest,
  tree: GroupTree,
  cellOf: Int32Array | null,
  gridOf: GridOf,
  chrome: Chrome[],
  boxes: Boxes,
): Omit<UnitLayout, "stretch"> {
  const { w, h, dx, dy } = boxes;
  for (let layer = 1; layer <= tree.layers; layer++) {
    const above = chrome[layer - 1] ?? { band: 0, padding: 0, gap: 0 };
    for (let g = tree.layerStart[layer]; g < tree.layerStart[layer + 1]; g++) {
      const p = tree.parent[g];
      dx[g] += dx[p] + above.padding;
      dy[g] += dy[p] + above.padding + above.band;
    }
  }
  const x = new Float32Array(tree.order.length);
  const y = new Float32Array(tree.order.length);
  const inner = chrome[tree.layers] ?? { band: 0, padding: 0, gap: 0 };
  const [first, end] = leafRange(tree);
  for (let g = first; g < end; g++) {
    const { perLine, byRow, width, height } = gridOf(g);
    const box = {
      left: dx[g] + inner.padding,
      top: dy[g] + inner.padding + inner.band,
      right: dx[g] + Math.max(w[g] - inner.padding, width),
      bottom: dy[g] + Math.max(h[g] - inner.padding, height + inner.band),
    };
    const fromEnd = request.unit.align === "end";
    const start = tree.firstUnit[g];
    for (let i = 0; i < tree.unitCount[g]; i++) {
      const cell = cellOf ? cellOf[start + i] : i;
      const line = Math.floor(cell / perLine);
      const along = cell - line * perLine;
      if (byRow) {
        x[start + i] = box.left + along;
        y[start + i] = fromEnd ? box.bottom - 1 - line : box.top + line;
      } else {
        x[start + i] = fromEnd ? box.right - 1 - line : box.left + line;
        y[start + i] = box.top + along;
      }
    }
  }
  const share = request.shares ? spreadShares(tree, request.shares, x) : null;
  const { width, height } = request.viewport;
  const fitScale = Math.min(width / Math.max(1, w[0]), height / Math.max(1, h[0]));
  return {
    tree,
    x,
    y,
    share,
    gap: request.unit.gap,
    bars: isBars(request.unit) && tree.layers > 0,
    groupX: Float32Array.from(dx),
    groupY: Float32Array.from(dy),
    groupW: Float32Array.from(w),
    groupH: Float32Array.from(h),
    bands: Float64Array.from({ length: tree.layers + 1 }, (_, layer) => chrome[layer]?.band ?? 0),
    paddings: Float64Array.from(
      { length: tree.layers + 1 },
      (_, layer) => chrome[layer]?.padding ?? 0,
    ),
    width: w[0],
    height: h[0],
    fitScale,
  };
}

/** Move each part of a GPU to its own strip of the cell. */
function spreadShares(tree: GroupTree, shares: Shares, x: Float32Array): Float32Array {
  const share = new Float32Array(x.length);
  for (let i = 0; i < x.length; i++) {
    const unit = tree.order[i];
    share[i] = shares.share[unit];
    x[i] += shares.offset[unit];
  }
  return share;
}
