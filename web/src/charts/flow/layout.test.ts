import { describe, expect, it } from "vitest";
import type { FlowGraph } from "@/charts/flow/layout";
import { layoutFlow, NODE_HEIGHT } from "@/charts/flow/layout";
import { makeFlow } from "@/charts/flow/synthetic";

const small = (edges: [number, number][], lane: number[]): FlowGraph => ({
  count: lane.length,
  lane: Int32Array.from(lane),
  order: Float64Array.from(lane, (_, i) => i),
  source: Int32Array.from(edges, ([a]) => a),
  target: Int32Array.from(edges, ([, b]) => b),
});

/** How often two edges between the same layers cross. */
function countCrossings(graph: FlowGraph, layer: Int32Array, y: Float32Array): number {
  let crossings = 0;
  for (let a = 0; a < graph.source.length; a++)
    for (let b = a + 1; b < graph.source.length; b++) {
      const [s, t, u, v] = [graph.source[a], graph.target[a], graph.source[b], graph.target[b]];
      if (layer[s] !== layer[u] || layer[t] !== layer[v]) continue;
      if ((y[s] - y[u]) * (y[t] - y[v]) < 0) crossings++;
    }
  return crossings;
}

describe("the layout of the execution flow", () => {
  it("goes from left to right along the edges", () => {
    const graph = makeFlow(600, 3);
    const { x } = layoutFlow(graph);
    for (let e = 0; e < graph.source.length; e++)
      expect(x[graph.target[e]]).toBeGreaterThan(x[graph.source[e]]);
  });

  it("puts no node over another and mixes no lanes", () => {
    const graph = makeFlow(600, 3);
    const { layer, y, laneTop } = layoutFlow(graph);
    for (const at of new Set(layer)) {
      const heights = [...y].filter((_, node) => layer[node] === at).sort((a, b) => a - b);
      heights.slice(1).forEach((height, i) => {
        expect(height - heights[i]).toBeGreaterThanOrEqual(NODE_HEIGHT);
      });
    }
    graph.lane.forEach((lane, node) => {
      expect(y[node]).toBeGreaterThan(laneTop[lane]);
      expect(y[node]).toBeLessThan(laneTop[lane + 1]);
    });
  });

  it("untangles edges that need not cross", () => {
    const graph = small(
      [
        [0, 4],
        [1, 3],
        [2, 5],
      ],
      [0, 0, 0, 0, 0, 0],
    );
    const { layer, y } = layoutFlow(graph);
    expect(countCrossings(graph, layer, y)).toBe(0);
  });

  it("keeps a chain straight", () => {
    const chain = Array.from({ length: 30 }, (_, i): [number, number] => [i, i + 1]);
    const { y } = layoutFlow(
      small(
        chain,
        Array.from({ length: 31 }, () => 0),
      ),
    );
    expect(Math.max(...y) - Math.min(...y)).toBe(0);
  });

  it("is the same every time, edges against the order included", () => {
    const graph = small(
      [
        [0, 1],
        [1, 2],
        [2, 0],
        [3, 3],
      ],
      [0, 1, 0, 1],
    );
    expect(layoutFlow(graph)).toEqual(layoutFlow(graph));
    expect(layoutFlow(makeFlow(2000, 4))).toEqual(layoutFlow(makeFlow(2000, 4)));
  });

  it("takes an empty graph", () => {
    expect(layoutFlow(small([], []))).toMatchObject({ width: 168 });
  });
});
