/** Colours of clusters that stay with their GPUs when the window moves. */

import type { Rgb } from "@/base/colour";
import { categoryColours, DEFAULT_CATEGORICAL } from "@/base/colour";
import type { Cluster } from "@/features/diagnostics/documents";

/** For each GPU the number of its colour. */
export type ColourNumbers = ReadonlyMap<string, number>;

/** A cluster keeps the number that most of its GPUs had; new clusters take the lowest free one. */
export function stableNumbers(
  clusters: readonly Cluster[],
  before: ColourNumbers,
): Map<string, number> {
  const claims = clusters.flatMap((cluster) => {
    const votes = new Map<number, number>();
    for (const gpu of cluster.gpus) {
      const number = before.get(gpu);
      if (number !== undefined) votes.set(number, (votes.get(number) ?? 0) + 1);
    }
    // Compare by share of the cluster: a small odd one keeps its colour against the mass.
    return [...votes].map(([number, count]) => ({
      cluster,
      number,
      weight: count / cluster.gpus.length + count * 1e-9,
    }));
  });
  claims.sort((a, b) => b.weight - a.weight || a.cluster.id - b.cluster.id || a.number - b.number);
  const taken = new Map<number, number>();
  const used = new Set<number>();
  for (const { cluster, number } of claims) {
    if (taken.has(cluster.id) || used.has(number)) continue;
    taken.set(cluster.id, number);
    used.add(number);
  }
  const numbers = new Map<string, number>();
  for (const cluster of clusters) {
    let number = taken.get(cluster.id);
    if (number === undefined) {
      number = 0;
      while (used.has(number)) number++;
      used.add(number);
    }
    for (const gpu of cluster.gpus) numbers.set(gpu, number);
  }
  return numbers;
}

const PALETTE = categoryColours(24, DEFAULT_CATEGORICAL);

export function numberColour(number: number): Rgb {
  return PALETTE[number % PALETTE.length];
}

export function cssOf([r, g, b]: Rgb, alpha = 1): string {
  return `rgb(${r} ${g} ${b} / ${alpha})`;
}
