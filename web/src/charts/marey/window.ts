/** A window of time in nanoseconds from the start of what is looked at, and its place on the screen. */

export interface TimeWindow {
  fromNs: number;
  toNs: number;
}

export const spanNs = ({ fromNs, toNs }: TimeWindow): number => Math.max(1, toNs - fromNs);

/** The pixel of a time in a window that is `width` pixels wide. */
export function pixelOf(timeNs: number, window: TimeWindow, width: number): number {
  return ((timeNs - window.fromNs) / spanNs(window)) * width;
}

/** The time at a pixel. */
export function timeAt(pixel: number, window: TimeWindow, width: number): number {
  return window.fromNs + (pixel / width) * spanNs(window);
}

const LEAST_NS = 1_000;

/** A window kept within limits: never shorter than a microsecond, never beyond what there is. */
export function clampWindow(window: TimeWindow, limits: TimeWindow): TimeWindow {
  const length = Math.min(spanNs(limits), Math.max(LEAST_NS, spanNs(window)));
  const from = Math.min(limits.toNs - length, Math.max(limits.fromNs, window.fromNs));
  return { fromNs: Math.round(from), toNs: Math.round(from + length) };
}

/** The window made wider (factor above 1) or narrower about a share of it. */
export function zoomWindow(
  window: TimeWindow,
  factor: number,
  about: number,
  limits: TimeWindow,
): TimeWindow {
  const length = spanNs(window);
  const middle = window.fromNs + length * about;
  const [before, after] = [length * about * factor, length * (1 - about) * factor];
  return clampWindow({ fromNs: middle - before, toNs: middle + after }, limits);
}

/** The window moved by a share of its length. */
export function panWindow(window: TimeWindow, share: number, limits: TimeWindow): TimeWindow {
  const by = spanNs(window) * share;
  return clampWindow({ fromNs: window.fromNs + by, toNs: window.toNs + by }, limits);
}

/** Times at round distances, about `room` pixels apart. */
export function timeTicks(window: TimeWindow, width: number, room = 110): number[] {
  const step = roundStep((spanNs(window) * room) / Math.max(room, width));
  const ticks: number[] = [];
  for (let t = Math.ceil(window.fromNs / step) * step; t <= window.toNs; t += step) ticks.push(t);
  return ticks;
}

function roundStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  for (const factor of [1, 2, 5]) if (power * factor >= least) return power * factor;
  return power * 10;
}

const UNITS: readonly [number, string][] = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];

/** A time or duration in the unit that suits it, with as many digits as `resolutionNs` deserves. */
export function formatNs(valueNs: number, resolutionNs = 0): string {
  if (!Number.isFinite(valueNs)) return "–";
  const size = Math.max(Math.abs(valueNs), 1);
  const [scale, unit] = UNITS.find(([least]) => size >= least) ?? UNITS[3];
  const scaled = valueNs / scale;
  const wanted =
    resolutionNs > 0
      ? Math.ceil(Math.log10(scale / resolutionNs))
      : 2 - Math.floor(Math.log10(Math.max(1, Math.abs(scaled))));
  const digits = Math.min(6, Math.max(0, wanted));
  return `${Number(scaled.toFixed(digits)).toLocaleString("en", { maximumFractionDigits: digits })}\u2009${unit}`;
}
