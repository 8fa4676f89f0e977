/** Wasted GPU-hours as the server sums them; order and links of the lines. */

import type { Document } from "@/api/documents";
import { entityAddress, findingsAddress, workloadAddress } from "@/base/addresses";

export const SUMS = [
  "user",
  "project",
  "partition",
  "rule",
  "workload",
] as const satisfies readonly WasteBy[];
export type WasteBy = Document<"WasteBy">;

export type WasteLine = Document<"WasteLine">;

export type WasteDocument = Document<"WasteSums">;

export type SortKey = keyof WasteLine;

/** Lines in another order; equal ones stay by what they are called. */
export function sortLines(
  lines: readonly WasteLine[],
  key: SortKey,
  descending: boolean,
  called = (name: string) => name,
): WasteLine[] {
  const sign = descending ? -1 : 1;
  const byName = (a: WasteLine, b: WasteLine) =>
    called(a.name).localeCompare(called(b.name), "en", { numeric: true });
  return [...lines].sort((a, b) =>
    key === "name" ? sign * byName(a, b) : sign * (a[key] - b[key]) || byName(a, b),
  );
}

/** Where a line leads: a workload to its diagnostics, the rest to its findings. */
export function lineLink(by: WasteBy, name: string): string | null {
  if (name === "") return null;
  if (by === "workload") return workloadAddress(name);
  if (by !== "rule") return entityAddress(by, name);
  return findingsAddress({ state: "all", [by]: name });
}

/** The state of the page as its address has it. */
export interface WasteState {
  by: WasteBy;
  /** "24h", "7d", "30d", or "" with a span of its own. */
  since: string;
  from: string;
  to: string;
}

export function readAddress(search: string): WasteState {
  const query = new URLSearchParams(search);
  const by = query.get("by") as WasteBy;
  const [from, to] = [query.get("from") ?? "", query.get("to") ?? ""];
  return {
    by: SUMS.includes(by) ? by : "user",
    since: from || to ? "" : (query.get("since") ?? "7d"),
    from,
    to,
  };
}

export function printAddress({ by, since, from, to }: WasteState): string {
  const query = new URLSearchParams();
  if (by !== "user") query.set("by", by);
  if (since && since !== "7d") query.set("since", since);
  if (!since && from) query.set("from", from);
  if (!since && to) query.set("to", to);
  const text = query.toString();
  return text ? `?${text}` : "";
}
