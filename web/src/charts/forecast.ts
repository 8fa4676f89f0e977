/** Forecasts of a start as geometry: an interval per moment that narrows, and stated against achieved shares. */

export interface ForecastInterval {
  madeMs: number;
  lowMs: number;
  middleMs: number;
  highMs: number;
}

export interface StripRow {
  y: number;
  height: number;
  x1: number;
  x2: number;
  middle: number;
}

export interface Strip {
  fromMs: number;
  toMs: number;
  rows: StripRow[];
  now: number;
}

/** One bar per forecast, oldest on top, over one axis of time; what lies beyond the axis is cut at its end. */
export function forecastStrip(
  forecasts: readonly ForecastInterval[],
  nowMs: number,
  width: number,
  rowHeight: number,
): Strip {
  const fromMs = Math.min(nowMs, ...forecasts.map((one) => one.madeMs));
  const latest = Math.max(nowMs, ...forecasts.map((one) => one.middleMs + (one.middleMs - fromMs)));
  const toMs = Math.max(
    fromMs + 60_000,
    Math.min(latest, Math.max(...forecasts.map((f) => f.highMs), nowMs)),
  );
  const x = (ms: number) => Math.min(width, Math.max(0, ((ms - fromMs) / (toMs - fromMs)) * width));
  const rows = forecasts.map((one, i) => ({
    y: i * rowHeight,
    height: rowHeight - 2,
    x1: x(one.lowMs),
    x2: Math.max(x(one.highMs), x(one.lowMs) + 1),
    middle: x(one.middleMs),
  }));
  return { fromMs, toMs, rows, now: x(nowMs) };
}

export interface Calibration {
  stated: number;
  achieved: number;
}

/** Points of a calibration plot in a square box: right is stated, up is what came true. */
export function calibrationPoints(
  points: readonly Calibration[],
  size: number,
): { x: number; y: number }[] {
  return points.map((point) => ({ x: point.stated * size, y: (1 - point.achieved) * size }));
}
