/** The attributes as options of a select: facts, metrics, and the free attributes of workloads. */

import { useMemo } from "react";
import type { Option } from "@/base/ui/controls";
import { useShared } from "@/features/overview/context";

export function useAttributeOptions(): Option[] {
  const { attributes } = useShared();
  return useMemo(
    () =>
      [...attributes.values()].map((attribute) => ({
        value: attribute.id,
        label: attribute.unit && attribute.unit !== "s" ? `${attribute.label} (${attribute.unit})` : attribute.label,
        group: attribute.metric ? "Metrics" : attribute.kind === "text" ? "Facts" : "Numbers",
      })),
    [attributes],
  );
}
