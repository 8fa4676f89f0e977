import type { KeyboardEvent } from "react";
import { memo, useEffect, useMemo, useRef } from "react";
import type { Metric } from "@/base/attributes";
import { formatCount, formatDuration } from "@/base/format";
import { useTheme } from "@/base/theme";
import type { Span } from "@/charts/span";
import { moved, within, zoomed } from "@/charts/span";
import type { Timeline, TimelineData } from "@/charts/timeline";
import { drawTimeline } from "@/charts/timeline";
import type { ColourNumbers } from "@/features/diagnostics/colours";
import { cssOf, numberColour } from "@/features/diagnostics/colours";
import type { Clusters, Diagnosis, Lines, MetricBand } from "@/features/diagnostics/documents";
import { useAskedSpan, useBands, useLines } from "@/features/diagnostics/overTime";
import { change, NO_BRUSH, useChosen, usePicked } from "@/features/diagnostics/store";
import { timelineStyle } from "@/features/diagnostics/painting";
import { useWidth } from "@/features/diagnostics/useCanvas";
import { marksOf, shadesOf } from "@/features/diagnostics/words";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/diagnostics/panels/TimelinePanel.module.css";
import partStyles from "@/features/diagnostics/parts.module.css";
import { diagnosticsTexts as texts } from "@/texts";

const MOST_LINES = 64;
const MOST_METRICS = 4;
const HEIGHT = 170;

/** Lines of the selected GPUs before the band of all; all charts show the same span of time. */
export function TimelinePanel({
  diagnosis,
  clusters,
  numbers,
  metrics,
}: {
  diagnosis: Diagnosis;
  clusters: Clusters | undefined;
  numbers: ColourNumbers;
  metrics: readonly Metric[];
}) {
  const { selected, lines: shown, window: span } = usePicked("selected", "lines", "window");
  const gpus = useMemo(() => selected.slice(0, MOST_LINES), [selected]);
  const life = useLife(diagnosis, clusters);
  const asked = useAskedSpan(life);
  const bands = useBands(asked);
  const ofGpus = useMemo(
    () => shown.filter((id) => metrics.find((one) => one.id === id)?.entity === "gpu"),
    [shown, metrics],
  );
  const series = useLines(gpus, ofGpus, asked);
  const add = (metric: string) =>
    change({
      lines: shown.includes(metric)
        ? shown.filter((one) => one !== metric)
        : [...shown, metric].slice(-MOST_METRICS),
    });
  const loaded = bands.data?.bands ?? [];
  return (
    <section className={partStyles["part"]} aria-label={texts.timeline} data-testid="timeline-part">
      <header>
        <h3>{texts.overTime3}</h3>
        <span className={ui["muted"]}>
          {gpus.length === 0
            ? texts.medianMiddle80AndMinMax
            : texts.ofSelectedGpusDrawnOverThe(
                formatCount(gpus.length),
                formatCount(selected.length),
              )}
          {bands.data && ` ${binText(bands.data.bin_ms / 1000, diagnosis.window?.step_s ?? 0)}`}
        </span>
        <SpanButtons life={life} seen={span} />
      </header>
      <div className={styles["metric-toggles"]} role="group" aria-label={texts.metricsOverTime}>
        {metrics.map((metric) => (
          <button
            key={metric.id}
            type="button"
            aria-pressed={shown.includes(metric.id)}
            onClick={() => add(metric.id)}
          >
            {metric.label}
          </button>
        ))}
      </div>
      {bands.isError && <p className={partStyles["hint"]}>{bands.error.message}</p>}
      {series.isError && gpus.length > 0 && (
        <p className={partStyles["hint"]}>{series.error.message}</p>
      )}
      {shown.length === 0 && <p className={partStyles["hint"]}>{texts.chooseAMetricAbove}</p>}
      {shown.map((metric) => {
        const band = loaded.find((one) => one.metric === metric);
        return band ? (
          <Chart
            key={metric}
            band={band}
            series={gpus.length > 0 ? series.data : undefined}
            gpus={gpus}
            numbers={numbers}
            diagnosis={diagnosis}
            metric={metrics.find((one) => one.id === metric)}
            life={life}
          />
        ) : null;
      })}
      <p className={ui["muted"]}>{texts.dragToSelectAWindowFor}</p>
    </section>
  );
}

/** From the first to the last sample that is known of. */
function useLife(diagnosis: Diagnosis, clusters: Clusters | undefined): Span {
  const [from, to] = [diagnosis.window?.from ?? "", diagnosis.window?.to ?? ""];
  const newest = clusters?.to_ms ?? 0;
  return useMemo(
    (): Span => [Date.parse(from), Math.max(Date.parse(to), newest)],
    [from, to, newest],
  );
}

/** Change what the timelines show, within the life. */
function look(life: Span, to: (seen: Span) => Span | null): void {
  const { view, window: span } = useChosen.getState();
  const next = to(view ?? span ?? life);
  change({ view: next && within(next, life) });
}

