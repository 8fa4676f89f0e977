/** The views that come with Marey, each the answer to one question. */

import type { Predicate } from "@/base/predicate";
import type { View } from "@/charts/units/view";
import { parseView } from "@/charts/units/view";
import presetList from "@/features/overview/views/presets.json";

export interface Preset {
  id: string;
  title: string;
  question: string;
  view: View;
  /** Whether the view needs to know who is looking. */
  personal: boolean;
}

export const PRESETS: readonly Preset[] = presetList.map((preset) => ({
  id: preset.id,
  title: preset.title,
  question: preset.question,
  view: { ...parseView(preset.view), title: preset.title },
  personal: JSON.stringify(preset.view).includes("$me"),
}));

/** A preset's view, with the reader's own name where the view asks for it. */
export function presetView(id: string, me: string): View | null {
  const preset = PRESETS.find((one) => one.id === id);
  if (!preset) return null;
  const view = structuredClone(preset.view);
  view.filter = view.filter.map((condition) => named(condition, me));
  return view;
}

function named(condition: Predicate, me: string): Predicate {
  if ("field" in condition && condition.value === "$me") return { ...condition, value: me };
  return condition;
}
