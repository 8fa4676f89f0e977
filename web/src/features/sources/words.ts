/** What is said of a source, in words; no drawing. */

import type { Document } from "@/api/documents";
import { formatCount, formatDuration } from "@/base/format";
import { sourcesTexts as texts } from "@/texts";

export type SourcesDocument = Document<"SourceList">;
export type Source = Document<"SourceDocument">;
export type Reloaded = Document<"Reloaded">;

export type Tone = "good" | "warn" | "alert" | "quiet";

export interface Condition {
  word: string;
  tone: Tone;
}

/** One word for how it is; a source that has begun to fail is not yet stale. */
export function conditionOf(source: Source): Condition {
  if (source.removed) return { word: texts.removed, tone: "quiet" };
  if (source.state === "stale") return { word: texts.stale, tone: "alert" };
  if (source.state === "waiting")
    return source.error
      ? { word: texts.failing, tone: "warn" }
      : { word: texts.noDataYet, tone: "quiet" };
  return source.error
    ? { word: texts.failing, tone: "warn" }
    : { word: texts.healthy, tone: "good" };
}

/** "3 s ago", or that it never was. */
export function ago(ms: number | null): string {
  return ms === null ? texts.never : texts.ago(formatDuration(ms / 1000));
}

/** "120 /s"; small rates keep a digit. */
export function rateText(perSecond: number | null): string {
  if (perSecond === null) return "–";
  const digits = perSecond > 0 && perSecond < 10 ? 1 : 0;
  return `${Number(perSecond.toFixed(digits)).toLocaleString("en")}\u2009/s`;
}

/** How long an answer took: "0.8 ms", "35 ms", "1.2 s". */
export function tookText(source: Source): string {
  if (source.last_ms === null) return "–";
  const ms = source.poll_seconds * 1000;
  if (ms >= 1000) return `${source.poll_seconds.toFixed(1)}\u2009s`;
  return `${ms < 10 ? ms.toFixed(1) : ms.toFixed(0)}\u2009ms`;
}

/** "3 of 1,204", and how many in a row while it lasts. */
export function failuresText(source: Source): string {
  const all = texts.of(formatCount(source.failures), formatCount(source.polls));
  return source.failures_in_a_row > 1
    ? texts.inARow(all, formatCount(source.failures_in_a_row))
    : all;
}

/** The whole page in one sentence. */
export function summaryText(sources: readonly Source[]): string {
  const asked = sources.filter((source) => !source.removed);
  if (asked.length === 0) return texts.noSourcesConfiguredSentence;
  const well = asked.filter((source) => conditionOf(source).tone === "good").length;
  if (well === asked.length)
    return asked.length === 1 ? texts.n1SourceHealthy : texts.allSourcesHealthy(asked.length);
  return texts.ofSourcesHealthy(well, asked.length);
}

/** What reading the file again has done. */
export function reloadedText(reloaded: Reloaded): string {
  const parts = (["kept", "added", "replaced", "removed"] as const)
    .filter((key) => reloaded[key].length > 0)
    .map((key) => `${key} ${reloaded[key].join(", ")}`);
  const summary =
    parts.length > 0 ? texts.reloaded(parts.join("; ")) : texts.reloadedTheFileListsNoSources;
  return reloaded.needs_restart.length > 0
    ? texts.restartNeededFor(summary, reloaded.needs_restart.join(", "))
    : summary;
}

/** The failing endpoints that a source of exporters lists. */
export function failingEndpoints(
  source: Source,
): { all: number; failing: number; listed: { endpoint: string; error: string }[] } | null {
  const { endpoints, failing, errors } = source.details as Record<string, unknown>;
  if (typeof endpoints !== "number" || typeof failing !== "number" || failing === 0) return null;
  const listed = Array.isArray(errors) ? (errors as { endpoint: string; error: string }[]) : [];
  return { all: endpoints, failing, listed };
}
