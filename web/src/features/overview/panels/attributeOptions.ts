/** The attributes as options of a select: facts, metrics, and the free attributes of workloads. */

import { useMemo } from "react";
import type { Option } from "@/base/ui/controls";
import { isVerdictField } from "@/base/verdicts/verdicts";
import { isViolated } from "@/base/verdicts/slots";
import { useShared } from "@/features/overview/context";
import { useOverview } from "@/features/overview/store";
import { overviewTexts as texts } from "@/texts";

// A select of thousands of rules helps nobody; any of them can be chosen in the rule bar.
const MOST_RULES = 24;

export function useAttributeOptions(): Option[] {
  const { attributes } = useShared();
  const rules = useOverview((state) => state.rules);
  const colourBy = useOverview((state) => state.view.colour.by);
  const facts = useMemo(
    () =>
      [...attributes.values()]
        .filter((attribute) => !isVerdictField(attribute.id))
        .map((attribute) => ({
          value: attribute.id,
          label:
            attribute.unit && attribute.unit !== "s"
              ? `${attribute.label} (${attribute.unit})`
              : attribute.label,
          group: attribute.metric
            ? texts.metrics
            : attribute.kind === "text"
              ? texts.facts
              : texts.numbers,
        })),
    [attributes],
  );
  return useMemo(() => {
    const shown = rules.filter(
      (entry, i) =>
        entry.field === colourBy ||
        (i < MOST_RULES && (isViolated(entry) || entry.kind === "lens")),
    );
    const known = shown.some((entry) => entry.field === colourBy) || !isVerdictField(colourBy);
    const options = shown.map((entry) => ({
      value: entry.field,
      label: entry.title,
      group: texts.rules,
    }));
    return [
      ...facts,
      ...options,
      ...(known ? [] : [{ value: colourBy, label: colourBy, group: texts.rules }]),
    ];
  }, [facts, rules, colourBy]);
}
