/** The columns of the table of jobs: what each shows, whether it can be sorted, how it reads. */

import type { Document } from "@/api/documents";
import { formatCount, formatDuration, formatShare, formatTime, stateWord } from "@/base/format";
import { jobsTexts as texts } from "@/texts";

export type JobRow = Document<"JobRow">;
export type JobTable = Document<"JobTable">;

export interface Column {
  key: string;
  label: string;
  /** The server's name of the order. */
  sort: string;
  width: number;
  figure: boolean;
  text: (row: JobRow) => string;
}

const duration = (seconds: number | null) => (seconds === null ? "–" : formatDuration(seconds));
const count = (value: number | null) => (value === null ? "–" : formatCount(value));
const percent = formatShare;

/** Percentage points above or below jobs of the same size and type of GPU. */
function againstPeers({ efficiency, peer_efficiency }: JobRow): string {
  if (efficiency === null || peer_efficiency === null) return "–";
  const points = Math.round((efficiency - peer_efficiency) * 100);
  return points === 0 ? "±0" : `${points > 0 ? "+" : "−"}${Math.abs(points)}`;
}

/** What a cell says when it is pointed at, where that is more than its text. */
export function explain(column: Column, row: JobRow): string {
  if (column.key === "peers" && row.peer_efficiency !== null)
    return texts.peersExplained(
      formatCount(row.peers),
      `${row.gpus} × ${row.gpu_model || texts.gpu}`,
      percent(row.peer_efficiency),
    );
  return column.text(row);
}

function column(
  key: string,
  label: string,
  sort: string,
  width: number,
  figure: boolean,
  text: (row: JobRow) => string,
): Column {
  return { key, label, sort, width, figure, text };
}

export const COLUMNS: readonly Column[] = [
  column("state", texts.state, "state", 96, false, (row) => stateWord(row.state)),
  column("workload", texts.job, "job", 72, false, (row) => row.workload),
  column("name", texts.name, "name", 140, false, (row) => row.name || "–"),
  column("user", texts.user, "user", 92, false, (row) => row.user || "–"),
  column("project", texts.project, "project", 96, false, (row) => row.project || "–"),
  column("partition", texts.partition, "partition", 84, false, (row) => row.partition || "–"),
  column("gpus", texts.gpus, "gpus", 52, true, (row) => count(row.gpus)),
  column("submitted", texts.submitted, "submitted", 150, false, (row) => formatTime(row.submit_ms)),
  column("wait", texts.wait, "wait", 78, true, (row) => duration(row.wait_s)),
  column("run", texts.run, "run", 78, true, (row) => duration(row.run_s)),
  column("gpu_hours", texts.gpuHours, "gpu_hours", 76, true, (row) => count(row.gpu_hours)),
  column("util", texts.utilizationNow, "util", 72, true, (row) =>
    row.util === null ? "–" : formatShare(Math.round(row.util) / 100),
  ),
  column("waste", texts.wasted, "waste", 98, true, (row) => count(row.wasted_gpu_hours)),
  column("efficiency", texts.efficiency, "efficiency", 72, true, (row) => percent(row.efficiency)),
  column("peers", texts.vsPeers, "peers", 68, true, againstPeers),
  column("findings", texts.findings, "findings", 66, true, (row) => count(row.findings)),
  column("started", texts.started, "started", 150, false, (row) => formatTime(row.start_ms)),
  column("ended", texts.ended, "ended", 150, false, (row) => formatTime(row.end_ms)),
  column("experiment", texts.experiment, "experiment", 130, false, (row) => row.experiment || "–"),
  column("gpu_model", texts.gpuType, "gpu_type", 120, false, (row) => row.gpu_model || "–"),
  column("reason", texts.reason, "reason", 160, false, (row) => row.reason || "–"),
];

export const USUAL = [
  "state", "workload", "name", "user", "project", "gpus", "partition", "wait", "run", "gpu_hours",
  "util", "waste", "efficiency", "peers", "findings",
]; // prettier-ignore

/** The columns named, in the table's own order; the usual ones where none is. */
export function chosenColumns(keys: readonly string[]): readonly Column[] {
  const wanted = new Set(keys.length > 0 ? keys : USUAL);
  return COLUMNS.filter((one) => wanted.has(one.key));
}
