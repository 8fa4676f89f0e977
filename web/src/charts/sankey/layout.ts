/**
 * The layout of an ensemble-Sankey: supernodes in columns, flows as ribbons, loops as arcs.
 *
 * Columns are the longest way from a root over the flows that are no loops; a flow that would close a cycle is drawn
 * as a loop, whatever it was marked as, so the layout never fails. Within a column the order follows the barycentres
 * of the neighbours, swept a few times in both directions (Sugiyama et al., 1981). Heights share one scale; the gaps
 * shrink before a node does, and no node is thinner than a line.
 */

export interface FlowNode {
  name: string;
  /** Inclusive time: the height. */
  value: number;
}

export interface Flow {
  source: number;
  target: number;
  value: number;
  loop: boolean;
  /** The value of the target profile, if one is marked. */
  ofTarget: number | null;
}

export interface PlacedNode {
  index: number;
  column: number;
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface PlacedFlow {
  flow: Flow;
  loop: boolean;
  /** Ends at the right of the source and the left of the target; y is the upper edge. */
  x0: number;
  y0: number;
  x1: number;
  y1: number;
  thickness: number;
  /** Thickness of the target profile's part. */
  targetThickness: number;
}

export interface SankeyLayout {
  nodes: PlacedNode[];
  flows: PlacedFlow[];
  width: number;
  height: number;
  columns: number;
  /** Room for the labels right of the last column. */
  labels: number;
  /** Pixels per unit of time. */
  scale: number;
}

export interface SankeySize {
  width: number;
  height: number;
  /** Room for the labels right of the last column. */
  labels: number;
}

const NODE_WIDTH = 22;
const THINNEST = 1.5;
const LARGEST_GAP = 14;
const SWEEPS = 4;

/** Place nodes and flows in a rectangle. */
export function layoutSankey(
  nodes: readonly FlowNode[],
  flows: readonly Flow[],
  size: SankeySize,
): SankeyLayout {
  const known = flows.filter(
    ({ source, target, value }) => nodes[source] && nodes[target] && value > 0,
  );
  const loops = known.map((flow) => flow.loop || flow.source === flow.target);
  const column = findColumns(nodes.length, known, loops);
  const count = nodes.length ? Math.max(...column) + 1 : 0;
  const members = orderColumns(nodes, known, loops, column, count);
  const { scale, gap } = findScale(nodes, members, size.height);
  const step = count > 1 ? (size.width - size.labels - NODE_WIDTH) / (count - 1) : 0;
  const placed: PlacedNode[] = new Array<PlacedNode>(nodes.length);
  members.forEach((rows, at) => {
    const heights = rows.map((index) => Math.max(THINNEST, finite(nodes[index].value) * scale));
    const used = heights.reduce((sum, one) => sum + one, 0) + gap * (rows.length - 1);
    let y = Math.max(0, (size.height - used) / 2);
    rows.forEach((index, row) => {
      const height = heights[row];
      placed[index] = { index, column: at, x: at * step, y, width: NODE_WIDTH, height };
      y += height + gap;
    });
  });
  const ribbons = placeFlows(known, loops, placed, scale);
  return { nodes: placed, flows: ribbons, ...size, columns: count, scale };
}

function finite(value: number): number {
  return Number.isFinite(value) && value > 0 ? value : 0;
}

/** Longest way from a root; `loops` is completed by the flows that close a cycle. */
function findColumns(count: number, flows: readonly Flow[], loops: boolean[]): number[] {
  const out = Array.from({ length: count }, (): number[] => []);
  flows.forEach((flow, i) => {
    if (!loops[i]) out[flow.source].push(i);
  });
  const state = new Uint8Array(count);
  const order: number[] = [];
  for (let root = 0; root < count; root++) {
    if (state[root]) continue;
    // By hand: a chain of thousands of nodes must not exhaust the stack.
    const stack: [number, number][] = [[root, 0]];
    state[root] = 1;
    while (stack.length > 0) {
      const top = stack[stack.length - 1];
      const edge = out[top[0]][top[1]++];
      if (edge === undefined) {
        state[top[0]] = 2;
        order.push(top[0]);
        stack.pop();
        continue;
      }
      const next = flows[edge].target;
      if (state[next] === 1) loops[edge] = true;
      else if (state[next] === 0) {
        state[next] = 1;
        stack.push([next, 0]);
      }
    }
  }
  const column = new Array<number>(count).fill(0);
  for (let i = order.length - 1; i >= 0; i--) {
    const node = order[i];
    for (const edge of out[node]) {
      const next = flows[edge].target;
      if (!loops[edge] && column[next] <= column[node]) column[next] = column[node] + 1;
    }
  }
  return column;
}

function orderColumns(
  nodes: readonly FlowNode[],
  flows: readonly Flow[],
  loops: readonly boolean[],
  column: readonly number[],
  count: number,
): number[][] {
  const members = Array.from({ length: count }, (): number[] => []);
  column.forEach((at, index) => members[at].push(index));
  for (const rows of members) rows.sort((a, b) => nodes[b].value - nodes[a].value);
  const place = new Float64Array(nodes.length);
  const settle = (rows: number[]) =>
    rows.forEach((index, row) => (place[index] = row / rows.length));
  members.forEach(settle);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const forward = sweep % 2 === 0;
    const pull = pulls(nodes.length, flows, loops, place, forward);
    const visit = forward ? members : [...members].reverse();
    for (const rows of visit) {
      const key = (index: number) => (Number.isNaN(pull[index]) ? place[index] : pull[index]);
      rows.sort((a, b) => key(a) - key(b) || nodes[b].value - nodes[a].value);
      settle(rows);
    }
  }
  return members;
}

