/**
 * A layered layout of an execution graph, in typed arrays.
 *
 * Layers by longest path along the execution order; crossings reduced by barycentre sweeps with dummy nodes where an
 * edge passes layers; heights by the median of neighbours under a least distance (after Sugiyama, Tagawa and Toda,
 * 1981, and Gansner et al., 1993). Lanes (stages, micro-batches) lie below each other and never mix. Edges that pass
 * more than `LONG_LAYERS` layers pull nothing: they are hidden until somebody asks. The same graph always gets the same
 * picture.
 */

export interface FlowGraph {
  count: number;
  /** Lane of each node, from 0. */
  lane: Int32Array;
  /** Place in execution order; edges against it are drawn but shape nothing. */
  order: Float64Array;
  source: Int32Array;
  target: Int32Array;
}

export interface FlowLayout {
  /** Middle of each node. */
  x: Float32Array;
  y: Float32Array;
  layer: Int32Array;
  /** Where each lane begins, and at the end where the last one ends. */
  laneTop: Float32Array;
  width: number;
  height: number;
}

export const NODE_WIDTH = 116;
export const NODE_HEIGHT = 34;
const LAYER_STEP = 168;
const ROW_STEP = 48;
const LANE_GAP = 24;
export const LONG_LAYERS = 7;
/** Sweeps over a graph: as many as its size allows, so that a large one costs hardly more than a middling one. */
const SWEPT_NODES = 120_000;
const [LEAST_SWEEPS, MOST_SWEEPS] = [2, 12];
/** Up to this many nodes a layer, which is nearly in order after the first sweep, is sorted by insertion. */
const SHORT_LAYER = 96;

/** Lay a graph out from left to right. */
export function layoutFlow(graph: FlowGraph): FlowLayout {
  const layer = findLayers(graph);
  const net = makeNet(graph, layer);
  const affordable = Math.round(SWEPT_NODES / Math.max(1, graph.count));
  sweepOrders(net, Math.min(MOST_SWEEPS, Math.max(LEAST_SWEEPS, affordable)));
  const row = placeRows(net, affordable > LEAST_SWEEPS ? 3 : 2);
  return readLayout(graph, layer, net, row);
}

/** Layer of each node: one behind the last of its predecessors. */
function findLayers({ count, order, source, target }: FlowGraph): Int32Array {
  const sequence = sortByOrder(count, order);
  const rank = new Int32Array(count);
  sequence.forEach((node, i) => (rank[node] = i));
  const { begin, other } = adjacency(count, source, target);
  const layer = new Int32Array(count);
  for (const node of sequence)
    for (let k = begin[node]; k < begin[node + 1]; k++) {
      const next = other[k];
      if (rank[next] > rank[node]) layer[next] = Math.max(layer[next], layer[node] + 1);
    }
  return layer;
}

/** Nodes in execution order; most graphs come in it, and sorting them again would cost as much as all the rest. */
function sortByOrder(count: number, order: Float64Array): Int32Array {
  const sequence = new Int32Array(count);
  let sorted = true;
  for (let i = 0; i < count; i++) {
    sequence[i] = i;
    if (i > 0 && order[i] < order[i - 1]) sorted = false;
  }
  return sorted ? sequence : sequence.sort((a, b) => order[a] - order[b] || a - b);
}

/** Neighbours behind each node, as one list with the place where each node's part begins. */
function adjacency(
  count: number,
  from: Int32Array,
  to: Int32Array,
): { begin: Int32Array; other: Int32Array } {
  const begin = new Int32Array(count + 1);
  for (const node of from) begin[node + 1]++;
  for (let i = 0; i < count; i++) begin[i + 1] += begin[i];
  const place = begin.slice();
  const other = new Int32Array(from.length);
  for (let e = 0; e < from.length; e++) other[place[from[e]]++] = to[e];
  return { begin, other };
}

/**
 * Nodes and dummies by layer, with links between neighbouring layers only.
 *
 * They are numbered layer by layer, so that what is looked at together lies together: with the numbers of the graph a
 * sweep over 50,000 nodes waits for memory most of the time.
 */
