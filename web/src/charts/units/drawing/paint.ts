/** Colours of units, and the legend that explains them. */

import type { Attribute } from "@/base/attributes";
import type { Rgb, Scale, Theme } from "@/base/colour";
import {
  buildScale,
  CATEGORICAL,
  categoryColours,
  DEFAULT_CATEGORICAL,
  packed,
  ramp,
  stateColours,
  STATES_ABOVE_VALUES,
} from "@/base/colour";
import type { TextColumn } from "@/base/columns";
import { isVerdictField, LIFE, NOT_JUDGED, NOW } from "@/base/verdicts/verdicts";
import type { Units } from "@/base/units";
import type { ColourSpec } from "@/charts/units/view";

export interface LegendEntry {
  word: string;
  count: number;
  colour: number;
}

/** A continuous legend is a histogram; a categorical one a list. Both say how many units there are. */
export type Legend =
  | {
      kind: "number";
      attribute: Attribute;
      scale: Scale;
      colours: Uint32Array;
      counts: number[];
      states: LegendEntry[];
      missing: number;
    }
  | { kind: "text"; attribute: Attribute; entries: LegendEntry[]; missing: number };

export interface Paint {
  /** Packed colour per unit. */
  colours: Uint32Array;
  legend: Legend;
}

const LEGEND_BINS = 40;

/** Which colour each word has had so far: a name keeps its colour while the page lives. */
export type ColourMemory = Map<string, Map<string, number>>;

export interface PaintOptions {
  spec: ColourSpec;
  attribute: Attribute;
  theme: Theme;
  memory: ColourMemory;
  /** 1 where a unit passes the filter. */
  passing: Uint8Array;
}

/** Colour every unit. */
export function paintUnits(units: Units, options: PaintOptions): Paint {
  const column = units.column(options.attribute.id);
  if (options.attribute.kind === "number") {
    const values =
      column?.kind === "number" ? column.values : new Float32Array(units.rows).fill(NaN);
    return paintNumbers(units, values, options);
  }
  const texts: TextColumn =
    column?.kind === "text"
      ? column
      : { kind: "text", codes: new Int32Array(units.rows).fill(-1), words: [] };
  return paintTexts(units, texts, options);
}

function paintNumbers(
  units: Units,
  values: Float32Array | Float64Array,
  options: PaintOptions,
): Paint {
  const { spec, attribute, passing, theme } = options;
  const states = stateTable(units, theme);
  const shown = shownValues(values, states, spec.remap ? passing : null);
  const scale = buildScale(spec, shown, spec.remap ? [null, null] : [attribute.min, attribute.max]);
  const table = ramp(spec.scheme, spec.reverse, theme);
  const counts = new Array<number>(scale.edges ? scale.edges.length - 1 : LEGEND_BINS).fill(0);
  const colours = new Uint32Array(units.rows);
  const none = noneColour(theme);
  let missing = 0;
  for (let i = 0; i < units.rows; i++) {
    if (states.above[i]) {
      colours[i] = states.colours[states.codes[i]];
      if (passing[i]) states.counts[states.codes[i]]++;
      continue;
    }
    const value = values[i];
    if (Number.isNaN(value)) {
      colours[i] = units.gpu[i] < 0 ? states.waiting : none;
      if (units.gpu[i] < 0 && states.codes[i] >= 0) states.counts[states.codes[i]] += passing[i];
      else missing += passing[i];
      continue;
    }
    const t = Math.min(1, Math.max(0, scale.place(value)));
    colours[i] = table[Math.round(t * 255)];
    if (passing[i])
      counts[
        Math.min(
          counts.length - 1,
          Math.floor(
            t * (scale.edges ? counts.length - 1 : counts.length) + (scale.edges ? 0.5 : 0),
          ),
        )
      ]++;
  }
  const entries = states.words
    .map((word, code) => ({ word, count: states.counts[code], colour: states.colours[code] }))
    .filter((entry) => entry.count > 0);
  return {
    colours,
    legend: { kind: "number", attribute, scale, colours: table, counts, states: entries, missing },
  };
}

interface StateTable {
  words: readonly string[];
  codes: Int32Array;
  colours: number[];
  counts: number[];
  /** 1 where the state is shown instead of the value. */
  above: Uint8Array;
  waiting: number;
}

