import { useEffect, useRef, useState } from "react";
import { useSimilarRuns } from "@/api/similarRuns";
import { useSearch } from "@/base/router";
import { formatTime, formatValue } from "@/base/format";
import { useTheme } from "@/base/theme";
import { drawTimeline } from "@/charts/timeline";
import type { ComparisonDocument, Diagnosis, MetricBand } from "@/features/diagnostics/documents";
import { timelineStyle } from "@/features/diagnostics/painting";
import type { Side } from "@/features/diagnostics/queries";
import { isSameSide, useComparison, useSideBand } from "@/features/diagnostics/queries";
import { useChosen } from "@/features/diagnostics/store";
import { useWidth } from "@/features/diagnostics/useCanvas";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/diagnostics/panels/Comparison.module.css";
import partStyles from "@/features/diagnostics/parts.module.css";
import { diagnosticsTexts as texts } from "@/texts";

/** Two workloads, or two windows of one, on the same scales: what changed. */
export function Comparison({ diagnosis }: { diagnosis: Diagnosis }) {
  const span = useChosen((chosen) => chosen.window);
  const [other, setOther] = useState<Side | null>(null);
  const [name, setName] = useState("");
  const runs = useSimilarRuns(diagnosis.workload.id).runs.filter((run) => run.start_ms !== null);
  const asked = new URLSearchParams(useSearch()).get("with");
  useEffect(() => {
    if (asked) setOther({ workload: asked, window: null });
  }, [asked]);
  const here: Side = { workload: diagnosis.workload.id, window: span };
  return (
    <section className={partStyles["part"]} aria-label={texts.comparison} data-testid="comparison">
      <header>
        <h3>{texts.compare}</h3>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            if (name.trim()) setOther({ workload: name.trim(), window: null });
          }}
        >
          {runs.length > 0 && (
            <select
              aria-label={texts.similarRuns}
              value={runs.some((run) => run.workload === other?.workload) ? other?.workload : ""}
              onChange={(event) =>
                setOther(event.target.value ? { workload: event.target.value, window: null } : null)
              }
            >
              <option value="">{texts.similarRuns}</option>
              {runs.map((run) => (
                <option key={run.workload} value={run.workload}>
                  {texts.similarRun(run.workload, run.name, formatTime(run.start_ms))}
                </option>
              ))}
            </select>
          )}
          <input
            aria-label={texts.idOfAnotherWorkload}
            placeholder={texts.idOfAnotherWorkload}
            value={name}
            maxLength={200}
            onChange={(event) => setName(event.target.value)}
          />
          <button type="submit" className={ui["button"]}>
            {texts.compare}
          </button>
        </form>
        <button
          type="button"
          className={ui["button"]}
          disabled={span === null}
          onClick={() => setOther({ workload: here.workload, window: span })}
          title={span ? "" : texts.selectAWindowOnTheTimeline}
        >
          {texts.keepThisWindowForComparison}
        </button>
        {other && (
          <button type="button" className={ui["button"]} onClick={() => setOther(null)}>
            {texts.done}
          </button>
        )}
      </header>
      {other && <Sides a={other} b={here} />}
    </section>
  );
}

function sideText(side: Side): string {
  return side.window
    ? `${side.workload}, ${formatTime(side.window[0])} – ${formatTime(side.window[1])}`
    : texts.entireRun(side.workload);
}

