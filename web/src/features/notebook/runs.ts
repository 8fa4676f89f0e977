/** Runs and clusters in `marey.notebook`, apart from call graphs: a tree need not carry them. */

import { renderCluster } from "@/features/notebook/clusterView";
import { renderMarey } from "@/features/notebook/mareyView";
import { renderBy } from "@/features/notebook/model";
import { renderMultiples } from "@/features/notebook/multiplesView";

export default renderBy({ marey: renderMarey, multiples: renderMultiples, cluster: renderCluster });
