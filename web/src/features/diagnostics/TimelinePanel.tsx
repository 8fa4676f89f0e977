import { useEffect, useMemo, useRef } from "react";
import type { Metric } from "@/base/attributes";
import { formatCount } from "@/base/format";
import { useTheme } from "@/base/theme";
import type { TimelineData } from "@/charts/timeline";
import { drawTimeline } from "@/charts/timeline";
import type { ColourNumbers } from "@/features/diagnostics/colours";
import { cssOf, numberColour } from "@/features/diagnostics/colours";
import type { Clusters, Diagnosis, MetricBand } from "@/features/diagnostics/documents";
import type { SeriesRow } from "@/features/diagnostics/queries";
import { useBands, useLines } from "@/features/diagnostics/queries";
import type { Span } from "@/features/diagnostics/store";
import { change, useChosen } from "@/features/diagnostics/store";
import { token, useWidth } from "@/features/diagnostics/useCanvas";

const MOST_LINES = 16;
const MOST_METRICS = 4;

/** Lines of the selected GPUs before the band of all; drag to look closer, double-click to see all. */
export function TimelinePanel({ diagnosis, clusters, numbers, metrics }: { diagnosis: Diagnosis; clusters: Clusters | undefined; numbers: ColourNumbers; metrics: readonly Metric[] }) {
  const { selected, lines: shown, window: span } = useChosen();
  const bands = useBands(span);
  const gpus = useMemo(() => selected.slice(0, MOST_LINES), [selected]);
  const range = useMemo((): Span | null => span ?? (clusters?.from_ms && clusters.to_ms ? [clusters.from_ms, clusters.to_ms] : null), [span, clusters]);
  const series = useLines(gpus, range);
  const add = (metric: string) => change({ lines: shown.includes(metric) ? shown.filter((one) => one !== metric) : [...shown, metric].slice(-MOST_METRICS) });
  const loaded = bands.data?.bands ?? [];
  return (
    <section className="part" aria-label="Timeline" data-testid="timeline-part">
      <header>
        <h3>Over time</h3>
        <span className="muted">
          {gpus.length === 0 ? "Median, middle 80 % and extremes of all GPUs; select GPUs to see their lines." : `${formatCount(gpus.length)} of ${formatCount(selected.length)} selected GPUs before the band of all.`} Drag to look closer{span ? ", double-click to see all" : ""}.
        </span>
      </header>
      <div className="metric-toggles" role="group" aria-label="Metrics over time">
        {metrics.map((metric) => (
          <button key={metric.id} type="button" aria-pressed={shown.includes(metric.id)} onClick={() => add(metric.id)}>
            {metric.label}
          </button>
        ))}
      </div>
      {bands.isError && <p className="hint">{bands.error.message}</p>}
      {shown.map((metric) => {
        const band = loaded.find((one) => one.metric === metric);
        return band ? <Chart key={metric} band={band} rows={series.data?.rows ?? []} gpus={gpus} numbers={numbers} diagnosis={diagnosis} metric={metrics.find((one) => one.id === metric)} /> : null;
      })}
    </section>
  );
}

function Chart({ band, rows, gpus, numbers, diagnosis, metric }: { band: MetricBand; rows: readonly SeriesRow[]; gpus: readonly string[]; numbers: ColourNumbers; diagnosis: Diagnosis; metric: Metric | undefined }) {
  const lit = useChosen((chosen) => chosen.lit);
  const theme = useTheme((state) => state.theme);
  const [ref, width] = useWidth();
  const host = useRef<HTMLDivElement | null>(null);
  const data = useMemo((): TimelineData => {
    const own = rows.filter((row) => row.metric === band.metric);
    return {
      label: band.label,
      unit: band.unit,
      range: metric?.unit === "%" ? [0, 100] : null,
      band,
      lines: gpus.map((gpu) => {
        const mine = own.filter((row) => row.entity === gpu);
        return { label: gpu, colour: cssOf(numberColour(numbers.get(gpu) ?? 0)), time_ms: mine.map((row) => row.time_ms), value: mine.map((row) => row.value) };
      }).filter((line) => line.time_ms.length > 0),
      marks: diagnosis.events.map((event) => ({ timeMs: Date.parse(event.time), colour: event.kind === "checkpoint" || event.kind === "evaluation" ? "#8884" : "#e6550d" })),
      lit,
      shades: diagnosis.findings.filter((one) => one.kind !== "healthy").map((one) => ({ fromMs: Date.parse(one.window.from), toMs: Date.parse(one.window.to), colour: "#e6550d99" })),
    };
  }, [band, rows, gpus, numbers, diagnosis, metric, lit]);
  useEffect(() => {
    if (!host.current || width < 60) return;
    const style = { text: token("--muted"), grid: token("--line"), band: theme === "dark" ? "#6cb6d938" : "#1c6f9933", faint: theme === "dark" ? "#6cb6d916" : "#1c6f9914", median: token("--muted"), lit: token("--selected") };
    const drawn = drawTimeline(host.current, data, style, { width, height: 170 }, (range) => change(range ? { window: range } : { window: null, lit: [] }));
    return drawn.destroy;
  }, [data, width, theme]);
  return (
    <div ref={ref} className="chart" data-testid="timeline" data-metric={band.metric} data-lines={data.lines.length} data-lit={lit.length} role="img" aria-label={`${band.label} over time, ${data.lines.length} GPUs and the band of all`}>
      <div ref={host} />
    </div>
  );
}
