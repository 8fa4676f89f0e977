/** The server's answers about call graphs. */

import type { UseQueryResult } from "@tanstack/react-query";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { getJson } from "@/api/client";
import type { Document } from "@/api/documents";
import type { PageState } from "@/features/callgraphs/address";

export type Source = Document<"CallGraphSource">;
export type Sankey = Document<"CallGraphSankey">;
export type Tree = Document<"CallGraphTree">;
export type Ensemble = Document<"CallGraphEnsemble">;
export type ProfileMap = Document<"CallGraphMap">;
export type Difference = Document<"CallGraphDifference">;
export type Selection = Document<"CallGraphSelection">;
export type Scaling = Document<"CallGraphScaling">;
export type Profile = Document<"CallGraphProfile">;
export type Change = Document<"CallGraphChange">;

type Answer<T> = UseQueryResult<T>;

function useAnswer<T>(what: string, query: URLSearchParams | null): Answer<T> {
  const text = query?.toString() ?? "";
  return useQuery({
    queryKey: ["callgraphs", what, text],
    queryFn: ({ signal }) => getJson<T>(`/callgraphs/${what}${text ? `?${text}` : ""}`, {}, signal),
    enabled: query !== null,
    placeholderData: keepPreviousData,
    staleTime: 60_000,
    retry: false,
  });
}

/** Which profiles are asked about; null while none were chosen. */
function asked(state: PageState, all = false): URLSearchParams | null {
  if (state.sources.length === 0) return null;
  const query = new URLSearchParams();
  for (const source of state.sources) query.append("source", source);
  if (state.split) query.set("split", state.split);
  if (state.profiles && !all) query.set("profiles", state.profiles);
  return query;
}

export function useSources(): Answer<Source[]> {
  return useAnswer("sources", new URLSearchParams());
}

export function useSankey(state: PageState): Answer<Sankey> {
  const query = asked(state);
  query?.set("by", state.by);
  query?.set("share", state.share);
  if (state.target) query?.set("target", state.target);
  for (const name of state.reveal) query?.append("reveal", name);
  for (const name of state.callers) query?.append("split_by_caller", name);
  for (const name of state.callees) query?.append("split_by_callee", name);
  return useAnswer("sankey", query);
}

export function useTree(state: PageState): Answer<Tree> {
  const query = asked(state);
  if (state.target) query?.set("target", state.target);
  query?.set("limit", "3000");
  return useAnswer("tree", query);
}

export function useEnsemble(state: PageState): Answer<Ensemble> {
  const query = asked(state);
  query?.set("limit", "1");
  return useAnswer("ensemble", query);
}

/** The map is of all profiles, also while only some are looked at. */
export function useMap(state: PageState): Answer<ProfileMap> {
  return useAnswer("map", asked(state, true));
}

export function useScaling(state: PageState): Answer<Scaling> {
  const query = asked(state);
  if (state.parameter) query?.set("parameter", state.parameter);
  return useAnswer("scaling", query);
}

export function useDifference(state: PageState): Answer<Difference> {
  const query = state.against.length > 0 ? asked(state) : null;
  for (const source of state.against) query?.append("with", source);
  return useAnswer("difference", query);
}

export function useSelection(state: PageState): Answer<Selection> {
  const query = state.path.length > 0 ? asked(state) : null;
  query?.set("where", JSON.stringify({ paths: [state.path] }));
  return useAnswer("query", query);
}

/** The call sites that the query in the address selects. */
export function useFound(state: PageState): Answer<Selection> {
  const query = state.where ? asked(state) : null;
  query?.set("where", state.where);
  query?.set("limit", "50");
  return useAnswer("query", query);
}
