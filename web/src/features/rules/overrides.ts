/** Exceptions of a rule: other thresholds, or silence, for a partition or a project. */

import type { Override } from "@/base/verdicts/documents";
import { rulesTexts as texts } from "@/texts";

/** The exceptions as they are sent: without what was left empty. */
export function cleanOverrides(
  overrides: readonly Override[],
  names: readonly string[],
): Override[] {
  return overrides.map(({ partition = "", project = "", enabled = true, thresholds = {} }) => {
    const own = Object.entries(thresholds).filter(
      ([name, value]) => names.includes(name) && value.trim() !== "",
    );
    return {
      ...(partition.trim() ? { partition: partition.trim() } : {}),
      ...(project.trim() ? { project: project.trim() } : {}),
      ...(enabled ? {} : { enabled }),
      ...(enabled && own.length > 0 ? { thresholds: Object.fromEntries(own) } : {}),
    };
  });
}

/** What keeps the exceptions from being saved, in words; null where nothing does. */
export function overrideProblem(overrides: readonly Override[]): string | null {
  for (const { partition, project, enabled, thresholds } of overrides) {
    if (!partition && !project) return texts.anExceptionNeedsAPartitionOr;
    if (enabled !== false && !thresholds)
      return texts.exceptionChangesNothing(whom({ partition, project }));
  }
  return null;
}

/** Whom an exception is for. */
export function whom({
  partition,
  project,
}: {
  partition?: string | undefined;
  project?: string | undefined;
}): string {
  return [partition && texts.partitionNamed(partition), project && texts.projectNamed(project)]
    .filter(Boolean)
    .join(texts.andJoin);
}

/** What an exception says. */
export function overrideText(override: Override): string {
  if (override.enabled === false) return texts.disabled;
  return Object.entries(override.thresholds ?? {})
    .map(([name, value]) => `$${name} = ${value}`)
    .join(", ");
}
