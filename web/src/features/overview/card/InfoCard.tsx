import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useEffect, useMemo } from "react";
import type { Document } from "@/api/documents";
import { getJson } from "@/api/client";
import type { Attribute } from "@/base/attributes";
import {
  attributeLabel,
  formatCount,
  formatDuration,
  formatTime,
  formatValue,
} from "@/base/format";
import { workloadAddress } from "@/base/addresses";
import { PageLink } from "@/base/ui/PageLink";
import { useLive } from "@/base/live/session";
import type { Predicate } from "@/base/predicate";
import { IconButton, Sparkline } from "@/base/ui/controls";
import { CardRules } from "@/features/overview/card/CardRules";
import { coveredByCard, useShared } from "@/features/overview/context";
import type { LifeRange } from "@/features/overview/card/lifeStatistics";
import { lifeRange, useLifeStatistics } from "@/features/overview/card/lifeStatistics";
import { choose, setCondition, useOverview } from "@/features/overview/store";
import type { MetricSummary, Summary } from "@/features/overview/card/summary";
import { meanLine, summarise, workloadFacts } from "@/features/overview/card/summary";
import { useClusterState } from "@/features/overview/useClusterState";
import { predicateText } from "@/features/overview/words";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/overview/card/InfoCard.module.css";
import { overviewTexts as texts } from "@/texts";

const METRICS = ["util", "tensor_active", "dram_active", "mem_share", "power_share", "temp"];
const MOST_SERIES = 16;
// The server keeps four samples of each span (first, least, greatest, last): one mean per span.
const SERIES_POINTS = 120;
const LINE_SPANS = 30;

/** What is selected: facts, metrics beside the cluster's mean, and where to go from here. */
export function InfoCard() {
  const { session, attributes, engine } = useShared();
  const selection = useOverview((state) => state.selection);
  const state = useClusterState();
  const open = selection.length > 0;
  const metrics = useMemo(
    () => METRICS.filter((metric) => attributes.get(metric)?.metric),
    [attributes],
  );
  useEffect(() => {
    session.need("card", open ? metrics : []);
  }, [session, open, metrics]);
  const summary = useMemo(
    () => (state && open ? summarise(state, selection, metrics) : null),
    [state, open, selection, metrics],
  );
  if (!open || !summary || !state) return null;
  const [workload] = single(summary, "workload");
  const facts = workload ? workloadFacts(state, workload) : null;
  const fly = () => {
    const rect = engine.current?.rectOf({ or: selection });
    if (rect) engine.current?.stage.flyTo(rect, coveredByCard());
  };
  return (
    <aside className={styles["card"]} aria-label={texts.selection} data-testid="card">
      <header>
        <h2>{title(selection, summary, facts, attributes)}</h2>
        <IconButton icon="target" label={texts.zoomToSelection} onClick={fly} />
        <IconButton icon="close" label={texts.close} onClick={() => choose(null, false)} />
      </header>
      {selection.length > 1 && <Chosen selection={selection} attributes={attributes} />}
      <p className={styles["counts"]}>{countText(summary)}</p>
      <Actions summary={summary} workload={workload ?? null} />
      {workload && facts?.["state"] === "pending" && <WhenItStarts workload={workload} />}
      <CardRules state={state} selection={selection} />
      <Metrics
        summary={summary}
        workload={workload ?? null}
        startMs={typeof facts?.["start_ms"] === "number" ? facts["start_ms"] : null}
        attributes={attributes}
      />
      {summary.worst.length > 1 && <Worst summary={summary} />}
      <Facts summary={summary} facts={facts} timeMs={state.timeMs} />
    </aside>
  );
}

type Why = Document<"WhyDocument">;

/** When a waiting workload starts, and what it waits for; only for the present. */
function WhenItStarts({ workload }: { workload: string }) {
  const live = useLive((state) => state.at === null);
  const why = useQuery({
    queryKey: ["queue-why", workload],
    queryFn: ({ signal }) =>
      getJson<Why>(`/queue/${encodeURIComponent(workload)}`, undefined, signal),
    enabled: live,
    refetchInterval: 15_000,
    retry: 0,
  });
  if (!live || !why.data) return null;
  const { start, sentences } = why.data;
  return (
    <section className={styles["when"]} aria-label={texts.whenItStarts} data-testid="card-when">
      <p>
        <b>{start.sentence}</b>
      </p>
      {sentences.length > 0 && <p>{sentences[0]}</p>}
      {start.p50_s !== null && (
        <p className={ui["muted"]}>{texts.forecastFrom(start.method, start.record)}</p>
      )}
    </section>
  );
}

