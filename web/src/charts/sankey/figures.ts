/** The server's document of supernodes and flows, in the form that the drawing takes. */

import type { NodeFigures } from "@/charts/sankey/draw";
import type { Flow, FlowNode } from "@/charts/sankey/layout";
import type { Document } from "@/api/documents";

export type SankeyDocument = Document<"CallGraphSankey">;
export type SankeyProfile = Document<"CallGraphProfile">;

export function nodesOf(nodes: SankeyDocument["nodes"]): FlowNode[] {
  return nodes.map(({ name, inclusive }) => ({ name, value: inclusive.mean }));
}

export function flowsOf(flows: SankeyDocument["flows"]): Flow[] {
  return flows.map(({ source, target, value, loop, of_target }) => ({
    source,
    target,
    value,
    loop,
    ofTarget: of_target,
  }));
}

/** What is drawn on each node; one profile alone has no spread to show. */
export function figuresOf(document: SankeyDocument): NodeFigures[] {
  const single = document.profiles.length < 2;
  return document.nodes.map(({ name, inclusive }) => ({
    name,
    label: name,
    counts: single ? [1] : inclusive.histogram.counts,
    targetBin: single ? null : inclusive.histogram.target_bin,
    box: inclusive,
    outliers: inclusive.outliers.length,
    ofTarget: inclusive.of_target ?? null,
  }));
}

/** A profile as a person names it. */
export function profileLabel({ run, rank, step, thread, profile }: SankeyProfile): string {
  const parts = [
    run,
    rank === undefined ? "" : `rank ${rank}`,
    step === undefined ? "" : `step ${step}`,
    thread === undefined ? "" : `thread ${thread}`,
  ].filter(Boolean);
  return parts.join(", ") || String(profile);
}
