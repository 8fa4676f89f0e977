/** Findings as the server tells them, and how their parts are said. */

import type { Document } from "@/api/documents";
import { formatDuration, formatValue } from "@/base/format";
import type { LanguageDocument } from "@/base/verdicts/documents";
import { findingsTexts as texts } from "@/texts";

export type Comment = Document<"Comment">;

export type Reading = Document<"ReadingDocument">;

export type Finding = Document<"FindingDocument">;

export type FindingsDocument = Document<"FindingList">;

export type Mute = Document<"Mute">;

export type Notifications = Document<"Notifications">;

/** What the page shows, as its address has it. */
export interface Shown {
  state: "open" | "closed" | "all";
  rule: string;
  user: string;
  project: string;
  workload: string;
  id: string;
  severity: string;
  q: string;
  /** By what is at stake unless told otherwise. */
  sort: "" | "newest";
  group: "" | "workload" | "rule";
}

const TEXTS = ["rule", "user", "project", "workload", "id", "severity", "q"] as const;

export function readAddress(search: string): Shown {
  const query = new URLSearchParams(search);
  const state = query.get("state");
  const texts = Object.fromEntries(TEXTS.map((name) => [name, query.get(name) ?? ""])) as Record<
    (typeof TEXTS)[number],
    string
  >;
  const group = query.get("group");
  return {
    state: state === "closed" || state === "all" ? state : "open",
    ...texts,
    sort: query.get("sort") === "newest" ? "newest" : "",
    group: group === "workload" || group === "rule" ? group : "",
  };
}

export function printAddress(shown: Shown): string {
  const query = new URLSearchParams();
  if (shown.state !== "open") query.set("state", shown.state);
  for (const name of [...TEXTS, "sort", "group"] as const)
    if (shown[name]) query.set(name, shown[name]);
  const text = query.toString();
  return text ? `?${text}` : "";
}

/** A measured value or a limit in its unit; a condition begins with what was measured. */
export function readingText(
  condition: string,
  value: Reading["value"],
  language: LanguageDocument | undefined,
): string {
  if (typeof value !== "number") return value ?? texts.notEvaluated;
  const [subject, statistic = ""] = condition.split(/[\s[]+/);
  const fact =
    language && Object.hasOwn(language.facts, subject) ? language.facts[subject] : undefined;
  if (fact) return fact.kind === "duration" ? formatDuration(value / 1000) : formatValue(value);
  const unit = language?.metrics[subject]?.unit ?? "";
  if (statistic.startsWith("share") || statistic === "steadiness") return formatValue(value, "%");
  if (statistic === "count") return formatValue(value);
  return formatValue(value, statistic === "trend" ? `${unit}/h` : unit);
}

const MOST_PLOTS = 3;
// Where a rule asks for facts alone, such as progress, what the GPUs did says most.
const USUAL_PLOT = "util";

/** The metrics that a finding's conditions measured, in their order. */
export function measuredMetrics(finding: Finding, language: LanguageDocument): string[] {
  const conditions = Object.values(finding.evidence)[0] ?? [];
  const subjects = conditions.map(({ condition }) => condition.split(/[\s[]+/)[0]);
  // What is derived is drawn as what it is derived from.
  const known = subjects.flatMap((name) =>
    Object.hasOwn(language.metrics, name) ? (language.metrics[name].plotted ?? []) : [],
  );
  return known.length > 0 ? [...new Set(known)].slice(0, MOST_PLOTS) : [USUAL_PLOT];
}

const LEAST_MARGIN_MS = 30 * 60_000;

/** The time of a finding, with what came before and after it. */
export function plottedSpan({ opened_ms, closed_ms, updated_ms }: Finding): [number, number] {
  const end = Math.max(closed_ms ?? updated_ms, opened_ms);
  const margin = Math.max(LEAST_MARGIN_MS, (end - opened_ms) / 4);
  return [opened_ms - margin, closed_ms === null ? end : end + margin];
}

/** How long a finding has been, or was, open in all. */
export function openSeconds(finding: Finding, nowMs: number): number {
  return finding.episodes.reduce(
    (sum, { opened_ms, closed_ms }) => sum + ((closed_ms ?? nowMs) - opened_ms) / 1000,
    0,
  );
}

/** The mutes that cover a finding now. */
export function mutesOf(finding: Finding, mutes: readonly Mute[], nowMs: number): Mute[] {
  return mutes.filter(
    (mute) =>
      (mute.until_ms === null || nowMs < mute.until_ms) &&
      (mute.rule === "" || mute.rule === finding.rule) &&
      (finding as Record<string, unknown>)[mute.scope] === mute.value,
  );
}
