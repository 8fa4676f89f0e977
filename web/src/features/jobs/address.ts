/** The state of the table of jobs in the page's address, so that a view of it can be shared and saved. */

import type { Predicate } from "@/base/predicate";

export interface JobsState {
  state: "" | "running" | "pending" | "ended" | "failed,node_fail";
  /** Field → value that jobs must have. */
  filters: Record<string, string>;
  text: string;
  sort: string;
  descending: boolean;
  columns: readonly string[];
}

export const FILTERS = ["user", "project", "partition", "experiment", "name"] as const;
const STATES = ["", "running", "pending", "ended", "failed,node_fail"] as const;

export function readAddress(search: string): JobsState {
  const query = new URLSearchParams(search);
  const filters: Record<string, string> = {};
  for (const field of FILTERS) {
    const value = query.get(field);
    if (value) filters[field] = value;
  }
  const columns = query.get("columns");
  return {
    state: STATES.find((one) => one === query.get("state")) ?? "",
    filters,
    text: query.get("q") ?? "",
    sort: query.get("sort") ?? "submitted",
    descending: query.get("up") === null,
    columns: columns ? columns.split(",") : [],
  };
}

export function printAddress(state: JobsState): string {
  const query = new URLSearchParams();
  if (state.state) query.set("state", state.state);
  for (const [field, value] of Object.entries(state.filters)) query.set(field, value);
  if (state.text) query.set("q", state.text);
  if (state.sort !== "submitted") query.set("sort", state.sort);
  if (!state.descending) query.set("up", "1");
  if (state.columns.length > 0) query.set("columns", state.columns.join(","));
  const text = query.toString();
  return text ? `?${text}` : "";
}

const SEARCHED = ["name", "workload", "user", "project", "experiment"];

/** What the server is asked for: the filters, and the text in any name. */
export function predicateOf({ filters, text }: JobsState): Predicate | null {
  const parts: Predicate[] = Object.entries(filters).map(([field, value]) => ({
    field,
    op: "eq",
    value,
  }));
  const wanted = text.trim();
  if (wanted)
    parts.push({ or: SEARCHED.map((field) => ({ field, op: "contains", value: wanted })) });
  return parts.length === 0 ? null : { and: parts };
}