function Sides({ a, b }: { a: Side; b: Side }) {
  const compared = useComparison(a, b);
  if (isSameSide(a, b)) return <p className={partStyles["hint"]}>{texts.sameSides}</p>;
  if (compared.error)
    return (
      <p className={partStyles["hint"]} role="alert">
        {compared.error.message}
      </p>
    );
  if (!compared.data)
    return (
      <p className={ui["muted"]} role="status">
        {texts.comparing}
      </p>
    );
  const { before, after, metrics, changed, distribution } = compared.data;
  return (
    <div className={styles["sides"]} data-testid="sides">
      <table>
        <thead>
          <tr>
            <th scope="col">{texts.mean}</th>
            <th scope="col">{texts.a(sideText(a))}</th>
            <th scope="col">{texts.b(sideText(b))}</th>
            <th scope="col">{texts.change}</th>
          </tr>
        </thead>
        <tbody>
          {metrics.map((row) => (
            <tr key={row.metric}>
              <th scope="row">{row.label}</th>
              <td>{formatValue(row.before, row.unit)}</td>
              <td>{formatValue(row.after, row.unit)}</td>
              <td>
                {row.change === null
                  ? "–"
                  : `${row.change > 0 ? "+" : ""}${(row.change * 100).toFixed(0)} %`}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <div>
        <ul data-testid="changed">
          {changed.map((sentence) => (
            <li key={sentence}>{sentence}</li>
          ))}
        </ul>
        {distribution && <Outlines distribution={distribution} />}
        <ul>
          <li>{texts.verdictOfA(before.verdict)}</li>
          <li>{texts.verdictOfB(after.verdict)}</li>
        </ul>
      </div>
      <SideCharts a={a} b={b} />
    </div>
  );
}

/** The metric of both sides over time: values and lengths of time on the same scales. */
function SideCharts({ a, b }: { a: Side; b: Side }) {
  const [one, other] = [useSideBand(a), useSideBand(b)];
  if (!one || !other) return null;
  const range = [
    Math.min(...known(one.low), ...known(other.low)),
    Math.max(...known(one.high), ...known(other.high)),
  ] as const;
  const lengthMs = Math.max(
    ...[one, other].map(
      (band) => (band.time_ms[band.time_ms.length - 1] ?? 0) - (band.time_ms[0] ?? 0),
    ),
  );
  return (
    <div className={styles["side-charts"]} data-testid="side-charts">
      {[one, other].map((band, i) => (
        <SideChart
          key={i}
          name={i === 0 ? `A: ${sideText(a)}` : `B: ${sideText(b)}`}
          band={band}
          range={range}
          lengthMs={lengthMs}
        />
      ))}
    </div>
  );
}

function known(values: readonly (number | null)[]): number[] {
  return values.filter((value): value is number => value !== null);
}

const CHART_HEIGHT = 150;

function SideChart({
  name,
  band,
  range: [low, high],
  lengthMs,
}: {
  name: string;
  band: MetricBand;
  range: readonly [number, number];
  lengthMs: number;
}) {
  const theme = useTheme((state) => state.theme);
  const [ref, width] = useWidth();
  const host = useRef<HTMLDivElement | null>(null);
  const readout = useRef<HTMLParagraphElement | null>(null);
  useEffect(() => {
    if (!host.current || width < 60) return;
    const data = {
      label: band.label,
      unit: band.unit,
      range: [low, Math.max(high, low + 1e-9)] as const,
      band,
      lines: [],
      marks: [],
      lit: [],
      shades: [],
      window: null,
    };
    const ignore = () => undefined;
    const tell = (text: string) => {
      if (readout.current) readout.current.textContent = text;
    };
    const chart = drawTimeline(
      host.current,
      data,
      timelineStyle(theme),
      { width, height: CHART_HEIGHT },
      { brush: ignore, view: ignore, tell },
    );
    chart.show([band.time_ms[0], band.time_ms[0] + Math.max(1, lengthMs)]);
    return chart.destroy;
  }, [band, low, high, lengthMs, width, theme]);
  return (
    <figure ref={ref} className={partStyles["chart"]} aria-label={texts.overTime(band.label, name)}>
      <figcaption className={ui["muted"]}>{name}</figcaption>
      <div ref={host} />
      <p ref={readout} className={`${ui["muted"]} ${partStyles["readout"]}`} />
    </figure>
  );
}

const BOX = { width: 360, height: 110 };

/** Both distributions of the metric over one axis; heights by square root, as in the small multiples. */
function Outlines({
  distribution: { label, unit, limits, before, after },
}: {
  distribution: NonNullable<ComparisonDocument["distribution"]>;
}) {
  const outline = (shares: readonly number[]) => {
    const bin = BOX.width / Math.max(1, shares.length);
    return shares
      .map((share, i) => {
        const top = (BOX.height * (1 - Math.sqrt(share))).toFixed(1);
        return `${i === 0 ? "M" : "L"}${(i * bin).toFixed(1)} ${top}H${((i + 1) * bin).toFixed(1)}`;
      })
      .join("");
  };
  return (
    <figure>
      <figcaption className={ui["muted"]}>
        {texts.distributionsOfBoth(label, formatValue(limits[0]), formatValue(limits[1], unit))}
      </figcaption>
      <svg
        viewBox={`0 -2 ${BOX.width} ${BOX.height + 4}`}
        className={styles["outlines"]}
        role="img"
        aria-label={texts.distributionsOf(label)}
      >
        <path className={styles["a"]} d={outline(before)} />
        <path d={outline(after)} />
      </svg>
    </figure>
  );
}
