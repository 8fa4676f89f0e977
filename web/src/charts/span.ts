/** Spans of time in milliseconds: zoomed, moved, kept within what there is. */

export type Span = readonly [number, number];

/** The span made wider (factor above 1) or narrower about a share of it. */
export function zoomed([from, to]: Span, factor: number, about = 0.5): Span {
  const length = to - from;
  const middle = from + length * about;
  return [middle - length * about * factor, middle + length * (1 - about) * factor];
}

/** The span moved by a share of its length. */
export function moved([from, to]: Span, share: number): Span {
  const by = (to - from) * share;
  return [from + by, to + by];
}

const LEAST_MS = 2_000;

/** The span within limits: as long as it can be, never shorter than two seconds; null when it is all. */
export function within(span: Span, limits: Span): Span | null {
  const whole = limits[1] - limits[0];
  const length = Math.max(LEAST_MS, span[1] - span[0]);
  if (length >= whole) return null;
  const from = Math.max(limits[0], Math.min(limits[1] - length, span[0]));
  return [from, from + length];
}
