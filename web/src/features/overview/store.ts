/** What is on screen in the overview; everything here is also in the address. */

import { create } from "zustand";
import type { Predicate } from "@/base/predicate";
import type { RuleEntry } from "@/base/verdicts/slots";
import { VIOLATED } from "@/base/verdicts/verdicts";
import type { Layer, View } from "@/charts/units/view";
import type { Drawn } from "@/features/overview/drawing/engine";
import type { Numbers } from "@/features/overview/numbers";
import { presetView } from "@/features/overview/views/presets";
import type { UrlState } from "@/features/overview/url";

export interface OverviewState {
  viewName: string | null;
  view: View;
  /** Whether the view differs from what its name stands for. */
  edited: boolean;
  selection: Predicate[];
  camera: [number, number, number] | null;
  me: string;
  panel: boolean;
  problems: string[];
  drawn: Drawn | null;
  numbers: Numbers | null;
  /** Rules as the bar shows them, the places of the violated ones, and the one that is lit. */
  rules: readonly RuleEntry[];
  slots: readonly (string | null)[];
  lit: string | null;
  /** The field of the draft in the editor, lit while nothing else is. */
  draft: string | null;
}

export const useOverview = create<OverviewState>(() => ({
  viewName: "everything",
  view: presetView("everything", "") as View,
  edited: false,
  selection: [],
  camera: null,
  me: "",
  panel: true,
  problems: [],
  drawn: null,
  numbers: null,
  rules: [],
  slots: [],
  lit: null,
  draft: null,
}));

const set = useOverview.setState;
const get = useOverview.getState;

/** Change the view; the rest of what is on screen stays. */
export function editView(change: Partial<View>): void {
  set({ view: { ...get().view, ...change }, edited: true });
}

/** Change one layer of the view. */
export function editLayer(index: number, change: Partial<Layer>): void {
  editView({
    layers: get().view.layers.map((layer, i) => (i === index ? { ...layer, ...change } : layer)),
  });
}

/** Move a layer to another depth. */
export function moveLayer(from: number, to: number): void {
  const layers = [...get().view.layers];
  const [layer] = layers.splice(from, 1);
  if (!layer) return;
  layers.splice(Math.max(0, Math.min(layers.length, to)), 0, layer);
  editView({ layers });
}

/** Show a preset. */
export function choosePreset(id: string): void {
  const view = presetView(id, get().me);
  if (view) set({ viewName: id, view, edited: false, selection: [], camera: null });
}

/** Show a saved or imported view. */
export function showView(view: View, viewName: string | null): void {
  set({ viewName, view, edited: viewName === null, selection: [], camera: null });
}

/** Who is looking; a personal view follows. */
export function chooseMe(me: string): void {
  set({ me });
  const { viewName, edited } = get();
  if (viewName && !edited) {
    const view = presetView(viewName, me);
    if (view) set({ view });
  }
}

/** Select this, or with `more` add it to (or take it from) what is selected. */
export function choose(predicate: Predicate | null, more: boolean): void {
  if (predicate === null) {
    if (!more) set({ selection: [] });
    return;
  }
  const text = JSON.stringify(predicate);
  const { selection } = get();
  const without = selection.filter((one) => JSON.stringify(one) !== text);
  if (!more) set({ selection: [predicate] });
  else set({ selection: without.length < selection.length ? without : [...selection, predicate] });
}

/** Replace the condition on one field, or remove it. */
export function setCondition(field: string, condition: Predicate | null): void {
  const { view } = get();
  const at = view.filter.findIndex((one) => "field" in one && one.field === field);
  const rest = view.filter.filter((_, i) => i !== at);
  if (condition === null) editView({ filter: rest });
  else
    editView({
      filter:
        at >= 0
          ? view.filter.map((one, i) => (i === at ? condition : one))
          : [...view.filter, condition],
    });
}

/** Whether only the units that violate a rule are shown. */
export function isFilteredBy(view: View, field: string): boolean {
  return view.filter.some((one) => "field" in one && one.field === field);
}

/** Show only the units that violate a rule, or everything again. */
export function toggleRuleFilter(field: string): void {
  setCondition(
    field,
    isFilteredBy(get().view, field) ? null : { field, op: "in", value: [...VIOLATED] },
  );
}

/** Colour units by a rule's verdict, or by what the view was made for. */
export function toggleRuleColour(field: string): void {
  const { view, viewName, me } = get();
  const plain = (viewName && presetView(viewName, me)?.colour) || {
    ...view.colour,
    by: "state",
    scheme: null,
  };
  editView({
    colour:
      view.colour.by === field
        ? plain
        : { ...view.colour, by: field, scheme: null, min: null, max: null },
  });
}

/** The state as the address has it. */
export function urlState({ hold, at }: { hold: boolean; at: number | null }): UrlState {
  const { viewName, view, edited, selection, camera, me, panel } = get();
  return { viewName, view: edited ? view : null, selection, camera, me, hold, panel, at };
}
