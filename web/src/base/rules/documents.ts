/** Rules, verdicts and previews as the server tells them. */

import { getJson, postJson, putJson, remove } from "@/api/client";

export type Severity = "info" | "warning" | "critical";

/** Other thresholds, or silence, for one partition or project. */
export interface Override {
  partition?: string;
  project?: string;
  enabled?: boolean;
  thresholds?: Record<string, string>;
}

/** A site rule as `/rules` lists it. */
export interface RuleDocument {
  id: string;
  when: string;
  title?: string;
  explanation?: string;
  cause?: string;
  next_step?: string;
  false_positives?: string;
  fault?: string;
  severity: Severity;
  enabled: boolean;
  waste: boolean;
  now: string;
  open_after: string;
  close_after: string;
  thresholds?: Record<string, string>;
  override?: Override[];
  origin: "pack" | "file" | "server";
  warnings: string[];
}

export interface Held {
  workloads: string[];
  gpus: string[];
}

export interface VerdictRow {
  rule: string;
  life: Held;
  now: Held;
  not_judged?: string[];
}

export interface VerdictsDocument {
  /** Null while the rules are being prepared. */
  time_ms: number | null;
  rules: VerdictRow[];
}

export interface PreviewHeld extends Held {
  workload_count: number;
  gpu_count: number;
}

export interface PreviewDocument {
  when: string;
  time_ms: number;
  workloads_judged: number;
  life: PreviewHeld;
  now: PreviewHeld;
}

export interface LanguageDocument {
  metrics: Record<string, { label: string; unit: string; min: number; max: number }>;
  statistics: Record<string, string>;
  facts: Record<string, { kind: "duration" | "number" | "text"; description: string }>;
  units: string[];
  severities: Severity[];
  faults: Record<string, string>;
}

/** A personal rule: it lives in the view, highlights, and tells nobody. */
export interface Lens {
  name: string;
  when: string;
}

export const fetchRules = async (signal?: AbortSignal): Promise<RuleDocument[]> => (await getJson<{ rows: RuleDocument[] }>("/rules", {}, signal)).rows;

/** The verdicts of now; of a past moment the findings that were open then. */
export const fetchVerdicts = (at: number | null, signal?: AbortSignal): Promise<VerdictsDocument> => getJson("/verdicts", at === null ? {} : { at: new Date(at).toISOString() }, signal);

export const fetchLanguage = (): Promise<LanguageDocument> => getJson("/rules-language");

export const previewRule = (when: string, signal?: AbortSignal): Promise<PreviewDocument> => postJson("/rules-preview", { when }, signal);

/** A rule that is being written: enough to test it against history. */
export type DraftRule = Pick<RuleDocument, "id" | "when"> & Partial<Pick<RuleDocument, "thresholds" | "override" | "now" | "open_after" | "close_after">>;

/** What a rule document keeps when it is sent back: without what the server adds. */
export function ownPart(rule: RuleDocument): Omit<RuleDocument, "origin" | "warnings"> {
  const own: Partial<RuleDocument> = { ...rule };
  delete own.origin;
  delete own.warnings;
  return own as Omit<RuleDocument, "origin" | "warnings">;
}

export const saveRule = (rule: Omit<RuleDocument, "origin" | "warnings">): Promise<RuleDocument> => putJson(`/rules/${encodeURIComponent(rule.id)}`, rule);

export const deleteRule = (id: string): Promise<void> => remove(`/rules/${encodeURIComponent(id)}`);
