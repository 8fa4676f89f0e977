/** The widget of `marey.notebook`: draws whichever view its Python object is. */

import type { Model } from "@/features/notebook/model";
import { renderSankey } from "@/features/notebook/sankeyView";
import { renderTree } from "@/features/notebook/treeView";

const VIEWS: Record<string, (model: Model, host: HTMLElement) => () => void> = {
  tree: renderTree,
  sankey: renderSankey,
};

export default {
  render({ model, el }: { model: Model; el: HTMLElement }) {
    return VIEWS[model.get("_kind") as string](model, el);
  },
};