/** The mean place of a node's callers (forward) or of what it calls, weighted by the flow. */
function pulls(
  count: number,
  flows: readonly Flow[],
  loops: readonly boolean[],
  place: Float64Array,
  forward: boolean,
): Float64Array {
  const [sum, weight] = [new Float64Array(count), new Float64Array(count)];
  flows.forEach(({ source, target, value }, i) => {
    if (loops[i]) return;
    const [at, from] = forward ? [target, source] : [source, target];
    sum[at] += place[from] * value;
    weight[at] += value;
  });
  return sum.map((one, i) => (weight[i] > 0 ? one / weight[i] : NaN));
}

/** The scale at which the fullest column fits, and the gap between its nodes. */
function findScale(
  nodes: readonly FlowNode[],
  members: readonly number[][],
  height: number,
): { scale: number; gap: number } {
  const longest = Math.max(1, ...members.map((rows) => rows.length));
  const gap = Math.min(LARGEST_GAP, (height * 0.35) / longest);
  let scale = Infinity;
  for (const rows of members) {
    const sum = rows.reduce((all, index) => all + finite(nodes[index].value), 0);
    const room = height - gap * (rows.length - 1) - THINNEST * rows.length;
    if (sum > 0) scale = Math.min(scale, Math.max(0, room) / sum);
  }
  return { scale: Number.isFinite(scale) ? scale : 0, gap };
}

function placeFlows(
  flows: readonly Flow[],
  loops: readonly boolean[],
  placed: readonly PlacedNode[],
  scale: number,
): PlacedFlow[] {
  const shrink = flowShrink(flows, loops, placed, scale);
  const order = flows
    .map((_, i) => i)
    .sort(
      (a, b) =>
        placed[flows[a].target].y - placed[flows[b].target].y ||
        placed[flows[a].source].y - placed[flows[b].source].y,
    );
  const [left, right] = [new Float64Array(placed.length), new Float64Array(placed.length)];
  const found: PlacedFlow[] = [];
  for (const i of order) {
    const flow = flows[i];
    const [from, to] = [placed[flow.source], placed[flow.target]];
    const width = flow.value * scale;
    const thickness = loops[i]
      ? Math.min(width, 6)
      : width * Math.min(shrink[flow.source], shrink[flow.target + placed.length]);
    found.push({
      flow,
      loop: loops[i],
      x0: from.x + from.width,
      y0: loops[i] ? from.y + Math.min(from.height, 8) : from.y + right[flow.source],
      x1: to.x,
      y1: loops[i] ? to.y + Math.min(to.height, 8) : to.y + left[flow.target],
      thickness: Math.max(0.5, thickness),
      targetThickness:
        flow.ofTarget === null ? 0 : (thickness * Math.max(0, flow.ofTarget)) / flow.value,
    });
    if (!loops[i]) {
      right[flow.source] += thickness;
      left[flow.target] += thickness;
    }
  }
  return found;
}

/** What flows must shrink by so that they do not leave their node: work that runs beside its caller can exceed it. */
function flowShrink(
  flows: readonly Flow[],
  loops: readonly boolean[],
  placed: readonly PlacedNode[],
  scale: number,
): Float64Array {
  const sums = new Float64Array(2 * placed.length);
  flows.forEach(({ source, target, value }, i) => {
    if (loops[i]) return;
    sums[source] += value * scale;
    sums[target + placed.length] += value * scale;
  });
  return sums.map((sum, i) => {
    const { height } = placed[i % placed.length];
    return sum > height ? height / sum : 1;
  });
}

/** The node under a point, or -1. */
export function nodeAt(layout: SankeyLayout, x: number, y: number): number {
  const found = layout.nodes.find(
    (node) =>
      x >= node.x - 2 &&
      x <= node.x + node.width + 2 &&
      y >= node.y - 2 &&
      y <= node.y + node.height + 2,
  );
  return found ? found.index : -1;
}
