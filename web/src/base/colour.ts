/** Colour schemes and scales: value → colour, safe for colour-blind readers by default. */

export type Rgb = readonly [number, number, number];

function stops(hex: string): Rgb[] {
  return hex.split(" ").map((part) => hexColour(`#${part}`));
}

/** "#rrggbb" as three bytes. */
function hexColour(hex: string): Rgb {
  const n = parseInt(hex.slice(1), 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}

/** Continuous schemes, from low to high, as evenly spaced stops. */
export const CONTINUOUS: Readonly<Record<string, readonly Rgb[]>> = {
  viridis: stops("440154 482878 3e4989 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725"),
  cividis: stops("00224e 123570 3b496c 575d6d 707173 8a8678 a59c74 c3b369 e1cc55 fee838"),
  magma: stops("180f3d 440f76 721f81 9e2f7f cd4071 f1605d fd9668 feca8d fcfdbf"),
  marey: stops("2a6496 2b829f 3a9d9d 6fb597 a8cb9c d8dfb4 f8f4da"),
  blues: stops("17324d 1d4f7c 2a6fa8 4b8fc9 7fb2de b5d4ee e6f1fa"),
  teal: stops("14343b 17505a 1c6f78 2b8f94 57b0ae 93d0ca d4eee9"),
  blue_orange: stops("08519c 3182bd 6baed6 bdd7e7 eeeeee fdd0a2 fdae6b e6550d a63603"),
};

/** A pale end is lost on a light page: there the house scheme ends in a deeper tone. */
const ON_LIGHT: Readonly<Record<string, readonly Rgb[]>> = {
  marey: stops("1f5584 22718f 2e8a8c 55a083 8fb583 c6c987 ecd67c"),
};

/** The stops of a continuous scheme on a page of this theme. */
export function continuousScheme(name: string | null, theme: Theme): readonly Rgb[] {
  const known = name !== null && name in CONTINUOUS ? name : DEFAULT_CONTINUOUS;
  return (theme === "light" ? ON_LIGHT[known] : undefined) ?? CONTINUOUS[known];
}

/** Categorical schemes; a name beyond the last colour gets a lighter or darker kin of an earlier one. */
export const CATEGORICAL: Readonly<Record<string, readonly Rgb[]>> = {
  okabe_ito: stops("56b4e9 e69f00 009e73 cc79a7 0072b2 d55e00 f0e442"),
  bright: stops("4477aa ee6677 228833 ccbb44 66ccee aa3377"),
  muted: stops("88ccee 44aa99 ddcc77 cc6677 aa4499 999933 117733 882255 6650b8"),
};

export const DEFAULT_CONTINUOUS = "marey";
export const DEFAULT_CATEGORICAL = "okabe_ito";

export type Theme = "dark" | "light";

/** What the states of a unit look like, whatever else the colour says. */
export function stateColours(theme: Theme): Readonly<Record<string, Rgb>> {
  return {
    allocated: hexColour(theme === "dark" ? "#4a97c9" : "#3a86b8"),
    idle: hexColour(theme === "dark" ? "#46525f" : "#bcc6d0"),
    drained: hexColour(theme === "dark" ? "#d9a520" : "#c48a00"),
    down: hexColour(theme === "dark" ? "#a765bb" : "#8c4a9f"),
    failed: hexColour(theme === "dark" ? "#ec5b34" : "#d1451f"),
    unknown: hexColour("#8d8d8d"),
    unclaimed: hexColour(theme === "dark" ? "#5fb3a3" : "#2f8f7d"),
    waiting: hexColour(theme === "dark" ? "#8ea3c8" : "#7388b0"),
  };
}

/** States in which the hardware is not at work: shown as the state even when a metric is coloured. */
export const STATES_ABOVE_VALUES: readonly string[] = [
  "idle",
  "drained",
  "down",
  "failed",
  "unknown",
];

/** Four bytes as the little-endian integer that a Uint32Array shares with an RGBA buffer. */
export function packed([r, g, b]: Rgb, alpha = 255): number {
  return ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

/** CSS text of a packed colour. */
export function cssColour(rgba: number): string {
  return `rgb(${rgba & 255} ${(rgba >> 8) & 255} ${(rgba >> 16) & 255})`;
}

/** The colour at t in [0, 1] of a continuous scheme. */
export function interpolate(scheme: readonly Rgb[], t: number): Rgb {
  const place = Math.min(1, Math.max(0, t)) * (scheme.length - 1);
  const i = Math.min(scheme.length - 2, Math.floor(place));
  const f = place - i;
  const [a, b] = [scheme[i], scheme[i + 1]];
  return [0, 1, 2].map((c) => Math.round(a[c] + (b[c] - a[c]) * f)) as unknown as Rgb;
}

/** Colours of categories, in the order given: the scheme first, then lighter and darker kin. */
export function categoryColours(count: number, schemeName: string): Rgb[] {
  const scheme = CATEGORICAL[schemeName] ?? CATEGORICAL[DEFAULT_CATEGORICAL];
  return Array.from({ length: count }, (_, i) => {
    const round = Math.floor(i / scheme.length);
    const base = scheme[i % scheme.length];
    if (round === 0) return base;
    const towards = round % 2 === 1 ? 235 : 30;
    const amount = Math.min(0.62, 0.3 + 0.12 * Math.floor((round - 1) / 2));
    return base.map((c) => Math.round(c + (towards - c) * amount)) as unknown as Rgb;
  });
}

export interface ScaleSpec {
  scale: "linear" | "log" | "quantile" | "quantize";
  min: number | null;
  max: number | null;
  bins: number;
}

/** A value's place in [0, 1], and the values at which the legend has its edges. */
export interface Scale {
  domain: [number, number];
  place: (value: number) => number;
  /** Inverse of `place`, for brushing; the middle of a step where the scale has steps. */
  valueAt: (t: number) => number;
  /** Inner and outer edges where the scale has steps. */
  edges: number[] | null;
}

/** Build a scale over values; the catalogue's range holds unless the data or the user says otherwise. */
export function buildScale(
  spec: ScaleSpec,
  values: Float64Array | Float32Array,
  range: [number | null, number | null],
): Scale {
  const [low, high] = dataRange(values);
  const min = spec.min ?? range[0] ?? low;
  const max = Math.max(spec.max ?? range[1] ?? high, min + 1e-9);
  switch (spec.scale) {
    case "log":
      return logScale(spec.min ?? Math.max(min, 0), max, low);
    case "quantize":
      return steps(
        Array.from({ length: spec.bins + 1 }, (_, i) => min + ((max - min) * i) / spec.bins),
      );
    case "quantile":
      return steps(quantileEdges(values, spec.bins, min, max));
    case "linear":
      return {
        domain: [min, max],
        place: (value) => (value - min) / (max - min),
        valueAt: (t) => min + t * (max - min),
        edges: null,
      };
  }
}

function logScale(min: number, max: number, low: number): Scale {
  // A logarithm needs a start above zero: the smallest positive value, at most five decades below the top.
  const start = Math.max(
    max / 1e9,
    1e-12,
    min > 0 ? min : Math.max(max / 1e5, low > 0 ? low : max / 1e3),
  );
  const span = Math.log(Math.max(max, start * 1.0001) / start);
  return {
    domain: [start, max],
    place: (value) => (value <= start ? 0 : Math.log(value / start) / span),
    valueAt: (t) => start * Math.exp(t * span),
    edges: null,
  };
}

function steps(edges: number[]): Scale {
  const bins = edges.length - 1;
  const bin = (value: number): number => {
    let i = 0;
    while (i < bins - 1 && value >= edges[i + 1]) i++;
    return i;
  };
  return {
    domain: [edges[0], edges[bins]],
    place: (value) => (bins === 1 ? 0.5 : bin(value) / (bins - 1)),
    valueAt: (t) => {
      const at = Math.min(1, Math.max(0, t)) * bins;
      const i = Math.min(bins - 1, Math.floor(at));
      return edges[i] + (edges[i + 1] - edges[i]) * (at - i);
    },
    edges,
  };
}

function quantileEdges(
  values: ArrayLike<number>,
  bins: number,
  min: number,
  max: number,
): number[] {
  const step = Math.max(1, Math.floor(values.length / 20_000));
  const sample: number[] = [];
  for (let i = 0; i < values.length; i += step)
    if (values[i] >= min && values[i] <= max) sample.push(values[i]);
  const sorted = Float64Array.from(sample).sort();
  if (sorted.length === 0) return [min, max];
  const edges = Array.from(
    { length: bins + 1 },
    (_, i) => sorted[Math.min(sorted.length - 1, Math.floor((i * sorted.length) / bins))],
  );
  const distinct = edges.filter((edge, i) => i === 0 || edge > edges[i - 1]);
  return distinct.length > 1 ? distinct : [distinct[0], distinct[0] + 1e-9];
}

function dataRange(values: ArrayLike<number>): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (let i = 0; i < values.length; i++) {
    const v = values[i];
    if (v < low) low = v;
    if (v > high) high = v;
  }
  return low <= high ? [low, high] : [0, 1];
}

/** 256 packed colours along a continuous scheme. */
export function ramp(schemeName: string | null, reverse: boolean, theme: Theme): Uint32Array {
  const scheme = continuousScheme(schemeName, theme);
  return Uint32Array.from({ length: 256 }, (_, i) =>
    packed(interpolate(scheme, (reverse ? 255 - i : i) / 255)),
  );
}
