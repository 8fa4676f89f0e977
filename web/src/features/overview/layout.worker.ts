/** Grouping and layout, off the main thread. */

import type { LayoutRequest } from "@/charts/units/layout";
import { layoutUnits } from "@/charts/units/layout";

export interface LayoutJob {
  id: number;
  request: LayoutRequest;
}

self.onmessage = (event: MessageEvent<LayoutJob>) => {
  const started = performance.now();
  const layout = layoutUnits(event.data.request);
  const { tree } = layout;
  const buffers = [layout.x, layout.y, layout.groupX, layout.groupY, layout.groupW, layout.groupH, tree.order, tree.weight].map((array) => array.buffer);
  (self as unknown as Worker).postMessage({ id: event.data.id, layout, ms: performance.now() - started }, buffers as Transferable[]);
};
