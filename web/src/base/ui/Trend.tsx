/** Lines over time with axes, a legend and markers at moments that changed something. */

import { formatCount, formatTime } from "@/base/format";
import { axisTicks, HALF_LABEL_PX, tickLabel, timeTicks, useWidth } from "@/base/ui/axes";
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
const [USUAL_WIDTH, HEIGHT, TOP, BOTTOM] = [440, 180, 10, 22];
// A letter of an axis, and the least room that a label of time takes.
const [LETTER_PX, LABEL_PX] = [6.6, 64];

export function Trend({
  label,
  times,
  lines,
  markers,
  format = formatCount,
  unit = "",
  span,
}: {
  label: string;
  times: readonly number[];
  lines: readonly TrendLine[];
  markers: readonly TrendMarker[];
  format?: (value: number) => string;
  unit?: string;
  // The time that the axis covers, where it is more than what was measured.
  span?: readonly [number, number];
}) {
  const [box, width] = useWidth(USUAL_WIDTH);
  const [first, last] = span ?? [times[0] ?? 0, times[times.length - 1] ?? 1];
  const length = Math.max(1, last - first);
  const ticks = axisTicks(
    Math.max(...lines.flatMap(({ values }) => values.map((v) => v ?? 0)), 0),
    unit,
  );
  const most = ticks[ticks.length - 1];
  const left = 14 + LETTER_PX * Math.max(...ticks.map((tick) => format(tick).length));
  const x = (timeMs: number) => left + ((timeMs - first) / length) * (width - left - 8);
  const y = (value: number) => TOP + (1 - value / most) * (HEIGHT - TOP - BOTTOM);
  return (
    <figure className={styles["trend"]} ref={box}>
      <svg viewBox={`0 0 ${String(width)} ${String(HEIGHT)}`} role="img" aria-label={label}>
        {ticks.map((tick) => (
          <g key={tick}>
            <line x1={left} x2={width - 8} y1={y(tick)} y2={y(tick)} />
            <text x={left - 6} y={y(tick) + 4} textAnchor="end">
              {format(tick)}
            </text>
          </g>
        ))}
        {timeTicks(first, first + length, (width - left) / LABEL_PX)
          .filter((timeMs) => x(timeMs) <= width - HALF_LABEL_PX)
          .map((timeMs) => (
            <text key={timeMs} x={x(timeMs)} y={HEIGHT - 6} textAnchor="middle">
              {tickLabel(timeMs)}
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
