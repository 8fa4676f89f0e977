/** Rules and verdicts, fetched and kept fresh; every view shows the same. */

import { useQueries, useQuery } from "@tanstack/react-query";
import { useMemo, useRef } from "react";
import { ApiError } from "@/api/client";
import type { Lens } from "@/base/verdicts/documents";
import { fetchLanguage, fetchRules, fetchVerdicts, previewRule } from "@/base/verdicts/documents";
import type { RuleEntry } from "@/base/verdicts/slots";
import { assignSlots, ruleEntries } from "@/base/verdicts/slots";
import type { RuleVerdict, Verdicts } from "@/base/verdicts/verdicts";
import { LENS_FIELD, lensVerdict, ofWorkload, siteVerdicts } from "@/base/verdicts/verdicts";
import { baseTexts as texts } from "@/texts";

// Verdicts fall on whole minutes of the cluster's clock; a simulated clock may run faster.
const VERDICTS_MS = 6_000;
const LENS_MS = 10_000;
// No cluster yet, or its rules are being prepared: no fault of anyone's.
const EARLY = [404, 409];
const NO_VERDICTS: Verdicts = new Map();

/** Ends a sentence that says what is not known yet; with how far that is (0-1), where it is known. */
export function preparingText(share: number | null): string {
  if (share === null) return texts.evaluatingRulesOnPastData;
  return texts.evaluatingRulesOnPastDataPercent(Math.floor(share * 100));
}

/** Rules that were saved in this window, by id. */
const savedHere = new Set<string>();

/** Note that a rule was saved here: whoever saves one wants to see it among all others. */
export function noteSaved(id: string): void {
  savedHere.add(id);
}

export const RULES_KEY = ["rules"] as const;
export const VERDICTS_KEY = ["verdicts"] as const;

export function useRules() {
  return useQuery({
    queryKey: RULES_KEY,
    queryFn: ({ signal }) => fetchRules(signal),
    staleTime: 60_000,
    refetchInterval: 60_000,
  });
}

/** The words of the rule language; they do not change while the page lives. */
export function useLanguage() {
  return useQuery({ queryKey: ["rules-language"], queryFn: fetchLanguage, staleTime: Infinity });
}

/** Site verdicts and those of the lenses given, by field; at a past moment what had been found, without lenses. */
export function useVerdicts(
  lenses: readonly Lens[],
  at: number | null = null,
): { verdicts: Verdicts; preparing: boolean; shareRead: number | null; problem: string | null } {
  const site = useQuery({
    queryKey: at === null ? VERDICTS_KEY : [...VERDICTS_KEY, at],
    queryFn: ({ signal }) => fetchVerdicts(at, signal),
    // A past moment stays as it is, once the rules have come to it.
    refetchInterval: ({ state }) =>
      at === null || state.data?.time_ms === null ? VERDICTS_MS : false,
    structuralSharing: false,
    gcTime: at === null ? 300_000 : 10_000,
    // On a walk through the past the moment before stays until the next is there; now is no stand-in for then.
    placeholderData: (before, query) =>
      at !== null && (query?.queryKey.length ?? 0) > VERDICTS_KEY.length ? before : undefined,
  });
  const seen = useQueries({
    queries: lenses.map((lens) => ({
      queryKey: ["lens", lens.when],
      queryFn: ({ signal }: { signal: AbortSignal }) => previewRule(lens.when, signal),
      refetchInterval: LENS_MS,
      retry: false,
      structuralSharing: false,
    })),
  });
  const ofSite = useMemo(() => (site.data ? siteVerdicts(site.data) : NO_VERDICTS), [site.data]);
  const personal = useStable(
    lenses.flatMap((lens, i): [string, object][] =>
      seen[i].data ? [[LENS_FIELD + lens.name, seen[i].data]] : [],
    ),
  );
  const verdicts = useMemo<Verdicts>(() => {
    if (personal.length === 0) return ofSite;
    const mine = personal.map(([field, document]): [string, RuleVerdict] => [
      field,
      lensVerdict(document as Parameters<typeof lensVerdict>[0]),
    ]);
    return new Map([...ofSite, ...mine]);
  }, [ofSite, personal]);
  const failed = seen.findIndex(
    (one) => one.error instanceof ApiError && !EARLY.includes(one.error.status),
  );
  const early = site.error instanceof ApiError && EARLY.includes(site.error.status);
  const problem =
    (early ? null : site.error?.message) ??
    (failed >= 0 ? texts.lens(lenses[failed].name, seen[failed].error?.message ?? "") : null);
  const shareRead = site.data?.share_read ?? null;
  return { verdicts, preparing: site.data?.time_ms === null, shareRead, problem };
}

/** The same list object while its pairs are the same. */
function useStable(pairs: [string, object][]): [string, object][] {
  const kept = useRef(pairs);
  const same =
    kept.current.length === pairs.length &&
    kept.current.every(([field, value], i) => field === pairs[i][0] && value === pairs[i][1]);
  if (!same) kept.current = pairs;
  return kept.current;
}

export interface RuleBoard {
  /** Every rule and lens, ranked. */
  entries: RuleEntry[];
  /** Field per place; a rule keeps its place while it is violated. */
  slots: readonly (string | null)[];
  verdicts: Verdicts;
  /** The rules have not come to what is shown; how much of the past (0-1) they have read, where it is known. */
  preparing: boolean;
  shareRead: number | null;
  loading: boolean;
  problem: string | null;
}

/** The field in each place; a rule keeps its place while it is violated. */
export function useSlots(entries: RuleEntry[], page: number): readonly (string | null)[] {
  const previous = useRef<readonly (string | null)[]>([]);
  return useMemo(() => {
    const next = assignSlots(previous.current, entries, page);
    if (page === 0) previous.current = next;
    return next;
  }, [entries, page]);
}

/**
 * Everything a rule bar needs. `page` chooses which eight violated rules have places; with `only` the board is about
 * one workload and its GPUs (give the same set object while it is the same); `at` is a past moment, null is now.
 */
export function useRuleBoard(
  lenses: readonly Lens[],
  page = 0,
  only?: { workload: string; gpus: ReadonlySet<string> },
  at: number | null = null,
): RuleBoard {
  const rules = useRules();
  const { verdicts: everyone, preparing, shareRead, problem } = useVerdicts(lenses, at);
  const [workload, gpus] = [only?.workload, only?.gpus];
  const verdicts = useMemo<Verdicts>(
    () =>
      workload === undefined || !gpus
        ? everyone
        : new Map(
            [...everyone].map(([field, verdict]) => [field, ofWorkload(verdict, workload, gpus)]),
          ),
    [everyone, workload, gpus],
  );
  const entries = useMemo(
    () => ruleEntries(rules.data ?? [], lenses, verdicts, savedHere),
    [rules.data, lenses, verdicts],
  );
  const slots = useSlots(entries, page);
  return {
    entries,
    slots,
    verdicts,
    preparing,
    shareRead,
    loading: rules.isPending,
    problem: rules.error?.message ?? problem,
  };
}
