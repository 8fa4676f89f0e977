/** Lines over time with axes, a legend and markers at moments that changed something. */

import { formatCount, formatTime } from "@/base/format";
import styles from "@/base/ui/Trend.module.css";

export interface TrendLine {
  name: string;
  values: readonly (number | null)[];
}

export interface TrendMarker {
  timeMs: number;
  text: string;
}

const COLOURS = [
  "var(--chart-allocated)",
  "var(--chart-broken)",
  "var(--chart-waiting)",
  "var(--good)",
];
const [WIDTH, HEIGHT, LEFT, TOP, BOTTOM] = [440, 150, 52, 10, 22];

export function Trend({
  label,
  times,
  lines,
  markers,
  format = formatCount,
}: {
  label: string;
  times: readonly number[];
  lines: readonly TrendLine[];
  markers: readonly TrendMarker[];
  format?: (value: number) => string;
}) {
  const first = times[0] ?? 0;
  const span = Math.max(1, (times[times.length - 1] ?? 1) - first);
  const most = roundUp(Math.max(...lines.flatMap(({ values }) => values.map((v) => v ?? 0)), 0));
  const x = (timeMs: number) => LEFT + ((timeMs - first) / span) * (WIDTH - LEFT - 8);
  const y = (value: number) => TOP + (1 - value / most) * (HEIGHT - TOP - BOTTOM);
  return (
    <figure className={styles["trend"]}>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={label}>
        {[0, most / 2, most].map((tick) => (
          <g key={tick}>
            <line x1={LEFT} x2={WIDTH - 8} y1={y(tick)} y2={y(tick)} />
            <text x={LEFT - 6} y={y(tick) + 4} textAnchor="end">
              {format(tick)}
            </text>
          </g>
        ))}
        {hours(first, span).map((timeMs) => (
          <text key={timeMs} x={x(timeMs)} y={HEIGHT - 6} textAnchor="middle">
            {clock(timeMs, span)}
          </text>
        ))}
        {lines.map((line, place) => (
          <polyline
            key={line.name}
            stroke={COLOURS[place % COLOURS.length]}
            points={line.values
              .map((value, i) =>
                value === null ? "" : `${String(x(times[i]))},${String(y(value))}`,
              )
              .join(" ")}
          />
        ))}
        {markers.map((marker) => (
          <g key={`${String(marker.timeMs)} ${marker.text}`} className={styles["marker"]}>
            <title>{`${formatTime(marker.timeMs)}: ${marker.text}`}</title>
            <line x1={x(marker.timeMs)} x2={x(marker.timeMs)} y1={TOP} y2={HEIGHT - BOTTOM} />
          </g>
        ))}
      </svg>
      {lines.length > 1 && (
        <figcaption>
          {lines.map((line, place) => (
            <span key={line.name}>
              <i style={{ background: COLOURS[place % COLOURS.length] }} /> {line.name}
            </span>
          ))}
        </figcaption>
      )}
    </figure>
  );
}

/** A round number no smaller than this. */
function roundUp(value: number): number {
  if (value <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].map((each) => each * size).find((each) => each >= value) ?? value;
}

const HOUR_MS = 3_600_000;

/** Moments for the axis: whole hours, some five of them. */
function hours(first: number, span: number): number[] {
  const step = [1, 2, 3, 6, 12, 24, 48].find((each) => span / (each * HOUR_MS) <= 6) ?? 168;
  const begin = Math.ceil(first / (step * HOUR_MS)) * step * HOUR_MS;
  const marks = [];
  for (let at = begin; at <= first + span; at += step * HOUR_MS) marks.push(at);
  return marks;
}

function clock(timeMs: number, span: number): string {
  const date = new Date(timeMs);
  if (span > 50 * HOUR_MS)
    return date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}