function SpanButtons({ life, seen }: { life: Span; seen: Span | null }) {
  const view = useChosen((chosen) => chosen.view);
  const buttons: [string, string, (span: Span) => Span | null][] = [
    ["◀", texts.earlier, (span) => moved(span, -0.25)],
    ["▶", texts.later, (span) => moved(span, 0.25)],
    ["+", texts.zoomIn, (span) => zoomed(span, 0.5)],
    ["−", texts.zoomOut, (span) => zoomed(span, 2)],
  ];
  return (
    <span
      className={styles["span-buttons"]}
      data-testid="span"
      data-from={Math.round((view ?? seen ?? life)[0])}
      data-to={Math.round((view ?? seen ?? life)[1])}
    >
      {buttons.map(([sign, label, to]) => (
        <button
          key={label}
          type="button"
          className={ui["button"]}
          aria-label={label}
          title={label}
          onClick={() => look(life, to)}
        >
          {sign}
        </button>
      ))}
      <button
        type="button"
        className={ui["button"]}
        disabled={!view}
        onClick={() => change({ view: null })}
      >
        {texts.reset}
      </button>
      <button
        type="button"
        className={ui["button"]}
        disabled={!view}
        title={texts.applyTheVisibleRangeToThe}
        onClick={() => change({ window: view, view: null, ...NO_BRUSH })}
      >
        {texts.applyToPage}
      </button>
    </span>
  );
}

interface ChartParts {
  band: MetricBand;
  series: Lines | undefined;
  gpus: readonly string[];
  numbers: ColourNumbers;
  diagnosis: Diagnosis;
  metric: Metric | undefined;
  life: Span;
}

const Chart = memo(function Chart({
  band,
  series,
  gpus,
  numbers,
  diagnosis,
  metric,
  life,
}: ChartParts) {
  const lit = useChosen((chosen) => chosen.lit);
  const span = useChosen((chosen) => chosen.window);
  const theme = useTheme((state) => state.theme);
  const [ref, width] = useWidth();
  const host = useRef<HTMLDivElement | null>(null);
  const readout = useRef<HTMLParagraphElement | null>(null);
  const drawn = useRef<Timeline | null>(null);
  const data = useMemo((): TimelineData => {
    const own = new Map(
      series?.metrics
        .find((one) => one.metric === band.metric)
        ?.lines.map((line) => [line.gpu, line.value]),
    );
    return {
      label: band.label,
      unit: band.unit,
      range: metric?.unit === "%" ? [0, 100] : null,
      band,
      lines: gpus.flatMap((gpu) => {
        const value = own.get(gpu);
        return value && series
          ? [
              {
                label: gpu,
                colour: cssOf(numberColour(numbers.get(gpu) ?? 0)),
                time_ms: series.time_ms,
                value,
              },
            ]
          : [];
      }),
      marks: marksOf(diagnosis),
      lit,
      shades: shadesOf(diagnosis),
      window: span,
    };
  }, [band, series, gpus, numbers, diagnosis, metric, lit, span]);
  // Other lines or another look make another plot; new values are given to the one there is.
  const shape = JSON.stringify([
    data.label,
    data.range,
    data.lines.map((line) => [line.label, line.colour]),
    width,
    theme,
  ]);
  const latest = useRef(data);
  latest.current = data;
  const limits = useRef(life);
  limits.current = life;
  useEffect(() => {
    if (!host.current || width < 60) return;
    const events = {
      brush: (brushed: Span | null) =>
        change(
          brushed ? { window: brushed, view: null } : { window: null, view: null, ...NO_BRUSH },
        ),
      view: (next: Span | null) => look(limits.current, () => next),
      tell: (text: string) => {
        if (readout.current) readout.current.textContent = text;
      },
    };
    const made = drawTimeline(
      host.current,
      latest.current,
      timelineStyle(theme),
      { width, height: HEIGHT },
      events,
    );
    drawn.current = made;
    made.show(seen(limits.current, latest.current));
    return () => {
      drawn.current = null;
      made.destroy();
    };
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the shape says all that matters of the data
  }, [shape]);
  useEffect(() => {
    drawn.current?.update(data);
    drawn.current?.show(seen(limits.current, latest.current));
  }, [data]);
  // Straight to the plot: zooming must not wait for anything else on the page.
  useEffect(
    () =>
      useChosen.subscribe(
        (now, before) =>
          now.view !== before.view && drawn.current?.show(seen(limits.current, latest.current)),
      ),
    [],
  );
  return (
    <div
      ref={ref}
      className={partStyles["chart"]}
      data-testid="timeline"
      data-metric={band.metric}
      data-lines={data.lines.length}
      data-lit={lit.length}
      data-points={band.time_ms.length}
      data-end={band.time_ms[band.time_ms.length - 1] ?? 0}
      role="application"
      tabIndex={0}
      aria-label={texts.overTimeGpusAndTheBand(band.label, data.lines.length)}
      onKeyDown={(event) => key(event, life)}
    >
      <div ref={host} />
      <p ref={readout} className={`${ui["muted"]} ${partStyles["readout"]}`} />
    </div>
  );
});

/** What is to be seen: the view, else the window, else all; every chart the same, whatever its metric has. */
function seen([from, to]: Span, { band: { time_ms: times } }: TimelineData): Span {
  const { view, window: span } = useChosen.getState();
  return (
    view ?? span ?? [Math.min(from, times[0] ?? from), Math.max(to, times[times.length - 1] ?? to)]
  );
}

const KEYS: Record<string, (span: Span) => Span | null> = {
  ArrowLeft: (span) => moved(span, -0.1),
  ArrowRight: (span) => moved(span, 0.1),
  "+": (span) => zoomed(span, 0.5),
  "=": (span) => zoomed(span, 0.5),
  "-": (span) => zoomed(span, 2),
  "0": () => null,
  Home: () => null,
};

function key(event: KeyboardEvent, life: Span): void {
  const to = KEYS[event.key];
  if (!to || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  look(life, to);
}

/** Whether the lines show every sample, or the least and greatest of a longer bin. */
function binText(binSeconds: number, stepSeconds: number): string {
  return binSeconds > stepSeconds ? texts.minMaxPer(formatDuration(binSeconds)) : texts.everySample;
}
