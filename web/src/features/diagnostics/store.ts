/** What the reader has chosen on the page; every part reads it, any part may change it. */

import { inCluster } from "@/api/chosen";
import { create } from "zustand";
import { useShallow } from "zustand/react/shallow";
import type { Lens } from "@/base/verdicts/documents";
import type { PlotKind } from "@/charts/multiples";
import type { Box } from "@/charts/scatter";
import type { Span } from "@/charts/span";
import type { Order } from "@/charts/gpuOrder";

export type Method = "histogram" | "euclidean" | "correlation";
export type { Span };

/** A box on the scatter plot, in values of its axes, and what lies in it. */
export interface ScatterBrush {
  box: Box;
  count: number;
  gpus: number;
  /** Whether outliers alone were counted; a box that holds none counts plain samples. */
  outliers: boolean;
}

export const NO_BRUSH: Pick<Chosen, "lit" | "brushed"> = { lit: [], brushed: null };

export interface Chosen {
  metric: string;
  method: Method;
  /** How many clusters; 0 lets the criterion decide. */
  clusters: number;
  plot: PlotKind | "auto";
  order: Order;
  shared: boolean;
  nodes: boolean;
  zoom: number;
  selected: readonly string[];
  /** What every part is filtered by; null is the whole life. */
  window: Span | null;
  /** What the timelines show; null is the window. */
  view: Span | null;
  held: boolean;
  lines: readonly string[];
  x: string;
  y: string;
  significance: number;
  robust: boolean;
  /** Moments lit by a brush over the scatter plot. */
  lit: readonly number[];
  /** That brush: it stays where it was drawn until it is given up. */
  brushed: ScatterBrush | null;
  /** Rules of the reader's own, which tell nobody. */
  lenses: readonly Lens[];
  /** Field of the rule whose GPUs are lit. */
  litRule: string | null;
}

const START: Chosen = {
  metric: "util",
  method: "histogram",
  clusters: 0,
  plot: "auto",
  order: "index",
  shared: true,
  nodes: false,
  zoom: 1,
  selected: [],
  window: null,
  view: null,
  held: false,
  lines: ["util", "power"],
  x: "util",
  y: "power",
  significance: 0.001,
  robust: true,
  ...NO_BRUSH,
  lenses: [],
  litRule: null,
};

/** What the address says, over the defaults. */
export function fromAddress(search: string): Chosen {
  const query = new URLSearchParams(search);
  const [from, to] = [Number(query.get("from")), Number(query.get("to"))];
  const method = query.get("method");
  const plot = query.get("plot");
  return {
    ...START,
    metric: query.get("metric") ?? START.metric,
    method: method === "euclidean" || method === "correlation" ? method : "histogram",
    plot: plot === "histogram" || plot === "timeline" || plot === "strip" ? plot : "auto",
    clusters: Math.max(0, Math.min(64, Math.floor(Number(query.get("clusters")) || 0))),
    window: from > 0 && to > from ? [from, to] : null,
    held: query.get("hold") === "1",
  };
}

/** The address that shows the same. */
export function toAddress(workload: string, chosen: Chosen): string {
  const query = new URLSearchParams({ id: workload });
  if (chosen.metric !== START.metric) query.set("metric", chosen.metric);
  if (chosen.method !== START.method) query.set("method", chosen.method);
  if (chosen.plot !== "auto") query.set("plot", chosen.plot);
  if (chosen.clusters > 0) query.set("clusters", String(chosen.clusters));
  if (chosen.window) {
    query.set("from", String(Math.round(chosen.window[0])));
    query.set("to", String(Math.round(chosen.window[1])));
  }
  if (chosen.held) query.set("hold", "1");
  return inCluster(`/workload?${query.toString()}`);
}

export const useChosen = create<Chosen>(() => START);

/** Some of what is chosen; a part of the page hears of nothing else. */
export function usePicked<K extends keyof Chosen>(...keys: readonly K[]): Pick<Chosen, K> {
  return useChosen(
    useShallow(
      (chosen) => Object.fromEntries(keys.map((key) => [key, chosen[key]])) as Pick<Chosen, K>,
    ),
  );
}

export function change(part: Partial<Chosen>): void {
  useChosen.setState(part);
}

/** Click: this one alone, or not; with a key held, added or taken out. */
export function choose(gpus: readonly string[], adding: boolean): void {
  const { selected } = useChosen.getState();
  if (!adding) {
    const same = selected.length === gpus.length && gpus.every((gpu) => selected.includes(gpu));
    change({ selected: same ? [] : [...gpus] });
    return;
  }
  const all = gpus.every((gpu) => selected.includes(gpu));
  change({
    selected: all
      ? selected.filter((gpu) => !gpus.includes(gpu))
      : [...new Set([...selected, ...gpus])],
  });
}
