/** The server's documents about traces, under short names. */

import type { Document } from "@/api/documents";

export type RunSummary = Document<"TraceRunSummary">;
export type Runs = Document<"TraceRuns">;
export type RunDetail = Document<"TraceRunDetail">;
export type TraceFile = Document<"TraceFile">;
export type Limits = Document<"TraceLimits">;
export type Verdict = Document<"TraceVerdict">;
export type Difference = Document<"TraceDifference">;
export type ViewRows = Document<"TraceViewRows">;
export type ViewRow = ViewRows["rows"][number];
export type Flow = Document<"ExecutionFlow">;

/** Tables of a run by the name of their route. */
export interface RunTables {
  steps: Document<"TraceStepRows">;
  breakdown: Document<"TraceBreakdownRows">;
  collectives: Document<"TraceCollectiveRows">;
  waits: Document<"TraceWaitRows">;
  communication: Document<"TracePairRows">;
  "communication/nodes": Document<"TraceNodeRows">;
  memory: Document<"TraceMemoryRows">;
  kernels: Document<"TraceNameRows">;
  operators: Document<"TraceNameRows">;
  "critical-path": Document<"TracePathRows">;
}
