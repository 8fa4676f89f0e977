/** Findings as the server tells them, and how their parts are said. */

import { formatDuration, formatValue } from "@/base/format";
import type { LanguageDocument, Severity } from "@/base/rules/documents";

export interface Comment {
  time_ms: number;
  by: string;
  text: string;
}

export interface Reading {
  condition: string;
  value: number | string | null;
  limit: number | string | null;
}

export interface Finding {
  id: string;
  rule: string;
  workload: string;
  title: string;
  fault: string;
  severity: Severity;
  waste: boolean;
  user: string;
  project: string;
  partition: string;
  gpus_held: number;
  episodes: { opened_ms: number; closed_ms: number | null; because: string }[];
  gpu_count: number;
  gpus: string[];
  evidence: Record<string, Reading[]>;
  updated_ms: number;
  acknowledged: Comment | null;
  comments: Comment[];
  open: boolean;
  opened_ms: number;
  closed_ms: number | null;
  gpu_hours: number;
  muted: boolean;
}

export interface FindingsDocument {
  rows: Finding[];
  total: number;
  preparing: boolean;
}

export interface Mute {
  id: string;
  scope: string;
  value: string;
  why: string;
  by: string;
  rule: string;
  until_ms: number | null;
  since_ms: number;
}

export interface Notifications {
  dry_run: boolean;
  receivers: string[];
  waiting: { receiver: string; notices: number; attempts: number; due_ms: number; error: string }[];
  log: { time_ms: number; receiver: string; outcome: string; notices: number; subject: string; error: string }[];
}

/** What the page shows, as its address has it. */
export interface Shown {
  state: "open" | "closed" | "all";
  rule: string;
  user: string;
  project: string;
  workload: string;
  id: string;
}

const TEXTS = ["rule", "user", "project", "workload", "id"] as const;

export function readAddress(search: string): Shown {
  const query = new URLSearchParams(search);
  const state = query.get("state");
  const texts = Object.fromEntries(TEXTS.map((name) => [name, query.get(name) ?? ""])) as Record<(typeof TEXTS)[number], string>;
  return { state: state === "closed" || state === "all" ? state : "open", ...texts };
}

export function printAddress(shown: Shown): string {
  const query = new URLSearchParams();
  if (shown.state !== "open") query.set("state", shown.state);
  for (const name of TEXTS) if (shown[name]) query.set(name, shown[name]);
  const text = query.toString();
  return text ? `?${text}` : "";
}

/** A measured value or a limit in its unit; a condition begins with what was measured. */
export function readingText(condition: string, value: Reading["value"], language: LanguageDocument | undefined): string {
  if (typeof value !== "number") return value ?? "not judged";
  const [subject, statistic = ""] = condition.split(/[\s[]+/);
  const fact = language && Object.hasOwn(language.facts, subject) ? language.facts[subject] : undefined;
  if (fact) return fact.kind === "duration" ? formatDuration(value / 1000) : formatValue(value);
  const unit = language?.metrics[subject]?.unit ?? "";
  if (statistic.startsWith("share") || statistic === "steadiness") return formatValue(value, "%");
  if (statistic === "count") return formatValue(value);
  return formatValue(value, statistic === "trend" ? `${unit}/h` : unit);
}

/** How long a finding has been, or was, open in all. */
export function openSeconds(finding: Finding, nowMs: number): number {
  return finding.episodes.reduce((sum, { opened_ms, closed_ms }) => sum + ((closed_ms ?? nowMs) - opened_ms) / 1000, 0);
}

/** The mutes that cover a finding now. */
export function mutesOf(finding: Finding, mutes: readonly Mute[], nowMs: number): Mute[] {
  return mutes.filter(
    (mute) =>
      (mute.until_ms === null || nowMs < mute.until_ms) &&
      (mute.rule === "" || mute.rule === finding.rule) &&
      (finding as unknown as Record<string, unknown>)[mute.scope] === mute.value,
  );
}
