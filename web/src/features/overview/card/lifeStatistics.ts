/** A workload's whole life in three numbers per metric, from the sketches that rules are judged by. */

import { useQuery } from "@tanstack/react-query";
import { getJson } from "@/api/client";
import type { operations } from "@/api/schema";

/** GPU → metric → statistic. */
export type LifeStatistics =
  operations["lifeStatistics"]["responses"][200]["content"]["application/json"];

export interface LifeRange {
  /** The least 5th percentile, the median of medians and the greatest 95th percentile of its GPUs. */
  low: number;
  median: number;
  high: number;
}

const STATISTICS = ["p5", "median", "p95"];
const REFRESH_MS = 30_000;

/** The statistics of a running workload; nothing while it is not watched, or of the past. */
export function useLifeStatistics(
  workload: string | null,
  metrics: readonly string[],
  live: boolean,
): LifeStatistics | null {
  const life = useQuery({
    queryKey: ["life-statistics", workload, metrics.join()],
    queryFn: ({ signal }) =>
      getJson<LifeStatistics>(
        "/life-statistics",
        { workload, metrics, statistics: STATISTICS },
        signal,
      ),
    enabled: workload !== null && metrics.length > 0 && live,
    refetchInterval: REFRESH_MS,
    retry: false,
  });
  return live && !life.isError ? (life.data ?? null) : null;
}

/** One metric over the life of the GPUs named; null where none of them has samples. */
export function lifeRange(
  statistics: LifeStatistics | null,
  gpus: readonly string[],
  metric: string,
): LifeRange | null {
  const rows = gpus.flatMap((gpu) => {
    const [low, median, high] = STATISTICS.map(
      (word) => statistics?.[gpu]?.[metric]?.[word] ?? null,
    );
    return low === null || median === null || high === null ? [] : [{ low, median, high }];
  });
  if (rows.length === 0) return null;
  const medians = rows.map((row) => row.median).sort((a, b) => a - b);
  const middle = medians.length / 2;
  return {
    low: Math.min(...rows.map((row) => row.low)),
    median: (medians[Math.ceil(middle) - 1] + medians[Math.floor(middle)]) / 2,
    high: Math.max(...rows.map((row) => row.high)),
  };
}
