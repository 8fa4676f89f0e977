/** Call graphs in `marey.notebook`: draws whichever view its Python object is. */

import { renderBy } from "@/features/notebook/model";
import { renderSankey } from "@/features/notebook/sankeyView";
import { renderTree } from "@/features/notebook/treeView";

export default renderBy({ tree: renderTree, sankey: renderSankey });
