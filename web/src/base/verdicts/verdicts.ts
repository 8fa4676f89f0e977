/** Which units violate which rule: the server's lists as sets, and as a column that views filter and colour by. */

import type { TextColumn } from "@/base/columns";
import { wordCodes } from "@/base/columns";
import type { Held, PreviewDocument, VerdictsDocument } from "@/base/verdicts/documents";

/** GPUs that fulfil a rule, and the workloads it is held against. */
export interface Violations {
  workloads: ReadonlySet<string>;
  gpus: ReadonlySet<string>;
}

export interface RuleVerdict {
  life: Violations;
  now: Violations;
  /** Workloads that the rule cannot judge: a metric has no samples. */
  notJudged: ReadonlySet<string>;
}

/** Verdicts by field: "rule.stalled" of a site rule, "lens.mine" of a personal one. */
export type Verdicts = ReadonlyMap<string, RuleVerdict>;

export const RULE_FIELD = "rule.";
export const LENS_FIELD = "lens.";

/** The field of a draft that is being typed; no lens can be called nothing. */
export const DRAFT_FIELD = LENS_FIELD;

/** Whether an attribute is a rule's verdict. */
export function isVerdictField(field: string): boolean {
  return field.startsWith(RULE_FIELD) || field.startsWith(LENS_FIELD);
}

export const NOW = "violated now";
export const LIFE = "violated over its life";
export const NOT_JUDGED = "not judged";
const NOT_VIOLATED = "not violated";
/** The words of a verdict column, by code. */
export const VERDICT_WORDS: readonly string[] = [NOW, LIFE, NOT_JUDGED, NOT_VIOLATED];
export const VIOLATED: readonly string[] = [NOW, LIFE];

const violations = (held: Held): Violations => ({
  workloads: new Set(held.workloads),
  gpus: new Set(held.gpus),
});

/** The verdicts of the site's rules. */
export function siteVerdicts(document: VerdictsDocument): Map<string, RuleVerdict> {
  return new Map(
    document.rules.map((row) => [
      RULE_FIELD + row.rule,
      {
        life: violations(row.life),
        now: violations(row.now),
        notJudged: new Set(row.not_judged ?? []),
      },
    ]),
  );
}

/** The verdict of a lens, from a preview. */
export function lensVerdict(preview: PreviewDocument): RuleVerdict {
  return { life: violations(preview.life), now: violations(preview.now), notJudged: new Set() };
}

/** The part of a verdict that concerns one workload. */
export function ofWorkload(
  verdict: RuleVerdict,
  workload: string,
  gpus: ReadonlySet<string>,
): RuleVerdict {
  const only = (held: Violations): Violations => {
    if (!held.workloads.has(workload)) return { workloads: new Set(), gpus: new Set() };
    return {
      workloads: new Set([workload]),
      gpus: new Set([...held.gpus].filter((gpu) => gpus.has(gpu))),
    };
  };
  return {
    life: only(verdict.life),
    now: only(verdict.now),
    notJudged: verdict.notJudged.has(workload) ? new Set([workload]) : new Set(),
  };
}

/** The verdict on each row of a table of units; a unit without a workload is not judged by any rule and has none. */
export function verdictColumn(
  verdict: RuleVerdict,
  gpu: TextColumn,
  workload: TextColumn,
): TextColumn {
  // Per distinct name, from the (few) names that are held: bit 1 is "now", bit 2 "over its life", bit 4 "not judged".
  const ofGpu = flags(gpu.words, [verdict.now.gpus, verdict.life.gpus]);
  const ofJob = flags(workload.words, [
    verdict.now.workloads,
    verdict.life.workloads,
    verdict.notJudged,
  ]);
  const codes = new Int32Array(gpu.codes.length);
  for (let i = 0; i < codes.length; i++) {
    const [g, w] = [gpu.codes[i], workload.codes[i]];
    if (g < 0 || w < 0) {
      codes[i] = -1;
      continue;
    }
    const both = ofGpu[g] & ofJob[w];
    codes[i] = both & 1 ? 0 : both & 2 ? 1 : ofJob[w] & 4 ? 2 : 3;
  }
  return { kind: "text", codes, words: VERDICT_WORDS };
}

function flags(words: readonly string[], sets: readonly ReadonlySet<string>[]): Uint8Array {
  const codes = wordCodes(words);
  const bits = new Uint8Array(words.length);
  sets.forEach((set, place) => {
    for (const word of set) {
      const code = codes.get(word);
      if (code !== undefined) bits[code] |= 1 << place;
    }
  });
  return bits;
}
