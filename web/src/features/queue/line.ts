/** The waiting line as the server tells it: filters, and how a forecast is drawn. */

import type { Document } from "@/api/documents";

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

/** The waiters whose id, user, project, partition, reason or GPU type holds every word. */
export function filterLine(rows: readonly Waiter[], text: string): Waiter[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter((row) => {
    const told = [row.workload, row.user, row.project, row.partition, row.reason, row.gpu_model]
      .join(" ")
      .toLowerCase();
    return words.every((word) => told.includes(word));
  });
}

/** Where a forecast stands on a logarithmic strip from one minute to a week, in percent. */
export function placeOnStrip(seconds: number): number {
  const low = Math.log10(60);
  const high = Math.log10(7 * 86_400);
  const share = (Math.log10(Math.max(seconds, 60)) - low) / (high - low);
  return Math.min(100, Math.max(0, share * 100));
}

/** The partitions that somebody waits for, by name. */
export function partitionsOf(rows: readonly Waiter[]): string[] {
  return [...new Set(rows.map((row) => row.partition).filter(Boolean))].sort();
}
