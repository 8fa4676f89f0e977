/** The waiting line as the server tells it: filters, and how a forecast is drawn. */

import type { Document } from "@/api/documents";
import type { Fields } from "@/base/conditions/conditions";
import { joinConditions, printWhere, readWhere } from "@/base/conditions/conditions";
import type { Predicate } from "@/base/predicate";

export type WaitingLine = Document<"WaitingLine">;
export type Waiter = Document<"WaiterDocument">;
export type Why = Document<"WhyDocument">;
export type FreeRoom = Document<"FreeDocument">;
export type Asked = Document<"AskDocument">;
export type AskedStart = Document<"AskedStart">;
export type Fairness = Document<"FairnessDocument">;
export type ForecastRecord = Document<"ForecastRecord">;
export type RoomTrend = Document<"RoomTrend">;
export type HostPerformance = Document<"PerformanceDocument">;
export type ExpectedRun = Document<"RunTimeDocument">;
export type PolicyAnswer = Document<"PolicyAnswer">;
export type ComparedWaits = Document<"ComparedWaits">;

export const DAY_MS = 86_400_000;

/** What the page's address says of the line: conditions, a text, the job that is explained. */
export interface LineState {
  where: readonly Predicate[];
  text: string;
  job: string;
}

/** The fields of the conditions that can be put together here; the server takes every other one too. */
export const FIELDS: Fields = {
  texts: [
    "user",
    "project",
    "partition",
    "gpu_model",
    "workload",
    "name",
    "qos",
    "reason",
    "verdict",
  ],
  numbers: ["gpus", "time_limit_s", "priority", "position", "waited_s", "p50_s"],
};
const SEARCHED = ["workload", "name", "user", "project", "partition", "reason", "gpu_model"];

export function readAddress(search: string): LineState {
  const query = new URLSearchParams(search);
  const job = query.get("job") ?? "";
  const where = readWhere(query.get("where"));
  return { where, text: query.get("q") ?? "", job };
}

export function printAddress({ where, text, job }: LineState): string {
  const query = new URLSearchParams();
  const printed = printWhere(where);
  if (printed) query.set("where", printed);
  if (text) query.set("q", text);
  if (job) query.set("job", job);
  const all = query.toString();
  return all ? `?${all}` : "";
}

/** What the server is asked for, as the parameter of its answer; empty for the whole line. */
export function whereOf({ where, text }: LineState): string {
  const asked = joinConditions(where, text, SEARCHED);
  return asked ? JSON.stringify(asked) : "";
}

/** Where a forecast stands on a logarithmic strip from one minute to a week, in percent. */
export function placeOnStrip(seconds: number): number {
  const low = Math.log10(60);
  const high = Math.log10(7 * 86_400);
  const share = (Math.log10(Math.max(seconds, 60)) - low) / (high - low);
  return Math.min(100, Math.max(0, share * 100));
}

/** The partitions that there are, by name. */
export function partitionsOf(rows: readonly { partition: string }[]): string[] {
  return [...new Set(rows.map((row) => row.partition).filter(Boolean))].sort();
}
