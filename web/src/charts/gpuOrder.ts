/** The order of the small multiples, and nodes instead of GPUs where there are too many. */

import { naturalCompare } from "@/base/natural";
import type { Document } from "@/api/documents";

export type GpuRow = Document<"ClusteredGpu">;

export const ORDERS = ["index", "global_rank", "local_rank", "difference"] as const;
export type Order = (typeof ORDERS)[number];

/** GPUs in order; those without a rank come last. */
export function ordered(gpus: readonly GpuRow[], order: Order): GpuRow[] {
  const rank = (value: number | null) => value ?? Number.MAX_SAFE_INTEGER;
  const byPlace = (a: GpuRow, b: GpuRow) =>
    naturalCompare(a.host, b.host) || a.index - b.index || naturalCompare(a.gpu, b.gpu);
  const compare: Record<Order, (a: GpuRow, b: GpuRow) => number> = {
    index: byPlace,
    global_rank: (a, b) => rank(a.global_rank) - rank(b.global_rank) || byPlace(a, b),
    local_rank: (a, b) =>
      naturalCompare(a.host, b.host) || rank(a.local_rank) - rank(b.local_rank) || byPlace(a, b),
    difference: (a, b) => b.difference - a.difference || byPlace(a, b),
  };
  return [...gpus].sort(compare[order]);
}

/** What a plot is called: in a node's box its index or rank, without boxes the GPU itself. */
export function labelOf(row: GpuRow, order: Order, boxed: boolean): string {
  if (!boxed) return row.gpu;
  if (order === "global_rank") return row.global_rank === null ? "–" : `r${row.global_rank}`;
  if (order === "local_rank") return row.local_rank === null ? "–" : `l${row.local_rank}`;
  return String(row.index);
}

/** One row per node: counts added, lines averaged, the cluster that most of its GPUs are in. */
export function byNode(gpus: readonly GpuRow[]): GpuRow[] {
  const nodes = new Map<string, GpuRow[]>();
  for (const gpu of gpus) nodes.set(gpu.host, [...(nodes.get(gpu.host) ?? []), gpu]);
  return [...nodes].map(([host, members]) => {
    const votes = new Map<number, number>();
    for (const { cluster } of members) votes.set(cluster, (votes.get(cluster) ?? 0) + 1);
    const [cluster] = [...votes].sort((a, b) => b[1] - a[1] || a[0] - b[0])[0];
    return {
      ...members[0],
      gpu: host,
      cluster,
      difference: Math.max(...members.map((one) => one.difference)),
      counts: members[0].counts.map((_, i) => members.reduce((sum, one) => sum + one.counts[i], 0)),
      line: members[0].line.map((_, i) => mean(members.map((one) => one.line[i]))),
    };
  });
}

function mean(values: readonly (number | null)[]): number | null {
  const present = values.filter((value): value is number => value !== null);
  return present.length > 0
    ? present.reduce((sum, value) => sum + value, 0) / present.length
    : null;
}
