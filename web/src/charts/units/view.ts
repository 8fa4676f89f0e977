/** The view grammar: a small JSON document that says how units are grouped, placed and coloured. */

import type { Predicate } from "@/base/predicate";
import { fieldsOf, parsePredicate, PredicateError } from "@/base/predicate";
import type { Lens } from "@/base/verdicts/documents";
import { isVerdictField } from "@/base/verdicts/verdicts";
import type { Schema } from "@/base/schema";
import { schemaErrors } from "@/base/schema";
import type { LayoutKind } from "@/charts/units/arrange";
import type { Aggregate } from "@/charts/units/group";
import viewSchema from "@/charts/units/view.schema.json";
import { chartsTexts as texts } from "@/texts";

export interface Sort {
  by: string;
  aggregate?: Aggregate;
  order?: "ascending" | "descending";
}

export interface Layer {
  by: string;
  bins: number;
  layout: LayoutKind;
  size: "uniform" | "count";
  sort: Sort;
  margin: number;
  padding: number;
  label: number;
  aspect: number;
  across: number;
}

export interface UnitLayer {
  layout: LayoutKind;
  sort: Sort;
  gap: number;
  aspect: number;
  across: number;
  align: "start" | "end";
}

export type ScaleKind = "linear" | "log" | "quantile" | "quantize";

export interface ColourSpec {
  by: string;
  scheme: string | null;
  scale: ScaleKind;
  min: number | null;
  max: number | null;
  bins: number;
  remap: boolean;
  reverse: boolean;
}

export interface View {
  version: 1;
  title: string;
  units: "gpus" | "waiting" | "both";
  waiting_unit: "gpu" | "workload";
  layers: Layer[];
  unit: UnitLayer;
  colour: ColourSpec;
  filter: Predicate[];
  others: "hide" | "fade";
  /** Personal rules: they highlight, and travel with the view. */
  lenses: Lens[];
}

const VIEW_SCHEMA = viewSchema as Schema;

const LAYER: Omit<Layer, "by"> = {
  bins: 5,
  layout: "pack",
  size: "count",
  sort: { by: "name", order: "ascending" },
  margin: 8,
  padding: 4,
  label: 11,
  aspect: 1.6,
  across: 0,
};
const UNIT: UnitLayer = {
  layout: "pack",
  sort: { by: "name", order: "ascending" },
  gap: 0.14,
  aspect: 1.6,
  across: 0,
  align: "start",
};
const COLOUR: Omit<ColourSpec, "by"> = {
  scheme: null,
  scale: "linear",
  min: null,
  max: null,
  bins: 6,
  remap: false,
  reverse: false,
};

export class ViewError extends Error {
  constructor(readonly problems: string[]) {
    super(problems.join("\n"));
  }
}

/** A layer with every setting at its default. */
export function newLayer(by: string): Layer {
  return { by, ...structuredClone(LAYER) };
}

/** Check a document and fill in the defaults; a wrong one is refused with the place and what is allowed. */
export function parseView(document: unknown, attributes?: readonly string[]): View {
  const problems = schemaErrors(document, VIEW_SCHEMA);
  if (problems.length > 0) throw new ViewError(problems.slice(0, 10));
  const given = document as Partial<View> & { layers: Partial<Layer>[] };
  const filter = (given.filter ?? []).map((condition, i) =>
    checkCondition(condition, `$.filter[${i}]`),
  );
  const view: View = {
    version: 1,
    title: given.title ?? "",
    units: given.units ?? "gpus",
    waiting_unit: given.waiting_unit ?? "gpu",
    layers: given.layers.map(
      (layer) =>
        ({ ...structuredClone(LAYER), ...layer, sort: { ...LAYER.sort, ...layer.sort } }) as Layer,
    ),
    unit: { ...UNIT, ...given.unit, sort: { ...UNIT.sort, ...given.unit?.sort } },
    colour: { by: "state", ...COLOUR, ...given.colour },
    filter,
    others: given.others ?? "hide",
    lenses: given.lenses ?? [],
  };
  if (attributes) checkAttributes(view, attributes);
  return view;
}

function checkCondition(condition: unknown, place: string): Predicate {
  try {
    return parsePredicate(condition, place);
  } catch (error) {
    if (error instanceof PredicateError) throw new ViewError([error.message]);
    throw error;
  }
}

function checkAttributes(view: View, attributes: readonly string[]): void {
  const used: [string, string][] = [
    ...view.layers.map((layer, i): [string, string] => [`$.layers[${i}].by`, layer.by]),
    ...view.layers.map((layer, i): [string, string] => [`$.layers[${i}].sort.by`, layer.sort.by]),
    ["$.unit.sort.by", view.unit.sort.by],
    ["$.colour.by", view.colour.by],
    ...view.filter.flatMap((condition, i) =>
      fieldsOf(condition).map((field): [string, string] => [`$.filter[${i}]`, field]),
    ),
  ];
  const words = new Set([...attributes]);
  const sorts = new Set(["name", "count"]);
  const problems = used
    .filter(
      ([place, name]) =>
        !words.has(name) &&
        !(place.endsWith("sort.by") && sorts.has(name)) &&
        !name.startsWith("attributes.") &&
        !isVerdictField(name),
    )
    .map(([place, name]) => texts.notAnAttribute(place, name.slice(0, 60), attributes.join(", ")));
  if (problems.length > 0) throw new ViewError(problems);
}

/** The shortest document that means the same view: defaults are left out. */
export function printView(view: View): Record<string, unknown> {
  const layers = view.layers.map((layer) => ({
    by: layer.by,
    ...changed(layer, { by: layer.by, ...LAYER }),
  }));
  const document: Record<string, unknown> = {
    version: 1,
    ...(view.title ? { title: view.title } : {}),
  };
  if (view.units !== "gpus") document["units"] = view.units;
  if (view.waiting_unit !== "gpu") document["waiting_unit"] = view.waiting_unit;
  document["layers"] = layers;
  const unit = changed(view.unit, UNIT);
  if (Object.keys(unit).length > 0) document["unit"] = unit;
  const colour = changed(view.colour, { by: "state", ...COLOUR });
  if (Object.keys(colour).length > 0) document["colour"] = { by: view.colour.by, ...colour };
  if (view.filter.length > 0) document["filter"] = view.filter;
  if (view.others !== "hide") document["others"] = view.others;
  if (view.lenses.length > 0) document["lenses"] = view.lenses;
  return document;
}

function changed<T extends object>(value: T, defaults: T): Partial<T> {
  const pairs = Object.entries(value).filter(
    ([key, item]) => JSON.stringify(item) !== JSON.stringify(defaults[key as keyof T]),
  );
  return Object.fromEntries(pairs) as Partial<T>;
}

/** Every attribute a view needs a value of. */
export function attributesOf(view: View): string[] {
  const sorts = [...view.layers.map((layer) => layer.sort.by), view.unit.sort.by].filter(
    (by) => by !== "name" && by !== "count",
  );
  const fields = view.filter.flatMap(fieldsOf);
  return [
    ...new Set([...view.layers.map((layer) => layer.by), ...sorts, view.colour.by, ...fields]),
  ];
}