const MOST_LISTED = 8;

/** The workloads of a group, those that leave most of their GPUs unused first. */
function Worst({ summary }: { summary: Summary }) {
  const at = useLive((state) => state.at);
  const rest = summary.worst.length - MOST_LISTED;
  return (
    <section className={styles["worst"]} aria-label={texts.workloadsWorstFirst}>
      <h3>{texts.workloadsWorstFirst}</h3>
      <table data-testid="worst">
        <tbody>
          {summary.worst.slice(0, MOST_LISTED).map(({ workload, name, user, gpus, util }) => (
            <tr key={workload} title={`${name} · ${workload} · ${user}`}>
              <td>
                <PageLink href={workloadAddress(workload, at)}>{name || workload}</PageLink>
              </td>
              <td className={styles["value"]}>
                {texts.gpuCount(formatCount(Math.round(gpus * 10) / 10), gpus === 1 ? "" : "s")}
              </td>
              <td className={styles["value"]}>{formatValue(util, "%")}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {rest > 0 && <p className={ui["muted"]}>{texts.andMoreSelected(rest)}</p>}
    </section>
  );
}

function single(summary: Summary, field: string): string[] {
  const values = summary.values.get(field) ?? [];
  return values.length === 1 ? [values[0][0]] : [];
}

function title(
  selection: readonly Predicate[],
  summary: Summary,
  facts: Record<string, unknown> | null,
  attributes: ReadonlyMap<string, Attribute>,
): string {
  if (selection.length > 1) return texts.selected(selection.length);
  const [predicate] = selection;
  if ("field" in predicate && predicate.field === "gpu" && predicate.op === "eq")
    return texts.gpu(String(predicate.value));
  if (
    facts &&
    summary.gpus + summary.waiting > 0 &&
    "field" in predicate &&
    predicate.field === "workload"
  )
    return String(facts["name"] || facts["workload"]);
  const text = predicateText(predicate, attributes);
  return text.length > 90 ? `${text.slice(0, 88)}…` : text;
}

function Chosen({
  selection,
  attributes,
}: {
  selection: readonly Predicate[];
  attributes: ReadonlyMap<string, Attribute>;
}) {
  return (
    <ul className={styles["chosen"]}>
      {selection.slice(0, 8).map((predicate, i) => (
        <li key={i}>
          <span>{predicateText(predicate, attributes)}</span>
          <IconButton
            icon="close"
            label={texts.removeFromSelection}
            onClick={() => choose(predicate, true)}
          />
        </li>
      ))}
      {selection.length > 8 && (
        <li className={ui["muted"]}>{texts.andMoreSelected(selection.length - 8)}</li>
      )}
    </ul>
  );
}

function countText({ gpus, waiting, states }: Summary): string {
  const parts: string[] = [];
  if (gpus > 0) parts.push(texts.gpuCount(formatCount(gpus), gpus === 1 ? "" : "s"));
  if (waiting > 0) parts.push(texts.waitingCount(formatCount(waiting), waiting === 1 ? "" : "s"));
  const said = states
    .filter(([word]) => word !== "waiting")
    .map(([word, count]) => (states.length === 1 ? word : `${formatCount(count)} ${word}`));
  return [parts.join(", ") || texts.noUnitsHereRightNow, said.join(", ")]
    .filter(Boolean)
    .join(" · ");
}

const FACTS: [string, string, string][] = [
  ["workload", texts.workload, "workloads"],
  ["name", texts.name, "names"],
  ["user", texts.user, "users"],
  ["project", texts.project, "projects"],
  ["experiment", texts.experiment, "experiments"],
  ["host", texts.host, "hosts"],
  ["rack", texts.rack, "racks"],
  ["partition", texts.partition, "partitions"],
  ["model", texts.gpuType, "types"],
  ["resource_type", texts.resourceType, "types"],
  ["qos", texts.qualityOfService, "classes"],
  ["reason", texts.reason, "reasons"],
];

function Facts({
  summary,
  facts,
  timeMs,
}: {
  summary: Summary;
  facts: Record<string, string | number | null> | null;
  timeMs: number;
}) {
  const rows: [string, ReactNode][] = [];
  const inUse = summary.states.length === 1 && summary.states[0]?.[0] === "allocated";
  for (const [field, label, many] of FACTS) {
    const values = summary.values.get(field) ?? [];
    if (values.length === 0) continue;
    const [[first, count]] = values;
    rows.push([
      // Of GPUs that work: their host lets nothing new in and why.
      field === "reason" && inUse ? texts.hostDraining : label,
      values.length > 1 ? (
        `${formatCount(values.length)} ${many}`
      ) : field === "reason" && count < summary.gpus ? (
        texts.ofAllGpus(first, formatCount(count), formatCount(summary.gpus))
      ) : (
        <FactLink field={field} value={first} />
      ),
    ]);
  }
  if (facts) {
    const at = (name: string) => (typeof facts[name] === "number" ? facts[name] : null);
    if (at("gpus_requested") !== null)
      rows.push([texts.gpusRequested, formatCount(at("gpus_requested") ?? 0)]);
    rows.push([texts.submitted, formatTime(at("submit_ms"))]);
    if (facts["state"] === "pending") {
      rows.push(
        [texts.waiting, formatDuration((timeMs - (at("submit_ms") ?? timeMs)) / 1000)],
        [texts.queuePosition, String(at("queue_position") ?? "–")],
        [texts.priority, formatValue(at("priority"))],
      );
    } else {
      rows.push(
        [texts.started, formatTime(at("start_ms"))],
        [texts.running, formatDuration((timeMs - (at("start_ms") ?? timeMs)) / 1000)],
        [texts.waited, formatDuration(((at("start_ms") ?? 0) - (at("submit_ms") ?? 0)) / 1000)],
      );
    }
    if (at("time_limit_s") !== null)
      rows.push([texts.timeLimit, formatDuration(at("time_limit_s") ?? 0)]);
    for (const [name, value] of Object.entries(facts))
      if (name.startsWith("attributes.") && value !== null)
        rows.push([attributeLabel(name.slice(11)), String(value)]);
  }
  return (
    <dl className={styles["facts"]} data-testid="facts">
      {rows.map(([label, value], i) => (
        <div key={i}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

const LINKED = new Set(["workload", "user", "project", "host", "rack", "partition"]);

function FactLink({ field, value }: { field: string; value: string }) {
  if (!LINKED.has(field)) return <span>{value}</span>;
  return (
    <button
      type="button"
      className={ui["link"]}
      title={texts.selectEverythingWithThisValue}
      onClick={() => choose({ field, op: "eq", value }, false)}
    >
      {value}
    </button>
  );
}

type SeriesReply = Document<"SeriesTable">;

function Metrics({
  summary,
  workload,
  startMs,
  attributes,
}: {
  summary: Summary;
  workload: string | null;
  startMs: number | null;
  attributes: ReadonlyMap<string, Attribute>;
}) {
  const gpus = useMemo(() => sample(summary.gpuIds), [summary.gpuIds]);
  const key = gpus.join();
  const series = useQuery({
    queryKey: ["series", key, workload, startMs],
    queryFn: ({ signal }) =>
      getJson<SeriesReply>(
        "/series",
        {
          gpus: key,
          metrics: summary.metrics.map((one) => one.metric),
          points: SERIES_POINTS,
          ...(startMs === null ? {} : { from: startMs / 1000 }),
        },
        signal,
      ),
    enabled: gpus.length > 0,
    staleTime: 30_000,
  });
  const live = useLive((state) => state.at === null);
  const life = useLifeStatistics(
    workload,
    useMemo(() => summary.metrics.map((one) => one.metric), [summary.metrics]),
    // What waits has measured nothing yet.
    live && summary.gpus > 0,
  );
  if (summary.gpus === 0) return null;
  const points = (metric: string) =>
    (series.data?.rows ?? []).filter((row) => row.metric === metric);
  const whose = workload ? texts.theWholeRun : texts.recordedHistory;
  return (
    <section className={styles["metrics"]} aria-label={texts.metrics}>
      <h3>
        {texts.nowAndOver(whose)}
        {gpus.length < summary.gpuIds.length && (
          <small> {texts.ofGpus(gpus.length, formatCount(summary.gpuIds.length))}</small>
        )}
      </h3>
      <table>
        {life && (
          <thead>
            <tr>
              <td />
              <th scope="col">{texts.nowColumn}</th>
              <td />
              <th scope="col" title={texts.medianOfTheGpusMediansSince}>
                {texts.run}
              </th>
              <td />
            </tr>
          </thead>
        )}
        <tbody>
          {summary.metrics.map((one) => (
            <MetricRow
              key={one.metric}
              summary={one}
              attribute={attributes.get(one.metric)}
              line={meanLine(points(one.metric), LINE_SPANS)}
              life={life && lifeRange(life, summary.gpuIds, one.metric)}
              hasLife={life !== null}
            />
          ))}
        </tbody>
      </table>
      <p className={ui["muted"]}>
        {texts.theMarkIsTheMeanOf(life ? texts.theLineBelowSpans595 : "")}
      </p>
      {series.isError && (
        <p className={ui["muted"]}>{texts.historyCouldNotBeLoaded(series.error.message)}</p>
      )}
    </section>
  );
}

function sample(ids: readonly string[]): string[] {
  if (ids.length <= MOST_SERIES) return [...ids];
  return Array.from(
    { length: MOST_SERIES },
    (_, i) => ids[Math.floor((i * ids.length) / MOST_SERIES)],
  );
}

interface MetricRowProps {
  summary: MetricSummary;
  attribute: Attribute | undefined;
  line: (number | null)[];
  life: LifeRange | null;
  /** Whether the table has a column for it. */
  hasLife: boolean;
}

function MetricRow({ summary, attribute, line, life, hasLife }: MetricRowProps) {
  const range: [number, number] = [attribute?.min ?? 0, attribute?.max ?? 100];
  const place = (value: number | null) =>
    value === null
      ? 0
      : Math.min(100, Math.max(0, ((value - range[0]) / (range[1] - range[0])) * 100));
  const spread =
    summary.min !== null && summary.max !== null && summary.max > summary.min
      ? `${formatValue(summary.min)} – ${formatValue(summary.max, attribute?.unit)}`
      : "";
  return (
    <tr title={attribute?.description}>
      <th scope="row">{attribute?.label ?? summary.metric}</th>
      <td className={styles["value"]} title={spread}>
        {formatValue(summary.mean, attribute?.unit)}
      </td>
      <td>
        <div
          className={styles["bullet"]}
          data-testid="bullet"
          role="img"
          aria-label={texts.meanCluster(
            formatValue(summary.mean, attribute?.unit),
            formatValue(summary.clusterMean, attribute?.unit),
            life ? texts.andOverTheWholeRun(lifeText(life, attribute?.unit)) : "",
          )}
        >
          <i style={{ width: `${place(summary.mean)}%` }} />
          {summary.clusterMean !== null && <b style={{ left: `${place(summary.clusterMean)}%` }} />}
          {life && (
            <u
              style={{
                left: `${place(life.low)}%`,
                width: `${Math.max(2, place(life.high) - place(life.low))}%`,
              }}
            />
          )}
        </div>
      </td>
      {hasLife && (
        <td
          className={`${styles["value"]} ${styles["life"]}`}
          title={life ? lifeText(life, attribute?.unit) : texts.noSamples}
          data-testid={`life-${summary.metric}`}
        >
          {formatValue(life?.median ?? null, attribute?.unit)}
        </td>
      )}
      <td>
        <Sparkline
          values={line}
          width={hasLife ? 40 : 70}
          label={texts.historyOf(attribute?.label ?? summary.metric)}
          range={range}
        />
      </td>
    </tr>
  );
}

function lifeText({ low, median, high }: LifeRange, unit: string | undefined): string {
  return texts.median595(formatValue(median, unit), formatValue(low), formatValue(high, unit));
}

function Actions({ summary, workload }: { summary: Summary; workload: string | null }) {
  const [user] = single(summary, "user");
  const [host] = single(summary, "host");
  const at = useLive((state) => state.at);
  return (
    <footer>
      {workload && (
        <PageLink
          className={`${ui["button"]} ${ui["primary"]}`}
          href={workloadAddress(workload, at)}
        >
          {texts.diagnose}
        </PageLink>
      )}
      {user && (
        <button
          className={ui["button"]}
          type="button"
          onClick={() => setCondition("user", { field: "user", op: "eq", value: user })}
        >
          {texts.only(user)}
        </button>
      )}
      {host && (
        <button
          className={ui["button"]}
          type="button"
          onClick={() => setCondition("host", { field: "host", op: "eq", value: host })}
        >
          {texts.onlyHost(host)}
        </button>
      )}
    </footer>
  );
}
