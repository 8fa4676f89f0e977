import { describe, expect, it } from "vitest";
import type { OperatorEdge, OperatorNode } from "@/charts/flow/visible";
import {
  linkStages,
  listOpened,
  listStrategies,
  measureNode,
  searchNodes,
  showFlow,
} from "@/charts/flow/visible";

const node = (id: number, module: string, more: Partial<OperatorNode> = {}): OperatorNode => ({
  ...{ id, kind: "operator", name: `op${id}`, module, stage: 0, phase: "forward", order: id },
  ...{
    block: 0,
    micro_batch: -1,
    operator: id,
    min_ms: 1,
    median_ms: 2,
    max_ms: 4,
    slowest_rank: 0,
  },
  ...{ wait_ms: 0, blame_s: 0, memory_bytes: 10, sharding: null, stack: -1, copy: 0 },
  ...more,
});
const edge = (source: number, target: number, more: Partial<OperatorEdge> = {}): OperatorEdge => ({
  ...{ source, target, evidence: "tensor", long: false, hub: false },
  ...more,
});
const closed = { open: new Set<string>(), unstacked: new Set<number>(), lanesByMicroBatch: false };

describe("the flow on the screen", () => {
  const nodes = [node(0, "embed"), node(1, "blocks.0.mlp"), node(2, "blocks.0.attn"), node(3, "")];
  const edges = [edge(0, 1), edge(1, 2), edge(2, 3, { evidence: "order" }), edge(0, 2)];

  it("shows closed namespaces as one node and what has no module by itself", () => {
    const { nodes: shown, edges: joined } = showFlow(nodes, edges, [], closed);
    expect(shown.map(({ label }) => label)).toEqual(["embed", "blocks", "op3"]);
    expect(joined).toEqual([
      { source: 0, target: 1, evidence: "tensor", quiet: false, count: 2 },
      { source: 1, target: 2, evidence: "order", quiet: false, count: 1 },
    ]);
    expect(measureNode(shown[1], "time")).toBe(4);
    expect(measureNode(shown[1], "spread")).toBe(6);
  });

  it("opens a namespace one level at a time", () => {
    const open = new Set(["0/blocks", "0/blocks.0"]);
    const labels = showFlow(nodes, edges, [], { ...closed, open }).nodes.map(({ label }) => label);
    expect(labels).toEqual(["embed", "blocks.0.mlp", "blocks.0.attn", "op3"]);
  });

  it("opens down to where a namespace splits", () => {
    const deep = [node(0, "gpt.layers.0.mlp"), node(1, "gpt.layers.0.attention")];
    const [only] = showFlow(deep, [], [], closed).nodes;
    const open = new Set(listOpened(only));
    expect([...open]).toEqual(["0/gpt", "0/gpt.layers", "0/gpt.layers.0"]);
    expect(showFlow(deep, [], [], { ...closed, open }).nodes).toHaveLength(2);
  });

  it("says on a closed namespace how what is in it is cut, for sure before by inference", () => {
    const cut = (evidence: "exact" | "inferred" | "unknown", ...slices: number[]) => ({
      sharding: { evidence, slices },
    });
    const sharded = [
      node(0, "blocks.0", cut("inferred", 1, 2)),
      node(1, "blocks.1", cut("inferred", 1, 2)),
      node(2, "blocks.2", cut("exact", 4)),
      node(3, "blocks.3", cut("exact", 1)),
      node(4, "embed", cut("exact", 1, 1)),
      node(5, "head", cut("unknown")),
      node(6, "head", cut("unknown")),
    ];
    const [blocks, embed, head] = showFlow(sharded, [], [], closed).nodes;
    expect(blocks.sharding).toEqual({ evidence: "exact", slices: [4] });
    expect(embed.sharding).toEqual({ evidence: "exact", slices: [1, 1] });
    expect(head.sharding).toBeNull();
    const all = listStrategies(blocks.members.map(({ sharding }) => sharding));
    expect(all.map(({ count }) => count)).toEqual([1, 2]);
  });

  it("knows where each operator stands, a hidden copy with the one that is shown", () => {
    const copies = [0, 1, 2].map((copy) => node(copy, "", { stack: 5, copy }));
    const stack = { id: 5, name: "block", copies: 3, nodes: [0], members: [[0], [1], [2]] };
    const { places } = showFlow([...copies, node(9, "head")], [], [stack], closed);
    expect([0, 1, 2, 9].map((id) => places.get(id))).toEqual([0, 0, 0, 1]);
  });

  it("stacks equal copies as one node with their number, and shows all when asked", () => {
    const copies = [0, 1, 2].map((copy) => node(copy, "", { stack: 5, copy }));
    const all = [...copies, node(9, "")];
    const stack = { id: 5, name: "block", copies: 3, nodes: [0], members: [[0], [1], [2]] };
    const links = [edge(0, 1), edge(1, 2), edge(2, 9)];
    const stacked = showFlow(all, links, [stack], closed);
    expect(stacked.nodes.map(({ copies: count }) => count)).toEqual([3, 1]);
    expect(stacked.edges).toMatchObject([{ source: 0, target: 1 }]);
    expect(measureNode(stacked.nodes[0], "time")).toBe(6);
    const unstacked = new Set([5]);
    expect(showFlow(all, links, [stack], { ...closed, unstacked }).nodes).toHaveLength(4);
  });

  it("keeps forward and backward, stages and micro-batches apart", () => {
    const parts = [
      node(0, "a", { block: 0, micro_batch: 0 }),
      node(1, "a", { block: 0, micro_batch: 1 }),
      node(2, "a", { phase: "backward", block: 0, micro_batch: 0 }),
      node(3, "a", { stage: 1, block: 0, micro_batch: 0 }),
    ];
    expect(showFlow(parts, [], [], closed).nodes).toHaveLength(3);
    const lanes = showFlow(parts, [], [], { ...closed, lanesByMicroBatch: true });
    expect(lanes.nodes).toHaveLength(4);
    expect(lanes.lanes).toHaveLength(3);
  });

  it("keeps an edge quiet only while all that it stands for are", () => {
    const [only] = showFlow(
      [node(0, "a"), node(1, "a"), node(2, "")],
      [edge(0, 2, { long: true }), edge(1, 2, { evidence: "backward" })],
      [],
      closed,
    ).edges;
    expect(only).toMatchObject({ quiet: false, evidence: "tensor", count: 2 });
  });

  it("is searched by name, module and kind", () => {
    const shown = showFlow(nodes, [], [], closed).nodes;
    expect(searchNodes(shown, "ATTN")).toEqual([1]);
    expect(searchNodes(shown, "op3")).toEqual([2]);
    expect(searchNodes(shown, " ")).toEqual([]);
  });
});

