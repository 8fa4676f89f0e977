/** A made-up execution graph, for tests and measurements: layers of a model with branches, residuals and lanes. */

import type { FlowGraph } from "@/charts/flow/layout";
import { makeRandom } from "@/charts/marey/synthetic";

/** Build a graph of about `count` nodes: each follows one or two of the last few of its lane. */
export function makeFlow(count: number, lanes: number): FlowGraph {
  const random = makeRandom(11);
  const source: number[] = [];
  const target: number[] = [];
  const lane = Int32Array.from({ length: count }, (_, i) => Math.floor((i * lanes) / count));
  for (let node = 1; node < count; node++) {
    const reach = Math.min(node, 12);
    const first = node - 1 - Math.floor(random() * reach);
    link(first, node);
    if (random() < 0.5) link(node - 1 - Math.floor(random() * reach), node, first);
  }
  return {
    count,
    lane,
    order: Float64Array.from({ length: count }, (_, i) => i),
    source: Int32Array.from(source),
    target: Int32Array.from(target),
  };

  function link(from: number, to: number, other = -1): void {
    if (from === other || lane[from] !== lane[to]) return;
    source.push(from);
    target.push(to);
  }
}
