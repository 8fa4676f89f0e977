/** Pages of jobs from the server, fetched as they come into sight. */

import { useQueries } from "@tanstack/react-query";
import { getJson } from "@/api/client";
import type { JobRow, JobTable } from "@/features/jobs/columns";
import type { JobsState } from "@/features/jobs/address";
import { predicateOf } from "@/features/jobs/address";

export const PAGE = 100;
const FRESH_MS = 15_000;

export function jobsQuery(state: JobsState): Record<string, string | number | null> {
  const where = predicateOf(state);
  return {
    state: state.state || null,
    where: where ? JSON.stringify(where) : null,
    sort: state.sort,
    descending: state.descending ? "true" : "false",
  };
}

/** The rows between two places, and how many there are in all. */
export function useJobs(state: JobsState, first: number, last: number) {
  const query = jobsQuery(state);
  const pages = [];
  for (let page = Math.floor(first / PAGE); page <= Math.floor(last / PAGE); page++)
    pages.push(page);
  const found = useQueries({
    queries: pages.map((page) => ({
      queryKey: ["jobs", query, page],
      queryFn: ({ signal }: { signal: AbortSignal }) =>
        getJson<JobTable>("/jobs", { ...query, offset: page * PAGE, limit: PAGE }, signal),
      staleTime: FRESH_MS,
      refetchInterval: FRESH_MS,
    })),
  });
  const rows = new Map<number, JobRow>();
  for (const { data } of found)
    data?.rows.forEach((row, place) => rows.set(data.offset + place, row));
  const known = found.find(({ data }) => data !== undefined)?.data;
  return {
    rows,
    total: known?.total ?? null,
    byState: known?.by_state ?? null,
    error: found.find(({ error }) => error !== null)?.error ?? null,
  };
}
