/** The server's answers about one workload, under the names that the page uses. */

import type { Document } from "@/api/documents";

export type Evidence = Document<"FindingEvidence">;
export type Finding = Document<"DiagnosedFinding">;
export type LifeSpan = Document<"LifePhase">;
export type Diagnosis = Document<"DiagnosisDocument">;
export type GpuRow = Document<"ClusteredGpu">;
export type Cluster = Document<"GpuCluster">;
export type Clusters = Document<"GpuClusters">;
export type MetricBand = Document<"MetricBand">;
export type Bands = Document<"Bands">;
export type Lines = Document<"Lines">;
export type Outliers = Document<"Outliers">;
export type Pair = Document<"MetricPair">;
export type Pairs = Document<"MetricPairs">;
export type Peers = Document<"Peers">;
/** What the rules found, as far as the page draws it. */
export type RuleFinding = Pick<
  Document<"FindingDocument">,
  "rule" | "title" | "severity" | "open" | "gpus" | "gpu_count"
>;
export type ComparisonDocument = Document<"Comparison">;
