/** Findings in order of what they cost, narrowed by words and severity, together by workload or cause. */

import type { Finding, Shown } from "@/features/findings/documents";
import { findingsTexts as texts } from "@/texts";

export interface Group {
  key: string;
  label: string;
  gpuHours: number;
  rows: Finding[];
}

const SEVERITIES = ["critical", "warning", "info"];

/** The findings that the page's own filters leave, most GPU-hours at stake first. */
export function narrowed(rows: readonly Finding[], shown: Shown): Finding[] {
  const words = shown.q.trim().toLowerCase();
  const found = rows.filter(
    (row) =>
      (shown.severity === "" || row.severity === shown.severity) &&
      (words === "" || textOf(row).includes(words)),
  );
  if (shown.sort === "newest") return found;
  return found.sort(
    (a, b) =>
      Number(b.open) - Number(a.open) ||
      b.gpu_hours - a.gpu_hours ||
      SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity) ||
      b.opened_ms - a.opened_ms,
  );
}

function textOf(row: Finding): string {
  return [row.title, row.rule, row.workload, row.user, row.project, row.partition, ...row.gpus]
    .join(" ")
    .toLowerCase();
}

/** The findings by workload or by rule, the costliest group first; one group where none is asked for. */
export function grouped(rows: readonly Finding[], by: Shown["group"]): Group[] {
  if (by === "") return [{ key: "", label: "", gpuHours: 0, rows: [...rows] }];
  const groups = new Map<string, Group>();
  for (const row of rows) {
    const key = by === "workload" ? row.workload : row.rule;
    const label = by === "workload" ? texts.jobOf(row.workload, row.user) : row.title || row.rule;
    const group = groups.get(key) ?? { key, label, gpuHours: 0, rows: [] };
    group.rows.push(row);
    group.gpuHours += row.gpu_hours;
    groups.set(key, group);
  }
  return [...groups.values()].sort((a, b) => b.gpuHours - a.gpuHours);
}
