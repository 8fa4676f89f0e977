/** Values of call graphs as people read them. */

const STEPS: readonly (readonly [number, string])[] = [
  [60e9, "min"],
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];

/** A time in nanoseconds with the unit that suits it: "1.20 s", "45.1 ms". */
export function formatNs(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const [size, unit] = STEPS.find(([one]) => Math.abs(value) >= one) ?? STEPS[STEPS.length - 1];
  return `${digits(value / size)}\u2009${unit}`;
}

function digits(value: number): string {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

/** A metric of a call site: times in their unit, counts and ratios plain. */
export function formatMetric(
  metric: "inclusive" | "exclusive" | "calls" | "imbalance",
  value: number,
  unit: string,
): string {
  if (!Number.isFinite(value)) return "–";
  if (metric === "imbalance") return value.toFixed(2);
  if (metric === "calls") return Number(value.toPrecision(4)).toLocaleString("en");
  return formatAmount(value, unit);
}

/** An amount of whatever the profiles measure. */
export function formatAmount(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (unit === "ns") return formatNs(value);
  const text = Number(value.toPrecision(4)).toLocaleString("en");
  return unit ? `${text}\u2009${unit}` : text;
}
