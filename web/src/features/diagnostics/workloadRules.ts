/** The rules as they stand for one workload: verdicts while it runs, findings after it has ended. */

import { useQuery } from "@tanstack/react-query";
import { useContext, useMemo } from "react";
import { getJson } from "@/api/client";
import type { Document } from "@/api/documents";
import type { RuleBoard } from "@/base/verdicts/queries";
import { useRules, useSlots, useVerdicts } from "@/base/verdicts/queries";
import { ruleEntries } from "@/base/verdicts/slots";
import type { RuleVerdict, Verdicts } from "@/base/verdicts/verdicts";
import { ofWorkload, RULE_FIELD } from "@/base/verdicts/verdicts";
import type { RuleFinding } from "@/features/diagnostics/documents";
import { WorkloadContext } from "@/features/diagnostics/queries";
import { useChosen } from "@/features/diagnostics/store";

/** A board on which only this workload's GPUs stand; a rule keeps its place while it is violated. */
export function useWorkloadBoard(gpus: readonly string[], page: number): RuleBoard {
  const { workload } = useContext(WorkloadContext);
  const lenses = useChosen((chosen) => chosen.lenses);
  const rules = useRules();
  const { verdicts, preparing, shareRead, problem } = useVerdicts(lenses);
  const findings = useFindings(workload);
  const own = useMemo(
    () => ownVerdicts(verdicts, findings, workload, gpus),
    [verdicts, findings, workload, gpus],
  );
  const entries = useMemo(
    () => ruleEntries(rules.data ?? [], lenses, own),
    [rules.data, lenses, own],
  );
  const slots = useSlots(entries, page);
  return {
    entries,
    slots,
    verdicts: own,
    preparing,
    shareRead,
    loading: rules.isPending,
    problem: rules.error?.message ?? problem,
  };
}

const NONE: readonly RuleFinding[] = [];

function useFindings(workload: string): readonly RuleFinding[] {
  const found = useQuery({
    queryKey: ["findings", workload],
    queryFn: ({ signal }) => getJson<Document<"FindingList">>("/findings", { workload }, signal),
    staleTime: 15_000,
    retry: 0,
  });
  return found.data?.rows ?? NONE;
}

/** Verdicts hold for running workloads; what was found earlier stays true of the life. */
export function ownVerdicts(
  verdicts: Verdicts,
  findings: readonly RuleFinding[],
  workload: string,
  gpus: readonly string[],
): Map<string, RuleVerdict> {
  const held = new Set(gpus);
  const own = new Map(
    [...verdicts].map(([field, verdict]) => [field, ofWorkload(verdict, workload, held)]),
  );
  for (const finding of findings) {
    const field = RULE_FIELD + finding.rule;
    const known = own.get(field);
    if (known && known.life.workloads.size + known.now.workloads.size > 0) continue;
    const found = {
      workloads: new Set([workload]),
      gpus: new Set([...(known?.life.gpus ?? []), ...finding.gpus.filter((gpu) => held.has(gpu))]),
    };
    own.set(field, {
      life: found,
      now: known?.now ?? { workloads: new Set(), gpus: new Set() },
      notJudged: known?.notJudged ?? new Set(),
    });
  }
  return own;
}