interface Net {
  size: number;
  /** Number of each node of the graph here. */
  number: Int32Array;
  lane: Int32Array;
  lanes: number;
  /** Nodes of layer l stand from `begin[l]` to `begin[l + 1]` in `sequence`. */
  begin: Int32Array;
  sequence: Int32Array;
  /** Place of each node within its lane and layer. */
  place: Float32Array;
  behind: { begin: Int32Array; other: Int32Array };
  before: { begin: Int32Array; other: Int32Array };
}

function makeNet(graph: FlowGraph, layer: Int32Array): Net {
  const { from, to, lane, layers } = splitEdges(graph, layer);
  const size = lane.length;
  const depth = layers.reduce((most, value) => Math.max(most, value), 0) + 1;
  const begin = new Int32Array(depth + 1);
  for (const value of layers) begin[value + 1]++;
  for (let l = 0; l < depth; l++) begin[l + 1] += begin[l];
  const fill = begin.slice();
  const number = new Int32Array(size);
  const lanes = new Int32Array(size);
  for (let node = 0; node < size; node++) {
    number[node] = fill[layers[node]]++;
    lanes[number[node]] = lane[node];
  }
  for (let e = 0; e < from.length; e++) {
    from[e] = number[from[e]];
    to[e] = number[to[e]];
  }
  const net: Net = {
    size,
    number,
    lane: lanes,
    lanes: lane.reduce((most, value) => Math.max(most, value), 0) + 1,
    begin,
    sequence: new Int32Array(size).map((_, i) => i),
    place: new Float32Array(size),
    behind: adjacency(size, from, to),
    before: adjacency(size, to, from),
  };
  const keys = new Float64Array(size);
  for (let l = 0; l < depth; l++) sortLayer(net, l, keys);
  return net;
}

/** Links of neighbouring layers: an edge that passes layers becomes a chain of dummies. */
function splitEdges({ count, lane, source, target }: FlowGraph, layer: Int32Array) {
  let dummies = 0;
  let links = 0;
  const pulls = (e: number) => {
    const span = layer[target[e]] - layer[source[e]];
    return span > 0 && span <= LONG_LAYERS ? span : 0;
  };
  for (let e = 0; e < source.length; e++) {
    const span = pulls(e);
    links += span;
    dummies += Math.max(0, span - 1);
  }
  const size = count + dummies;
  const [from, to] = [new Int32Array(links), new Int32Array(links)];
  const lanes = new Int32Array(size);
  const layers = new Int32Array(size);
  lanes.set(lane);
  layers.set(layer);
  let [link, dummy] = [0, count];
  for (let e = 0; e < source.length; e++) {
    const span = pulls(e);
    let previous = source[e];
    for (let step = 1; step <= span; step++) {
      const next = step === span ? target[e] : dummy++;
      if (step < span) {
        layers[next] = layer[source[e]] + step;
        lanes[next] = lane[source[e]];
      }
      from[link] = previous;
      to[link++] = next;
      previous = next;
    }
  }
  return { from, to, lane: lanes, layers };
}

/** Move through the layers forwards and backwards, each time ordered by where the neighbours stand. */
function sweepOrders(net: Net, sweeps: number): void {
  const depth = net.begin.length - 1;
  const keys = new Float64Array(net.size);
  for (let sweep = 0; sweep < sweeps; sweep++) {
    const forwards = sweep % 2 === 0;
    const side = forwards ? net.before : net.behind;
    for (let step = 1; step < depth; step++) {
      const l = forwards ? step : depth - 1 - step;
      for (let i = net.begin[l]; i < net.begin[l + 1]; i++) {
        const node = net.sequence[i];
        keys[node] = barycentre(net.place, side, node);
      }
      sortLayer(net, l, keys);
    }
  }
}

function barycentre(
  place: Float32Array,
  { begin, other }: { begin: Int32Array; other: Int32Array },
  node: number,
): number {
  const [first, last] = [begin[node], begin[node + 1]];
  if (first === last) return place[node];
  let sum = 0;
  for (let k = first; k < last; k++) sum += place[other[k]];
  return sum / (last - first);
}

