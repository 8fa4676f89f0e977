/** Order among rules: which are shown first, which place and colour each has, and what kind of fault it is. */

import type { Theme } from "@/base/colour";
import type { Lens, RuleDocument, Severity } from "@/base/verdicts/documents";
import { LENS_FIELD, RULE_FIELD } from "@/base/verdicts/verdicts";
import type { RuleVerdict, Verdicts } from "@/base/verdicts/verdicts";
import { baseTexts as texts } from "@/texts";

/** How many rules have a place on the canvas at once; more than eight colours nobody tells apart. */
export const SLOTS = 8;

const COLOURS: Record<Theme, readonly string[]> = {
  dark: ["#ff7a59", "#ffd24a", "#f78fd0", "#b69cff", "#9be15d", "#5ad1ff", "#ff5d8f", "#e6ecf2"],
  light: ["#c43d14", "#946200", "#b3318a", "#6a45c9", "#3f7d00", "#00729c", "#b3124f", "#44505c"],
};

/** The colour of a place. */
export function slotColour(slot: number, theme: Theme): string {
  return COLOURS[theme][slot % SLOTS];
}

export interface Counts {
  workloads: number;
  gpus: number;
}

/** A rule or a lens with its verdict, as bars and lists show it. */
export interface RuleEntry {
  /** The attribute that views filter and colour by: "rule.ID" or "lens.NAME". */
  field: string;
  kind: "site" | "lens";
  title: string;
  when: string;
  severity: Severity;
  /** Kind of fault; "lens" for lenses and "" where the rule names none. */
  fault: string;
  enabled: boolean;
  now: Counts;
  life: Counts;
  /** Workloads that cannot be judged. */
  notJudged: number;
  /** Whoever looks has asked for it: a lens, a rule of one's own, a rule that was just saved here. */
  asked: boolean;
  rule: RuleDocument | null;
  lens: Lens | null;
}

const NOTHING: Counts = { workloads: 0, gpus: 0 };

/** Every rule and lens, ranked; `saved` are the ids of rules that were saved here. */
export function ruleEntries(
  rules: readonly RuleDocument[],
  lenses: readonly Lens[],
  verdicts: Verdicts,
  saved: ReadonlySet<string> = new Set(),
): RuleEntry[] {
  const site = rules.map((rule): RuleEntry => ({
    field: RULE_FIELD + rule.id,
    kind: "site",
    title: rule.title || rule.id,
    when: boundText(rule.when, rule.thresholds ?? {}),
    severity: rule.severity,
    fault: rule.fault ?? "",
    enabled: rule.enabled,
    ...counted(verdicts.get(RULE_FIELD + rule.id)),
    asked: rule.scope === "personal" || saved.has(rule.id),
    rule,
    lens: null,
  }));
  const personal = lenses.map((lens): RuleEntry => ({
    field: LENS_FIELD + lens.name,
    kind: "lens",
    title: lens.name,
    when: lens.when,
    severity: "info",
    fault: "lens",
    enabled: true,
    ...counted(verdicts.get(LENS_FIELD + lens.name)),
    asked: true,
    rule: null,
    lens,
  }));
  return rankEntries([...personal, ...site]);
}

function counted(verdict: RuleVerdict | undefined): Pick<RuleEntry, "now" | "life" | "notJudged"> {
  if (!verdict) return { now: NOTHING, life: NOTHING, notJudged: 0 };
  const count = ({ workloads, gpus }: RuleVerdict["now"]): Counts => ({
    workloads: workloads.size,
    gpus: gpus.size,
  });
  return { now: count(verdict.now), life: count(verdict.life), notJudged: verdict.notJudged.size };
}

const WEIGHT: Record<Severity, number> = { critical: 2, warning: 1, info: 0 };

/** What somebody holds, first: lenses are there because somebody asked; then what is violated now by most. */
export function rankEntries(entries: readonly RuleEntry[]): RuleEntry[] {
  const key = (entry: RuleEntry) => [
    entry.kind === "lens" ? 1 : 0,
    entry.enabled ? 1 : 0,
    entry.now.workloads,
    entry.life.workloads,
    WEIGHT[entry.severity],
    entry.now.gpus,
  ];
  return [...entries].sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    for (let i = 0; i < x.length; i++) if (x[i] !== y[i]) return y[i] - x[i];
    return a.title.localeCompare(b.title, "en") || a.field.localeCompare(b.field, "en");
  });
}

