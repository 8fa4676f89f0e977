import { useQuery } from "@tanstack/react-query";
import { getJson } from "@/api/client";
import { calibrationPoints } from "@/charts/forecast";
import { formatCount, formatShare } from "@/base/format";
import { Figures } from "@/base/ui/Figures";
import type { ForecastRecord } from "@/features/queue/line";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/queue/Queue.module.css";
import { queueTexts as texts } from "@/texts";

const SIZE = 180;

/** How good the forecasts of this site have been: counts, and stated against achieved shares. */
export function ForecastRecordPanel() {
  const record = useQuery({
    queryKey: ["queue-record"],
    queryFn: ({ signal }) => getJson<ForecastRecord>("/queue-record", undefined, signal),
    refetchInterval: 30_000,
  });
  return (
    <section className={styles["section"]} aria-label={texts.record}>
      <h2>{texts.record}</h2>
      {record.isError && <p role="alert">{record.error.message}</p>}
      {record.data && (
        <div className={styles["pair"]} data-testid="queue-record">
          {record.data.calibration.length > 0 && <Plot record={record.data} />}
          <div className={styles["section"]}>
            <p>{record.data.sentence}</p>
            <Figures figures={figuresOf(record.data)} />
            <p className={ui["muted"]}>{texts.recordIntro}</p>
          </div>
        </div>
      )}
    </section>
  );
}

function figuresOf(record: ForecastRecord): [string, string][] {
  return [
    [texts.scored, formatCount(record.scored)],
    [texts.stillOpen, formatCount(record.waiting)],
    [texts.overdue, formatCount(record.overdue)],
    [texts.cancelled, formatCount(record.cancelled)],
    [texts.coverage, formatShare(record.coverage)],
    [texts.withinTwo, formatShare(record.within_2x)],
    [texts.schedulerWithinTwo, formatShare(record.scheduler_within_2x)],
  ];
}

function Plot({ record }: { record: ForecastRecord }) {
  const points = calibrationPoints(record.calibration, SIZE);
  return (
    <figure className={styles["calibration"]}>
      <svg viewBox={`-6 -6 ${SIZE + 12} ${SIZE + 12}`} role="img" aria-label={texts.calibration}>
        <rect x={0} y={0} width={SIZE} height={SIZE} />
        <line x1={0} y1={SIZE} x2={SIZE} y2={0} />
        <polyline points={points.map((p) => `${p.x},${p.y}`).join(" ")} />
        {points.map((point, i) => (
          <circle key={point.x} cx={point.x} cy={point.y} r={4}>
            <title>
              {texts.statedAchieved(
                Math.round(record.calibration[i].stated * 100),
                Math.round(record.calibration[i].achieved * 100),
              )}
            </title>
          </circle>
        ))}
      </svg>
      <figcaption className={ui["muted"]}>{texts.calibration}</figcaption>
    </figure>
  );
}
