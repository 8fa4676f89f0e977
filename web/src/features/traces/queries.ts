/** What the pages of traces ask the server, and what they ask it to do. */

import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { ApiError, getJson, patchJson, postJson, remove } from "@/api/client";
import type { Document } from "@/api/documents";
import type {
  Difference,
  Flow,
  Limits,
  RunDetail,
  RunSummary,
  RunTables,
  Runs,
  TraceFile,
  ViewRows,
} from "@/features/traces/documents";

const BUSY = new Set<string>(["uploading", "waiting", "converting"]);

export const isBusy = (run: Pick<RunSummary, "state">): boolean => BUSY.has(run.state);
export const runPath = (run: string): string => `/traces/${encodeURIComponent(run)}`;

/** Ask again, except where the server said that there is nothing or that the question is wrong. */
const retry = (count: number, error: Error): boolean =>
  !(error instanceof ApiError && error.status >= 400 && error.status < 500) && count < 2;

export function useRuns(workload: string) {
  return useQuery({
    queryKey: ["traces", workload],
    queryFn: ({ signal }) =>
      getJson<Runs>("/traces", { workload: workload || null, limit: 500 }, signal),
    refetchInterval: ({ state }) => (state.data?.runs.some(isBusy) ? 1_500 : 20_000),
    placeholderData: keepPreviousData,
    retry,
  });
}

export function useLimits() {
  return useQuery({
    queryKey: ["trace limits"],
    queryFn: ({ signal }) => getJson<Limits>("/traces/limits", {}, signal),
    staleTime: 60_000,
    retry,
  });
}

export function useRun(run: string) {
  return useQuery({
    queryKey: ["trace", run],
    queryFn: ({ signal }) => getJson<RunDetail>(runPath(run), {}, signal),
    refetchInterval: ({ state }) => (state.data && isBusy(state.data.run) ? 1_500 : 30_000),
    retry,
    enabled: run !== "",
  });
}

export function useVerdicts(run: string) {
  return useQuery({
    queryKey: ["trace verdicts", run],
    queryFn: async ({ signal }) =>
      (await getJson<Document<"TraceVerdicts">>(`${runPath(run)}/verdicts`, {}, signal)).verdicts,
    staleTime: Infinity,
    retry,
  });
}

/** One of a run's tables, of what a selection means. */
export function useTable<Name extends keyof RunTables>(
  run: string,
  name: Name,
  { where = "", sort = "", limit = 5_000 }: { where?: string; sort?: string; limit?: number } = {},
) {
  return useQuery({
    queryKey: ["trace table", run, name, where, sort, limit],
    queryFn: ({ signal }) =>
      getJson<RunTables[Name]>(
        `${runPath(run)}/${name}`,
        { where: where || null, sort: sort || null, limit },
        signal,
      ),
    staleTime: Infinity,
    placeholderData: keepPreviousData,
    retry,
  });
}

export function useRows(run: string, step: number | null, through: number | null, order: string) {
  return useQuery({
    queryKey: ["trace rows", run, step, through, order],
    queryFn: ({ signal }) =>
      getJson<ViewRows>(`${runPath(run)}/rows`, { step, through, order }, signal),
    staleTime: Infinity,
    placeholderData: keepPreviousData,
    retry,
  });
}

export function useFlow(run: string, step: number | null, where: string) {
  return useQuery({
    queryKey: ["trace flow", run, step, where],
    queryFn: ({ signal }) =>
      getJson<Flow>(`${runPath(run)}/flow`, { step, where: where || null }, signal),
    staleTime: Infinity,
    placeholderData: keepPreviousData,
    retry,
  });
}

export function useDifference(run: string, other: string, steps: string, withSteps: string) {
  return useQuery({
    queryKey: ["trace difference", run, other, steps, withSteps],
    queryFn: ({ signal }) =>
      getJson<Difference>(
        `${runPath(run)}/difference`,
        { with: other, steps: steps || null, with_steps: withSteps || null },
        signal,
      ),
    enabled: other !== "" && (other !== run || steps !== withSteps),
    staleTime: Infinity,
    retry,
  });
}

/** What can be done with a run; the lists are asked again afterwards. */
export function useRunActions() {
  const client = useQueryClient();
  const onSettled = async () => {
    await client.invalidateQueries({ queryKey: ["traces"] });
    await client.invalidateQueries({ queryKey: ["trace"] });
    await client.invalidateQueries({ queryKey: ["trace limits"] });
  };
  const convert = useMutation({
    mutationFn: (run: string) => postJson<RunSummary>(`${runPath(run)}/convert`, {}),
    onSettled,
  });
  const cancel = useMutation({
    mutationFn: (run: string) => postJson<RunSummary>(`${runPath(run)}/cancel`, {}),
    onSettled,
  });
  const erase = useMutation({ mutationFn: (run: string) => remove(runPath(run)), onSettled });
  const change = useMutation({
    mutationFn: ({ run, ...fields }: { run: string; name?: string; workload?: string }) =>
      patchJson<RunSummary>(runPath(run), fields),
    onSettled,
  });
  return { convert, cancel, erase, change, refresh: onSettled };
}

export const listFiles = (run: string, file?: string): Promise<TraceFile[]> =>
  getJson<TraceFile[]>(`${runPath(run)}/files`, { file: file ?? null });
