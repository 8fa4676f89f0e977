/** Other runs of a workload's name or experiment by the same user. */

import { useQuery } from "@tanstack/react-query";
import { getJson } from "@/api/client";
import type { Document } from "@/api/documents";

export type WorkloadRecord = Document<"WorkloadRecord">;
type Jobs = Document<"JobTable">;
const MOST_RUNS = 7;

/** What is stored of a workload in any state. */
export function useWorkloadRecord(id: string) {
  return useQuery({
    queryKey: ["workload record", id],
    queryFn: ({ signal }) =>
      getJson<WorkloadRecord>(`/workloads/${encodeURIComponent(id)}`, {}, signal),
    enabled: id !== "",
    refetchInterval: 30_000,
  });
}

/** A predicate that runs of the same name or experiment fulfil. */
export function similarTo({ name, experiment }: Pick<WorkloadRecord, "name" | "experiment">) {
  const fields = [
    ["name", name],
    ["experiment", experiment],
  ] as const;
  return {
    or: fields.filter(([, value]) => value).map(([field, value]) => ({ field, op: "eq", value })),
  };
}

/** The newest other runs, and how many there are with this one. */
export function useSimilarRuns(id: string): { runs: Jobs["rows"]; total: number } {
  const { data: workload } = useWorkloadRecord(id);
  const where = workload && {
    and: [similarTo(workload), { field: "user", op: "eq", value: workload.user ?? "" }],
  };
  const found = useQuery({
    queryKey: ["similar runs", where],
    queryFn: ({ signal }) =>
      getJson<Jobs>("/jobs", { where: JSON.stringify(where), limit: MOST_RUNS }, signal),
    enabled: Boolean(workload?.name),
    staleTime: 60_000,
  });
  const rows = found.data?.rows ?? [];
  return { runs: rows.filter((row) => row.workload !== id), total: found.data?.total ?? 0 };
}
