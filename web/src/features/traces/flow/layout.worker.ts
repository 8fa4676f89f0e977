/** Lays graphs out away from the page, so that it never stands still. */

import type { FlowGraph, FlowLayout } from "@/charts/flow/layout";
import { layoutFlow } from "@/charts/flow/layout";

export interface LayoutJob {
  id: number;
  graph: FlowGraph;
}

export interface LayoutDone {
  id: number;
  layout: FlowLayout;
}

self.onmessage = ({ data }: MessageEvent<LayoutJob>) => {
  const answer: LayoutDone = { id: data.id, layout: layoutFlow(data.graph) };
  postMessage(answer);
};
