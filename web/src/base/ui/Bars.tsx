/** Bars over time with a part of each set off, axis labelled: what was used, and what of it was wasted. */

import { formatCount, formatTime } from "@/base/format";
import styles from "@/base/ui/Bars.module.css";
import { baseTexts as texts } from "@/texts";

export interface Bar {
  timeMs: number;
  value: number;
  part: number;
}

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [900, 150, 48, 20];

export function Bars({
  bars,
  label,
  valueLabel,
  partLabel,
}: {
  bars: readonly Bar[];
  label: string;
  valueLabel: string;
  partLabel: string;
}) {
  const most = niceLimit(Math.max(...bars.map((bar) => Math.max(bar.value, bar.part)), 0));
  const step = (WIDTH - LEFT) / Math.max(1, bars.length);
  const y = (value: number) => (HEIGHT - BOTTOM) * (1 - value / most) + 12;
  const base = y(0);
  const days = bars.filter(
    (bar, i) => i > 0 && new Date(bar.timeMs).getDate() !== new Date(bars[i - 1].timeMs).getDate(),
  );
  return (
    <figure className={styles["bars"]}>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT + 14}`} role="img" aria-label={label}>
        {[0, most / 2, most].map((tick) => (
          <g key={tick}>
            <line x1={LEFT} x2={WIDTH} y1={y(tick)} y2={y(tick)} />
            <text x={LEFT - 6} y={y(tick) + 4} textAnchor="end">
              {formatCount(tick)}
            </text>
          </g>
        ))}
        {bars.map((bar, i) => (
          <g key={bar.timeMs}>
            <title>
              {texts.barOf(
                formatTime(bar.timeMs),
                `${valueLabel} ${formatCount(bar.value)}`,
                `${partLabel} ${formatCount(bar.part)}`,
              )}
            </title>
            <rect
              className={styles["value"]}
              x={LEFT + i * step + 1}
              width={Math.max(1, step - 2)}
              y={y(bar.value)}
              height={Math.max(0, base - y(bar.value))}
            />
            <rect
              className={styles["part"]}
              x={LEFT + i * step + 1}
              width={Math.max(1, step - 2)}
              y={y(bar.part)}
              height={Math.max(0, base - y(bar.part))}
            />
          </g>
        ))}
        {days.map((bar) => (
          <text key={bar.timeMs} x={LEFT + bars.indexOf(bar) * step + 2} y={HEIGHT + 10}>
            {new Date(bar.timeMs).toLocaleDateString("en-GB", { day: "numeric", month: "short" })}
          </text>
        ))}
      </svg>
      <figcaption>
        <i className={styles["value-key"]} /> {valueLabel} <i className={styles["part-key"]} />{" "}
        {partLabel}
      </figcaption>
    </figure>
  );
}

/** A round number no smaller than this. */
function niceLimit(value: number): number {
  if (value <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 10].map((each) => each * size).find((each) => each >= value) ?? value;
}
