/** The state of the table of jobs in the page's address, so that a view of it can be shared and saved. */

import type { Fields } from "@/base/conditions/conditions";
import { joinConditions, printWhere, readWhere } from "@/base/conditions/conditions";
import type { Comparison, Predicate } from "@/base/predicate";
import { baseTexts as texts } from "@/texts";

export interface JobsState {
  /** States by commas; "ended" for all that are over, "" for all. */
  state: string;
  /** Field → value that jobs must have. */
  filters: Record<string, string>;
  /** Further conditions, all of which must hold: any predicate that the server understands. */
  where: readonly Predicate[];
  text: string;
  sort: string;
  descending: boolean;
  columns: readonly string[];
}

export const FILTERS = ["user", "project", "partition", "experiment", "name"] as const;
/** The fields of the conditions that can be put together here. */
export const FIELDS: Fields = {
  texts: [...FILTERS, "gpu_model", "resource_type", "qos", "reason"],
  numbers: ["gpus_requested", "priority", "exit_code", "time_limit_s"],
};
/** The states that have a button of their own. */
export const STATES = ["", "running", "pending", "ended", "failed,node_fail"] as const;
const KNOWN: readonly string[] = ["ended", ...Object.keys(texts.jobStates)];

export function readAddress(search: string): JobsState {
  const query = new URLSearchParams(search);
  const filters: Record<string, string> = {};
  for (const field of FILTERS) {
    const value = query.get(field);
    if (value) filters[field] = value;
  }
  const columns = query.get("columns");
  return {
    state: readStates(query.get("state") ?? ""),
    filters,
    where: readWhere(query.get("where")),
    text: query.get("q") ?? "",
    sort: query.get("sort") ?? "submitted",
    descending: query.get("up") === null,
    columns: columns ? columns.split(",") : [],
  };
}

/** The states of an address; words that are no states are left out. */
function readStates(text: string): string {
  return text
    .split(",")
    .filter((word) => KNOWN.includes(word))
    .join(",");
}

/** Add a condition; that a text equals a value has a place of its own in the address. */
export function addCondition(state: JobsState, condition: Comparison): Partial<JobsState> {
  const { field, op, value } = condition;
  if (op === "eq" && (FILTERS as readonly string[]).includes(field))
    return { filters: { ...state.filters, [field]: String(value) } };
  return { where: [...state.where, condition] };
}

export function printAddress(state: JobsState): string {
  const query = new URLSearchParams();
  if (state.state) query.set("state", state.state);
  for (const [field, value] of Object.entries(state.filters)) query.set(field, value);
  const where = printWhere(state.where);
  if (where) query.set("where", where);
  if (state.text) query.set("q", state.text);
  if (state.sort !== "submitted") query.set("sort", state.sort);
  if (!state.descending) query.set("up", "1");
  if (state.columns.length > 0) query.set("columns", state.columns.join(","));
  const text = query.toString();
  return text ? `?${text}` : "";
}

const SEARCHED = ["name", "workload", "user", "project", "experiment"];

/** What the server is asked for: the filters, and the text in any name. */
export function predicateOf({ filters, where, text }: JobsState): Predicate | null {
  const equal = Object.entries(filters).map(([field, value]): Predicate => ({
    field,
    op: "eq",
    value,
  }));
  return joinConditions([...equal, ...where], text, SEARCHED);
}
