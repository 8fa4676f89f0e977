/** Rules, verdicts and previews as the server tells them. */

import type { Document } from "@/api/documents";
import { getJson, postJson, putJson, remove } from "@/api/client";

export type Severity = RuleDocument["severity"];

export type Override = Document<"OverrideDocument">;

export type RuleDocument = Document<"RuleRow">;

export type Held = Document<"VerdictHits">;

export type VerdictRow = Document<"VerdictRow">;

export type VerdictsDocument = Document<"Verdicts">;

export type PreviewHeld = Document<"PreviewHits">;

export type PreviewDocument = Document<"RulePreview">;

export type LanguageDocument = Document<"RuleLanguage">;

/** It lives in the view, highlights, and opens no finding. */
export interface Lens {
  name: string;
  when: string;
}

export const fetchRules = async (signal?: AbortSignal): Promise<RuleDocument[]> =>
  (await getJson<Document<"RuleList">>("/rules", {}, signal)).rows;

/** The verdicts of now; of a past moment the findings that were open then. */
export const fetchVerdicts = (at: number | null, signal?: AbortSignal): Promise<VerdictsDocument> =>
  getJson("/verdicts", at === null ? {} : { at: new Date(at).toISOString() }, signal);

export const fetchLanguage = (): Promise<LanguageDocument> => getJson("/rules-language");

export const previewRule = (when: string, signal?: AbortSignal): Promise<PreviewDocument> =>
  postJson("/rules-preview", { when }, signal);

/** A rule that is being written: enough to test it against history. */
export type DraftRule = Pick<RuleDocument, "id" | "when"> &
  Partial<Pick<RuleDocument, "thresholds" | "override" | "now" | "open_after" | "close_after">>;

/** A rule as it is sent back: without what the server adds. */
export type SentRule = Omit<RuleDocument, "origin" | "warnings" | "scope" | "owner" | "may_change">;

export type RuleScope = RuleDocument["scope"];

/** What a rule document keeps when it is sent back. */
export function ownPart(rule: RuleDocument): SentRule {
  const own: Partial<RuleDocument> = { ...rule };
  for (const added of ["origin", "warnings", "scope", "owner", "may_change"] as const)
    delete own[added];
  return own as SentRule;
}

export const saveRule = (rule: SentRule, scope: RuleScope): Promise<RuleDocument> =>
  putJson(`/rules/${encodeURIComponent(rule.id)}?scope=${scope}`, rule);

export const deleteRule = (id: string): Promise<void> => remove(`/rules/${encodeURIComponent(id)}`);