/** Order a layer by lane, then by key, ties as they were; and number the places within each lane. */
function sortLayer(net: Net, l: number, keys: Float64Array): void {
  const [first, last] = [net.begin[l], net.begin[l + 1]];
  const { sequence, lane, place } = net;
  if (last - first > SHORT_LAYER) sortLong(net, first, last, keys);
  else
    for (let i = first + 1; i < last; i++) {
      const node = sequence[i];
      let j = i - 1;
      while (j >= first && comesAfter(sequence[j], node, lane, keys)) {
        sequence[j + 1] = sequence[j];
        j--;
      }
      sequence[j + 1] = node;
    }
  let count = 0;
  for (let i = first; i < last; i++) {
    if (i > first && lane[sequence[i]] !== lane[sequence[i - 1]]) count = 0;
    place[sequence[i]] = count++;
  }
}

function comesAfter(a: number, b: number, lane: Int32Array, keys: Float64Array): boolean {
  return lane[a] > lane[b] || (lane[a] === lane[b] && keys[a] > keys[b]);
}

/** Sort a long layer by one number that holds lane, key and place: typed arrays sort those fastest. */
function sortLong({ sequence, lane }: Net, first: number, last: number, keys: Float64Array): void {
  const count = last - first;
  const packed = new Float64Array(count);
  const before = sequence.slice(first, last);
  for (let i = 0; i < count; i++) {
    const node = before[i];
    const key = Math.min(1_048_575, Math.max(0, Math.round(keys[node] * 16)));
    packed[i] = (lane[node] * 1_048_576 + key) * 65_536 + Math.min(65_535, i);
  }
  if (count > 65_536) {
    // More than the packing holds: the slow way, which is still the same every time.
    before.sort((a, b) => lane[a] - lane[b] || keys[a] - keys[b] || a - b);
    sequence.set(before, first);
    return;
  }
  packed.sort();
  for (let i = 0; i < count; i++) sequence[first + i] = before[packed[i] % 65_536];
}

/** Height of each node in rows of its lane: near its neighbours, at least one row from the next. */
function placeRows(net: Net, passes: number): Float32Array {
  const row = net.place.slice();
  const depth = net.begin.length - 1;
  for (const side of [net.before, net.behind, net.before].slice(-passes))
    for (let step = 0; step < depth; step++) {
      const l = side === net.behind ? depth - 1 - step : step;
      alignLayer(net, l, side, row);
    }
  return row;
}

function alignLayer(net: Net, l: number, side: Net["before"], row: Float32Array): void {
  const { sequence, lane, begin } = net;
  let i = begin[l];
  while (i < begin[l + 1]) {
    let end = i;
    while (end < begin[l + 1] && lane[sequence[end]] === lane[sequence[i]]) end++;
    alignRun(net, [i, end], side, row);
    i = end;
  }
}

/** Move the nodes of one lane in one layer towards their neighbours without changing their order. */
function alignRun(
  { sequence }: Net,
  [first, last]: readonly [number, number],
  side: Net["before"],
  row: Float32Array,
): void {
  let shift = 0;
  for (let i = first; i < last; i++) {
    const node = sequence[i];
    const wish = barycentre(row, side, node);
    const least = i > first ? row[sequence[i - 1]] + 1 : 0;
    shift += wish - Math.max(wish, least);
    row[node] = Math.max(wish, least);
  }
  // Those that were pushed down drag the whole run up by the mean of what they lost.
  const up = Math.max(shift / (last - first), -row[sequence[first]]);
  for (let i = first; i < last; i++) row[sequence[i]] += up;
}

function readLayout(
  { count, lane }: FlowGraph,
  layer: Int32Array,
  net: Net,
  row: Float32Array,
): FlowLayout {
  const rows = new Float32Array(net.lanes);
  for (let node = 0; node < count; node++)
    rows[lane[node]] = Math.max(rows[lane[node]], row[net.number[node]] + 1);
  const laneTop = new Float32Array(net.lanes + 1);
  for (let l = 0; l < net.lanes; l++)
    laneTop[l + 1] = laneTop[l] + Math.max(1, rows[l]) * ROW_STEP + LANE_GAP;
  const x = new Float32Array(count);
  const y = new Float32Array(count);
  for (let node = 0; node < count; node++) {
    x[node] = layer[node] * LAYER_STEP + LAYER_STEP / 2;
    y[node] = laneTop[lane[node]] + LANE_GAP / 2 + (row[net.number[node]] + 0.5) * ROW_STEP;
  }
  const depth = net.begin.length - 1;
  return { x, y, layer, laneTop, width: depth * LAYER_STEP, height: laneTop[net.lanes] };
}
