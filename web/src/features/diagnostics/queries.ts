/** The page's questions to the server; a running workload is asked again until it is held. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { createContext, useContext } from "react";
import { getJson } from "@/api/client";
import type {
  Bands,
  Clusters,
  ComparisonDocument,
  Diagnosis,
  MetricBand,
  Outliers,
  Pairs,
  Peers,
} from "@/features/diagnostics/documents";
import type { Span } from "@/features/diagnostics/store";
import { useChosen, usePicked } from "@/features/diagnostics/store";

/** Verdicts and clusters of a running workload; its timelines move on with every few seconds. */
const AGAIN_MS = 60_000;

export const WorkloadContext = createContext<{ workload: string; running: boolean }>({
  workload: "",
  running: false,
});

function useAgain(): number | false {
  const { running } = useContext(WorkloadContext);
  const held = useChosen((chosen) => chosen.held || chosen.window !== null);
  return running && !held ? AGAIN_MS : false;
}

export const between = (window: Span | null) =>
  window ? { from: window[0] / 1000, to: window[1] / 1000 } : {};

function useAsked<T>(
  key: readonly unknown[],
  path: string,
  query: Record<string, string | number>,
  enabled = true,
) {
  const refetchInterval = useAgain();
  return useQuery({
    queryKey: [...key, query],
    queryFn: ({ signal }) => getJson<T>(path, query, signal),
    placeholderData: keepPreviousData,
    refetchInterval,
    staleTime: 10_000,
    enabled,
  });
}

/** The whole verdict; over the whole life unless a window is given. */
export function useDiagnosis(workload: string, window: Span | null, enabled = true, live = false) {
  return useQuery({
    queryKey: ["diagnosis", workload, window],
    queryFn: ({ signal }) =>
      getJson<Diagnosis>("/diagnosis", { workload, ...between(window) }, signal),
    staleTime: 10_000,
    enabled,
    refetchInterval: live
      ? (query) =>
          query.state.data?.workload.state === "running" && !useChosen.getState().held
            ? AGAIN_MS
            : false
      : false,
  });
}

export function useClusters(
  workload: string,
  window: Span | null,
  over: { metric?: string } = {},
  enabled = true,
) {
  const { metric, method, clusters } = usePicked("metric", "method", "clusters");
  const query = { workload, metric: over.metric ?? metric, method, clusters, ...between(window) };
  return useAsked<Clusters>(["clusters"], "/diagnosis/clusters", query, enabled);
}

export function useOutliers(window: Span | null) {
  const { workload } = useContext(WorkloadContext);
  const { x, y, significance, robust } = usePicked("x", "y", "significance", "robust");
  const query = { workload, x, y, significance, robust: String(robust), ...between(window) };
  return useAsked<Outliers>(["outliers"], "/diagnosis/outliers", query, x !== y);
}

/** Every pair is a look at every metric: asked for once somebody wants to see them. */
export function usePairs(enabled: boolean) {
  const { workload } = useContext(WorkloadContext);
  const window = useChosen((chosen) => chosen.window);
  return useQuery({
    enabled,
    queryKey: ["pairs", workload, window],
    queryFn: ({ signal }) =>
      getJson<Pairs>("/diagnosis/pairs", { workload, ...between(window) }, signal),
    staleTime: 60_000,
    placeholderData: keepPreviousData,
  });
}

export function usePeers() {
  const { workload } = useContext(WorkloadContext);
  return useQuery({
    queryKey: ["peers", workload],
    queryFn: ({ signal }) => getJson<Peers>("/diagnosis/peers", { workload }, signal),
    staleTime: 60_000,
  });
}

/** A workload, and the window of it that is looked at; null is its whole life. */
export interface Side {
  workload: string;
  window: Span | null;
}

/** The chosen metric of one side over time. */
export function useSideBand({ workload, window }: Side): MetricBand | undefined {
  const metric = useChosen((chosen) => chosen.metric);
  const query = { workload, metrics: metric, points: 300, ...between(window) };
  const found = useQuery({
    queryKey: ["side", query],
    queryFn: ({ signal }) => getJson<Bands>("/diagnosis/band", query, signal),
    staleTime: 60_000,
    retry: 0,
  });
  return found.data?.bands[0];
}

export function isSameSide(a: Side, b: Side): boolean {
  return (
    a.workload === b.workload && a.window?.[0] === b.window?.[0] && a.window?.[1] === b.window?.[1]
  );
}

export function useComparison(a: Side, b: Side) {
  const metric = useChosen((chosen) => chosen.metric);
  const other = a.window ? { other_from: a.window[0] / 1000, other_to: a.window[1] / 1000 } : {};
  const query = { workload: b.workload, other: a.workload, metric, ...between(b.window), ...other };
  return useQuery({
    queryKey: ["comparison", query],
    queryFn: ({ signal }) => getJson<ComparisonDocument>("/diagnosis/comparison", query, signal),
    // A window that was just kept is the one that is looked at.
    enabled: !isSameSide(a, b),
    staleTime: 60_000,
    retry: 0,
  });
}