function stateTable(units: Units, theme: Theme): StateTable {
  const palette = stateColours(theme);
  const column = units.column("state");
  const words = column?.kind === "text" ? column.words : [];
  const codes = column?.kind === "text" ? column.codes : new Int32Array(units.rows).fill(-1);
  const hides = words.map((word) => (STATES_ABOVE_VALUES.includes(word) ? 1 : 0));
  const above = new Uint8Array(units.rows);
  for (let i = 0; i < units.rows; i++) above[i] = codes[i] < 0 ? 0 : hides[codes[i]];
  return {
    words,
    codes,
    colours: words.map((word) => packed(palette[word] ?? palette["unknown"])),
    counts: words.map(() => 0),
    above,
    waiting: packed(palette["waiting"]),
  };
}

function shownValues(
  values: Float32Array | Float64Array,
  states: StateTable,
  passing: Uint8Array | null,
): Float32Array {
  const shown = new Float32Array(values.length);
  let n = 0;
  for (let i = 0; i < values.length; i++) {
    if (!states.above[i] && !Number.isNaN(values[i]) && (!passing || passing[i]))
      shown[n++] = values[i];
  }
  return shown.subarray(0, n);
}

function paintTexts(units: Units, column: TextColumn, options: PaintOptions): Paint {
  const { attribute, passing, theme, spec } = options;
  const counts = new Int32Array(column.words.length);
  let missing = 0;
  for (let i = 0; i < units.rows; i++) {
    if (!passing[i]) continue;
    if (column.codes[i] < 0) missing++;
    else counts[column.codes[i]]++;
  }
  const order = Array.from(column.words.keys()).sort((a, b) => counts[b] - counts[a] || a - b);
  const palette =
    attribute.id === "state"
      ? statePalette(column.words, theme)
      : isVerdictField(attribute.id)
        ? column.words.map((word) => verdictColour(word, theme))
        : rememberedPalette(attribute.id, column.words, order, options.memory, spec.scheme);
  const table = palette.map((rgb) => packed(rgb));
  const none = stateTable(units, theme);
  const colours = new Uint32Array(units.rows);
  const blank = noneColour(theme);
  for (let i = 0; i < units.rows; i++) {
    const code = column.codes[i];
    colours[i] = code >= 0 ? table[code] : none.codes[i] >= 0 ? none.colours[none.codes[i]] : blank;
  }
  const entries = order
    .filter((code) => counts[code] > 0)
    .map((code) => ({ word: column.words[code], count: counts[code], colour: table[code] }));
  return { colours, legend: { kind: "text", attribute, entries, missing } };
}

function statePalette(words: readonly string[], theme: Theme): Rgb[] {
  const palette = stateColours(theme);
  return words.map((word) => palette[word] ?? palette["unknown"]);
}

function verdictColour(word: string, theme: Theme): Rgb {
  const dark = theme === "dark";
  if (word === NOW) return dark ? [255, 112, 77] : [200, 60, 20];
  if (word === LIFE) return dark ? [242, 187, 82] : [206, 140, 16];
  if (word === NOT_JUDGED) return dark ? [128, 120, 160] : [160, 152, 190];
  return dark ? [64, 108, 128] : [150, 188, 204];
}

function rememberedPalette(
  id: string,
  words: readonly string[],
  order: readonly number[],
  memory: ColourMemory,
  scheme: string | null,
): Rgb[] {
  const known = memory.get(id) ?? new Map<string, number>();
  memory.set(id, known);
  for (const code of order) if (!known.has(words[code])) known.set(words[code], known.size);
  const palette = categoryColours(
    known.size,
    scheme !== null && scheme in CATEGORICAL ? scheme : DEFAULT_CATEGORICAL,
  );
  return words.map((word) => palette[known.get(word) ?? 0]);
}

function noneColour(theme: Theme): number {
  return packed(theme === "dark" ? [62, 76, 94] : [196, 206, 216]);
}

/** A colour moved towards another by an amount in [0, 1]. */
export function towards(colour: number, other: number, amount: number): number {
  const mix = (shift: number) => {
    const a = (colour >>> shift) & 255;
    return Math.round(a + (((other >>> shift) & 255) - a) * amount);
  };
  return ((255 << 24) | (mix(16) << 16) | (mix(8) << 8) | mix(0)) >>> 0;
}