describe("several stages in one order", () => {
  const talk = (id: number, kind: string, stage: number, order: number, batch: number) =>
    node(id, "", { name: kind, kind, stage, order, micro_batch: batch });
  // Stage 0 sends two micro-batches; stage 1 receives, and its own orders begin at 0 again.
  const nodes = [
    talk(0, "send", 0, 7, 0),
    talk(1, "send", 0, 8, 1),
    talk(2, "receive", 1, 0, 0),
    talk(3, "receive", 1, 1, 1),
  ];
  const edges = [0, 1].map((i) => edge(i, i + 2, { evidence: "communication" }));

  it("keeps every send before its receive, whatever the stages count", () => {
    const shown = showFlow(nodes, edges, [], { ...closed, lanesByMicroBatch: true });
    expect(shown.edges).toHaveLength(2);
    for (const { source, target } of shown.edges)
      expect(shown.nodes[source].order).toBeLessThan(shown.nodes[target].order);
  });

  it("goes on where exchanges wait for each other in a circle", () => {
    const crossed = [edge(1, 2), edge(3, 0)];
    const shown = showFlow(nodes, crossed, [], closed);
    expect(shown.nodes.map(({ order }) => order)).toEqual([0, 1, 2, 3]);
    const first = shown.nodes
      .filter(({ stage }) => stage === 0)
      .map(({ members }) => members[0].id);
    expect(first).toEqual([0, 1]);
  });

  it("links what nothing of its stage leads to with the node before it", () => {
    const shown = showFlow(nodes, edges, [], { ...closed, lanesByMicroBatch: true });
    const links = linkStages(shown.nodes, shown.edges).map(([a, b]) => [
      shown.nodes[a].members[0].id,
      shown.nodes[b].members[0].id,
    ]);
    expect(links.sort()).toEqual([
      [0, 1],
      [2, 3],
    ]);
  });
});
