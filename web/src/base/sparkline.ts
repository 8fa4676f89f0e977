/** A small line of recent values as an SVG path. */

/** Path through the values over a box; a gap where there is no value; flat lines stay in the middle. */
export function sparklinePath(
  values: readonly (number | null)[],
  width: number,
  height: number,
  range?: readonly [number, number],
): string {
  const present = values.filter(
    (value): value is number => value !== null && Number.isFinite(value),
  );
  if (present.length === 0) return "";
  const low = range?.[0] ?? Math.min(...present);
  const high = range?.[1] ?? Math.max(...present);
  const span = high - low;
  const x = (i: number) => (values.length > 1 ? (i / (values.length - 1)) * width : width / 2);
  const y = (value: number) =>
    span > 0 ? height - ((Math.min(high, Math.max(low, value)) - low) / span) * height : height / 2;
  let path = "";
  let pen = false;
  values.forEach((value, i) => {
    if (value === null || !Number.isFinite(value)) {
      pen = false;
      return;
    }
    path += `${pen ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = true;
  });
  return path;
}
