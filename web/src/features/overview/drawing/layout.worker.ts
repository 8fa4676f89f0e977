/** Grouping and layout, off the main thread. */

import type { Memory } from "@/charts/units/calm";
import type { LayoutRequest } from "@/charts/units/layout";
import { layoutCalmly } from "@/charts/units/layout";

export interface LayoutJob {
  id: number;
  request: LayoutRequest;
  anew: boolean;
}

let memory: Memory | null = null;

self.onmessage = (event: MessageEvent<LayoutJob>) => {
  const started = performance.now();
  const { request, anew } = event.data;
  const next = layoutCalmly(request, anew ? null : memory);
  memory = next.memory;
  const { layout } = next;
  const { tree } = layout;
  const buffers = [
    layout.x,
    layout.y,
    layout.groupX,
    layout.groupY,
    layout.groupW,
    layout.groupH,
    tree.order,
    tree.weight,
  ].map((array) => array.buffer);
  (self as unknown as Worker).postMessage(
    { id: event.data.id, layout, ms: performance.now() - started },
    buffers as Transferable[],
  );
};
