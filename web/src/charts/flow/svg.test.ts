import { describe, expect, it } from "vitest";
import type { FlowDrawing } from "@/charts/flow/draw";
import { fitCamera } from "@/charts/flow/draw";
import { layoutFlow } from "@/charts/flow/layout";
import { makeFlowSvg } from "@/charts/flow/svg";
import type { OperatorNode } from "@/charts/flow/visible";
import { showFlow } from "@/charts/flow/visible";
import { makePalette } from "@/charts/marey/kinds";

const operator = (id: number, name: string): OperatorNode => ({
  ...{ id, kind: "operator", name, module: "", stage: 0, phase: "forward", order: id, block: 0 },
  ...{ micro_batch: -1, operator: id, min_ms: 1, median_ms: 2, max_ms: 4, slowest_rank: 0 },
  ...{ wait_ms: 0, blame_s: 0, memory_bytes: 0, stack: -1, copy: 0 },
  sharding: { evidence: "exact", slices: [2, 1] },
});

function draw(names: readonly string[]): FlowDrawing {
  const edges = names.slice(1).map((_, i) => ({
    ...{ source: i, target: i + 1, evidence: "order", long: false, hub: false },
  }));
  const look = { open: new Set<string>(), unstacked: new Set<number>(), lanesByMicroBatch: false };
  const flow = showFlow(
    names.map((name, id) => operator(id, name)),
    edges,
    [],
    look,
  );
  const layout = layoutFlow({
    count: names.length,
    lane: new Int32Array(names.length),
    order: Float64Array.from(names, (_, i) => i),
    source: Int32Array.from(flow.edges, ({ source }) => source),
    target: Int32Array.from(flow.edges, ({ target }) => target),
  });
  return {
    ...{
      flow,
      layout,
      camera: fitCamera(layout, 800, 500),
      width: 800,
      height: 500,
      theme: "dark",
    },
    ...{ palette: makePalette("dark"), values: new Float64Array(names.length), most: 0 },
    ...{ selected: -1, found: new Set(), showQuiet: false, laneLabel: () => "stage 0" },
    nodeLabel: (node) => flow.nodes[node].label,
  };
}

describe("the flow as an SVG", () => {
  it("holds every node, its cut and its edges", () => {
    const drawn = makeFlowSvg(draw(["embed", "attention", "mlp"]), "a run");
    const texts = [...drawn.matchAll(/<text[^>]*>([^<]*)</g)].map(([, text]) => text);
    for (const name of ["stage 0", "embed", "attention", "mlp"]) expect(texts).toContain(name);
    expect(texts.filter((text) => text === "2")).toHaveLength(3);
    expect(drawn.match(/stroke-dasharray/g)).toHaveLength(2);
  });

  it("keeps names of strangers as text", () => {
    const text = makeFlowSvg(
      draw([`"/><script>alert(1)</script>`, "b\u0000&"]),
      "</title><script>",
    );
    expect(text).not.toContain("<script");
    expect(text).toContain("&lt;script&gt;");
  });
});
