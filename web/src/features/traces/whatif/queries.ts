/** What the panel asks of the replay: the unchanged run, a prediction, both timelines, a search. */

import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { ApiError, getJson, postJson, remove } from "@/api/client";
import type { Document } from "@/api/documents";
import { runPath } from "@/features/traces/queries";

export type Replay = Document<"ReplayDocument">;
export type Word = Replay["words"][number];
export type Prediction = Document<"WhatIfDocument">;
export type Timeline = Document<"WhatIfTimeline">;
export type Search = Document<"StrategySearch">;
export type Strategy = Search["proposals"][number];
export type KeptPrediction = Document<"PredictionList">["predictions"][number];
type Task = Omit<Document<"JobDocument">, "result"> & { result: Search | null };

const POLL_MS = 400;
const retry = (count: number, error: Error): boolean =>
  !(error instanceof ApiError && error.status < 500) && count < 2;

/** The time of a step without the profiler in ms, where whoever asks knows it. */
export type PlainStep = number | null;

const asked = (plain: PlainStep) => (plain === null ? {} : { plain_step_ms: plain });

export function useReplay(run: string, plain: PlainStep) {
  return useQuery({
    queryKey: ["replay", run, plain],
    queryFn: ({ signal }) => getJson<Replay>(`${runPath(run)}/replay`, asked(plain), signal),
    placeholderData: keepPreviousData,
    staleTime: Infinity,
    retry,
  });
}

/** What changes would make of a step; the last answer stays while the next is on its way. */
export function usePrediction(
  run: string,
  changes: readonly string[],
  { enabled = true, plain = null }: { enabled?: boolean; plain?: PlainStep } = {},
) {
  return useQuery({
    queryKey: ["what if", run, changes, plain],
    queryFn: ({ signal }) =>
      postJson<Prediction>(`${runPath(run)}/what-if`, { changes, ...asked(plain) }, signal),
    enabled,
    staleTime: Infinity,
    placeholderData: keepPreviousData,
    retry,
  });
}

export function useTimeline(run: string, changes: readonly string[], enabled: boolean) {
  return useQuery({
    queryKey: ["what if timeline", run, changes],
    queryFn: ({ signal }) =>
      postJson<Timeline>(`${runPath(run)}/what-if/timeline`, { changes }, signal),
    enabled,
    staleTime: Infinity,
    placeholderData: keepPreviousData,
    retry,
  });
}

const KEPT = ["kept predictions"];

export function useKeep(run: string, plain: PlainStep) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (changes: readonly string[]) =>
      postJson<Prediction>(`${runPath(run)}/what-if`, { changes, keep: true, ...asked(plain) }),
    onSuccess: () => client.invalidateQueries({ queryKey: KEPT }),
  });
}

/** Every prediction that was kept, and how good those that were measured are. */
export function useKept() {
  return useQuery({
    queryKey: KEPT,
    queryFn: ({ signal }) => getJson<Document<"PredictionList">>("/predictions", {}, signal),
    retry,
  });
}

export function useForget() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (id: string) => remove(`/predictions/${encodeURIComponent(id)}`),
    onSuccess: () => client.invalidateQueries({ queryKey: KEPT }),
  });
}

const isOver = (task: Task | undefined): boolean =>
  task !== undefined && ["done", "failed", "cancelled"].includes(task.state);

/** A search for strategies: started, watched, stopped. */
export function useSearch(run: string, plain: PlainStep) {
  const start = useMutation({
    mutationFn: (body: { memory_bytes: number | null; allowed: string[]; budget_s: number }) =>
      postJson<Task>(`${runPath(run)}/optimize`, { ...body, ...asked(plain) }),
  });
  const id = start.data?.id;
  const task = useQuery({
    queryKey: ["task", id],
    queryFn: ({ signal }) => getJson<Task>(`/tasks/${encodeURIComponent(id ?? "")}`, {}, signal),
    enabled: id !== undefined,
    refetchInterval: (query) => (isOver(query.state.data) ? false : POLL_MS),
  });
  const stop = useMutation({
    mutationFn: () => remove(`/tasks/${encodeURIComponent(id ?? "")}`),
    onSuccess: () => task.refetch(),
  });
  const running = start.isPending || (id !== undefined && !isOver(task.data) && !task.isError);
  const error = start.error ?? task.error ?? stop.error;
  return { start, stop, running, task: task.data, error };
}
