import { forecastStrip } from "@/charts/forecast";
import { formatTime } from "@/base/format";
import type { Why } from "@/features/queue/line";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/queue/Queue.module.css";
import { queueTexts as texts } from "@/texts";

const [WIDTH, ROW] = [640, 10];

/** A workload's wait as a strip: every forecast made so far, the newest at the bottom. */
export function ForecastHistory({
  forecasts,
  nowMs,
}: {
  forecasts: Why["forecasts"];
  nowMs: number;
}) {
  if (forecasts.length === 0) return null;
  const strip = forecastStrip(
    forecasts.map((one) => ({
      madeMs: one.made_ms,
      lowMs: one.p10_ms,
      middleMs: one.p50_ms,
      highMs: one.p90_ms,
    })),
    nowMs,
    WIDTH,
    ROW,
  );
  const height = strip.rows.length * ROW;
  return (
    <figure className={styles["history"]} data-testid="queue-strip">
      <figcaption className={ui["muted"]}>{texts.forecastsSoFar}</figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${height}`} role="img" aria-label={texts.forecastsSoFar}>
        {strip.rows.map((row) => (
          <g key={row.y}>
            <rect x={row.x1} y={row.y} width={row.x2 - row.x1} height={row.height} rx={2} />
            <line x1={row.middle} x2={row.middle} y1={row.y} y2={row.y + row.height} />
          </g>
        ))}
        <line className={styles["now"]} x1={strip.now} x2={strip.now} y1={0} y2={height} />
      </svg>
      <div className={styles["axis"]}>
        <span>{formatTime(strip.fromMs)}</span>
        <span>{formatTime(strip.toMs)}</span>
      </div>
    </figure>
  );
}