/** Whether anyone violates the rule, now or before. */
export function isViolated(entry: RuleEntry): boolean {
  return entry.enabled && entry.now.workloads + entry.life.workloads > 0;
}

/** Whether a rule wants a place: lenses always do, the site's rules while anyone violates them. */
function wantsPlace(entry: RuleEntry): boolean {
  return isViolated(entry) || entry.kind === "lens";
}

/**
 * The places of rules, by field: a rule keeps its place while it is violated, so that the eye can learn it;
 * a place that falls free goes to the first ranked rule without one. Only what somebody asked for takes a place from
 * another. Later pages hold those that have none on the first.
 */
export function assignSlots(
  previous: readonly (string | null)[],
  ranked: readonly RuleEntry[],
  page = 0,
): (string | null)[] {
  const wanted = ranked.filter(wantsPlace);
  const first = placeFirst(previous, wanted);
  if (page === 0) return first;
  const rest = wanted.map((entry) => entry.field).filter((field) => !first.includes(field));
  return rest.slice((page - 1) * SLOTS, page * SLOTS);
}

/** The places of the first page. */
function placeFirst(
  previous: readonly (string | null)[],
  wanted: readonly RuleEntry[],
): (string | null)[] {
  const fields = wanted.map((entry) => entry.field);
  const slots = Array.from({ length: SLOTS }, (_, i): string | null => {
    const held = previous[i] ?? null;
    return held !== null && fields.includes(held) ? held : null;
  });
  const waiting = fields.filter((field) => !slots.includes(field));
  for (let i = 0; i < SLOTS; i++) slots[i] ??= waiting.shift() ?? null;
  const givesWay = wanted.filter((entry) => !entry.asked && slots.includes(entry.field));
  for (const { field, asked } of wanted) {
    if (!asked || slots.includes(field)) continue;
    const last = givesWay.pop();
    if (last) slots[slots.indexOf(last.field)] = field;
  }
  while (slots.length > 0 && slots.at(-1) === null) slots.pop();
  return slots;
}

/** How many pages of places there are. */
export function pagesOf(ranked: readonly RuleEntry[]): number {
  return Math.max(1, Math.ceil(ranked.filter(wantsPlace).length / SLOTS));
}

export interface FaultGroup {
  fault: string;
  label: string;
  entries: RuleEntry[];
  violated: number;
}

/** Rules by kind of fault: the kind with most violated rules first. */
export function byFault(entries: readonly RuleEntry[]): FaultGroup[] {
  const groups = new Map<string, RuleEntry[]>();
  for (const entry of entries) {
    const list = groups.get(entry.fault) ?? [];
    groups.set(entry.fault, list);
    list.push(entry);
  }
  return [...groups]
    .map(([fault, list]) => ({
      fault,
      label: faultLabel(fault),
      entries: list,
      violated: list.filter(isViolated).length,
    }))
    .sort(
      (a, b) =>
        Number(b.fault === "lens") - Number(a.fault === "lens") ||
        b.violated - a.violated ||
        a.label.localeCompare(b.label, "en"),
    );
}

/** A kind of fault in words. */
export function faultLabel(fault: string): string {
  if (fault === "") return texts.otherRules;
  if (fault === "lens") return texts.myLenses;
  const words = fault
    .replaceAll("_", " ")
    .replace("gpus", "GPUs")
    .replace("gpu", "GPU")
    .replace(/^xid$/, "XID");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

// A text in quotes, or a threshold's name: a dollar inside quotes is a dollar.
const THRESHOLD = /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\$(\w+)/g;

/** The names of the thresholds that a rule's text uses, each once. */
export function thresholdNames(when: string): string[] {
  return [
    ...new Set(
      [...when.matchAll(THRESHOLD)].flatMap(([, name]) => (name === undefined ? [] : [name])),
    ),
  ];
}

/** The rule's text with its thresholds put in. */
export function boundText(when: string, thresholds: Readonly<Record<string, string>>): string {
  return when.replace(THRESHOLD, (found: string, name: string | undefined) =>
    name !== undefined && Object.hasOwn(thresholds, name) ? thresholds[name] : found,
  );
}
