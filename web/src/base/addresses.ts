/** Addresses of the app's pages, so that a page that links to another need not know it. */

const HOUR_MS = 3_600_000;

/** The diagnostics of one workload: of a window, or of the hour before a past moment, where one is given. */
export function workloadAddress(
  workload: string,
  when?: number | readonly [from: number, to: number] | null,
): string {
  const query = new URLSearchParams({ id: workload });
  if (when) {
    const [from, to] = typeof when === "number" ? [when - HOUR_MS, when] : when;
    query.set("from", String(Math.round(from)));
    query.set("to", String(Math.round(to)));
    query.set("hold", "1");
  }
  return `/workload?${query.toString()}`;
}

/** The page of a user, project, partition, host or GPU. */
export function entityAddress(kind: string, name: string): string {
  return `/about?${new URLSearchParams({ [kind]: name }).toString()}`;
}

/** The table of jobs, filtered. */
export function jobsAddress(filter: Record<string, string>): string {
  return `/jobs?${new URLSearchParams(filter).toString()}`;
}

/** The waiting line, opened at one job. */
export function queueAddress(workload: string): string {
  return `/queue?${new URLSearchParams({ job: workload }).toString()}`;
}

/** Findings, filtered; open ones unless the filter says otherwise. */
export function findingsAddress(filter: Record<string, string>): string {
  return `/findings?${new URLSearchParams(filter).toString()}`;
}

/** The overview of workloads, with those selected that a filter means. */
export function selectionAddress(filter: { field: string; op: string; value: string }): string {
  return `/?view=workloads&sel=${encodeURIComponent(JSON.stringify([filter]))}`;
}

export const SOURCES = "/sources";

/** Runs whose traces there are: all, or those of one workload. */
export function tracesAddress(workload?: string): string {
  return workload ? `/traces?${new URLSearchParams({ workload }).toString()}` : "/traces";
}

/** One run's page, its Marey view or its execution flow; what is undefined is left out. */
export function callGraphAddress(source: string): string {
  return `/callgraphs?${new URLSearchParams({ source }).toString()}`;
}

export function traceAddress(
  view: "run" | "marey" | "flow",
  run: string,
  more: Record<string, string | number | undefined> = {},
): string {
  const query = new URLSearchParams({ id: run });
  for (const [key, value] of Object.entries(more))
    if (value !== undefined && value !== "") query.set(key, String(value));
  return `/traces/${view}?${query.toString()}`;
}
