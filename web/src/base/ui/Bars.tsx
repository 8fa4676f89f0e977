/** Bars over time with a part of each set off, axis labelled: what was used, and what of it was wasted. */

import { formatCount, formatTime } from "@/base/format";
import { axisTicks, HALF_LABEL_PX, tickLabel, timeTicks, useWidth } from "@/base/ui/axes";
import styles from "@/base/ui/Bars.module.css";
import { baseTexts as texts } from "@/texts";

export interface Bar {
  timeMs: number;
  value: number;
  part: number;
}

const [USUAL_WIDTH, HEIGHT, LEFT, TOP, BOTTOM] = [900, 200, 56, 12, 24];
const LABEL_PX = 84;

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
  const [box, width] = useWidth(USUAL_WIDTH);
  const ticks = axisTicks(Math.max(...bars.map((bar) => Math.max(bar.value, bar.part)), 0));
  const most = ticks[ticks.length - 1];
  const step = (width - LEFT) / Math.max(1, bars.length);
  const y = (value: number) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / most);
  const base = y(0);
  const stepMs = bars.length > 1 ? bars[1].timeMs - bars[0].timeMs : 3_600_000;
  const first = bars[0]?.timeMs ?? 0;
  const x = (timeMs: number) => LEFT + ((timeMs - first) / stepMs) * step;
  return (
    <figure className={styles["bars"]} ref={box}>
      <svg viewBox={`0 0 ${String(width)} ${String(HEIGHT)}`} role="img" aria-label={label}>
        {ticks.map((tick) => (
          <g key={tick}>
            <line x1={LEFT} x2={width} y1={y(tick)} y2={y(tick)} />
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
        {timeTicks(first, first + bars.length * stepMs, (width - LEFT) / LABEL_PX)
          .filter((timeMs) => x(timeMs) <= width - HALF_LABEL_PX)
          .map((timeMs) => (
            <text key={timeMs} x={x(timeMs)} y={HEIGHT - 6} textAnchor="middle">
              {tickLabel(timeMs)}
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
