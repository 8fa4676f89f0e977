/** Round values for an axis: 1, 2 or 5 times a power of ten; durations by what clocks and calendars have. */

const [MINUTE, HOUR, DAY] = [60, 3_600, 86_400];
const DURATION_STEPS = [
  ...[1, 2, 5, 10, 15, 30],
  ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * MINUTE),
  ...[1, 2, 3, 6, 12].map((hours) => hours * HOUR),
  ...[1, 2, 5, 10, 20, 50, 100].map((days) => days * DAY),
];

function decimalStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5].find((factor) => factor * power >= least * (1 - 1e-9)) ?? 10);
}

/** The multiples of one round step within a range; at most `most` and a half of them, at least the first one. */
export function roundTicks(low: number, high: number, unit: string, most = 4): number[] {
  if (!(high > low)) return [low];
  const least = (high - low) / most;
  const step =
    (unit === "s" ? DURATION_STEPS.find((one) => one >= least) : undefined) ?? decimalStep(least);
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: Math.max(0, count) }, (_, i) => (first + i) * step);
}
