/** The server's answers about one workload, as the page uses them. */

import type { Band } from "@/charts/timeline";
import type { Tree } from "@/charts/dendrogram";
import type { ScatterPoints } from "@/charts/scatter";

export interface Evidence {
  what: string;
  value: number | null;
  against: number | null;
  unit: string;
}

export interface Finding {
  kind: string;
  gpus: string[];
  hosts: string[];
  window: { from: string; to: string };
  summary: string;
  evidence: Evidence[];
  confidence: number;
  next: string;
  gpu_hours: number;
}

export interface LifeSpan {
  phase: string;
  from: string;
  to: string;
}

export interface Diagnosis {
  workload: {
    id: string;
    name: string;
    user: string;
    project: string;
    partition: string;
    state: string;
    submit: string | null;
    start: string | null;
    end: string | null;
    gpus: string[];
    hosts: string[];
    attributes: Record<string, string>;
  };
  window: { from: string; to: string; step_s: number; samples: number } | null;
  verdict: string;
  findings: Finding[];
  life: LifeSpan[];
  events: { time: string; kind: string; host: string; gpu: string; value: number | null; text: string }[];
  progress: { time: string; step: number | null; throughput: number | null; unit: string; loss: number | null }[];
  metrics: { metric: string; unit: string; mean: number | null; min: number | null; max: number | null }[];
}

export interface GpuRow {
  gpu: string;
  host: string;
  index: number;
  global_rank: number | null;
  local_rank: number | null;
  model: string;
  cluster: number;
  difference: number;
  median: number | null;
  counts: number[];
  line: (number | null)[];
}

export interface Cluster {
  id: number;
  gpus: string[];
  why: string;
}

export interface Clusters {
  metric: string;
  label: string;
  unit: string;
  method: string;
  criterion: string;
  approximate: boolean;
  from_ms: number | null;
  to_ms: number | null;
  moments: number;
  clusters: Cluster[];
  tree: Tree | null;
  limits: [number, number];
  line_time_ms: number[];
  gpus: GpuRow[];
}

export type MetricBand = Band & { metric: string; label: string; unit: string };

export interface Bands {
  bin_ms: number;
  /** Whether steps of time hold several samples, of which the plots show the last. */
  coarse: boolean;
  bands: MetricBand[];
}

export interface Lines {
  bin_ms: number;
  time_ms: number[];
  metrics: { metric: string; label: string; unit: string; lines: { gpu: string; value: (number | null)[] }[] }[];
}

export interface Outliers {
  x: { metric: string; label: string; unit: string };
  y: { metric: string; label: string; unit: string };
  limit: number;
  centre: (number | null)[];
  covariance: (number | null)[][];
  samples: number;
  outlier_count: number;
  limits: { x: [number, number]; y: [number, number] };
  gpus: { gpu: string; outliers: number }[];
  points: ScatterPoints;
  outliers: ScatterPoints;
  density: number[][];
}

export interface Pair {
  x: string;
  y: string;
  correlation: number;
  strange: number;
}

export interface Peers {
  same: { gpus: number; gpu_model: string };
  peers: string[];
  metrics: { metric: string; label: string; unit: string; own: number | null; peers: number | null; low: number | null; high: number | null; better_than: number | null }[];
}

export interface RuleFinding {
  rule: string;
  title: string;
  severity: string;
  open: boolean;
  gpus: string[];
  gpu_count: number;
}

interface ComparedSide {
  workload: string;
  verdict: string;
}

export interface ComparisonDocument {
  before: ComparedSide;
  after: ComparedSide;
  metrics: { metric: string; label: string; unit: string; before: number | null; after: number | null; change: number | null }[];
  /** What changed, in words. */
  changed: string[];
  distribution: { label: string; unit: string; limits: [number, number]; before: number[]; after: number[] } | null;
}
