import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useEffect, useMemo } from "react";
import { getJson } from "@/api/client";
import type { Attribute } from "@/base/attributes";
import { formatCount, formatDuration, formatTime, formatValue } from "@/base/format";
import { links } from "@/base/links";
import { useLive } from "@/base/live";
import type { Predicate } from "@/base/predicate";
import { IconButton, Sparkline } from "@/base/ui/controls";
import { CardRules } from "@/features/overview/CardRules";
import { CARD_PX, useShared } from "@/features/overview/context";
import type { LifeRange } from "@/features/overview/lifeStatistics";
import { lifeRange, useLifeStatistics } from "@/features/overview/lifeStatistics";
import { choose, setCondition, useOverview } from "@/features/overview/store";
import type { MetricSummary, Summary } from "@/features/overview/summary";
import { meanLine, summarise, workloadFacts } from "@/features/overview/summary";
import { useClusterState } from "@/features/overview/useClusterState";
import { predicateText } from "@/features/overview/words";

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
  const metrics = useMemo(() => METRICS.filter((metric) => attributes.get(metric)?.metric), [attributes]);
  useEffect(() => {
    session.need("card", open ? metrics : []);
  }, [session, open, metrics]);
  const summary = useMemo(() => (state && open ? summarise(state, selection, metrics) : null), [state, open, selection, metrics]);
  if (!open || !summary || !state) return null;
  const [workload] = single(summary, "workload");
  const facts = workload ? workloadFacts(state, workload) : null;
  const fly = () => {
    const rect = engine.current?.rectOf({ or: selection });
    if (rect) engine.current?.stage.flyTo(rect, CARD_PX);
  };
  return (
    <aside className="card" aria-label="Selection" data-testid="card">
      <header>
        <h2>{title(selection, summary, facts, attributes)}</h2>
        <IconButton icon="target" label="Fly there" onClick={fly} />
        <IconButton icon="close" label="Close" onClick={() => choose(null, false)} />
      </header>
      {selection.length > 1 && <Chosen selection={selection} attributes={attributes} />}
      <p className="counts">{countText(summary)}</p>
      <Actions summary={summary} workload={workload ?? null} />
      <CardRules state={state} selection={selection} />
      <Metrics summary={summary} workload={workload ?? null} startMs={typeof facts?.["start_ms"] === "number" ? facts["start_ms"] : null} attributes={attributes} />
      <Facts summary={summary} facts={facts} timeMs={state.timeMs} />
    </aside>
  );
}

function single(summary: Summary, field: string): string[] {
  const values = summary.values.get(field) ?? [];
  return values.length === 1 ? [values[0][0]] : [];
}

function title(selection: readonly Predicate[], summary: Summary, facts: Record<string, unknown> | null, attributes: ReadonlyMap<string, Attribute>): string {
  if (selection.length > 1) return `${selection.length} selections`;
  const [predicate] = selection;
  if ("field" in predicate && predicate.field === "gpu" && predicate.op === "eq") return `GPU ${String(predicate.value)}`;
  if (facts && summary.gpus + summary.waiting > 0 && "field" in predicate && predicate.field === "workload") return String(facts["name"] || facts["workload"]);
  const text = predicateText(predicate, attributes);
  return text.length > 90 ? `${text.slice(0, 88)}…` : text;
}

function Chosen({ selection, attributes }: { selection: readonly Predicate[]; attributes: ReadonlyMap<string, Attribute> }) {
  return (
    <ul className="chosen">
      {selection.slice(0, 8).map((predicate, i) => (
        <li key={i}>
          <span>{predicateText(predicate, attributes)}</span>
          <IconButton icon="close" label="Take out of the selection" onClick={() => choose(predicate, true)} />
        </li>
      ))}
      {selection.length > 8 && <li className="muted">and {selection.length - 8} more</li>}
    </ul>
  );
}

function countText({ gpus, waiting, states }: Summary): string {
  const parts: string[] = [];
  if (gpus > 0) parts.push(`${formatCount(gpus)} GPU${gpus === 1 ? "" : "s"}`);
  if (waiting > 0) parts.push(`${formatCount(waiting)} waiting workload${waiting === 1 ? "" : "s"}`);
  const said = states.filter(([word]) => word !== "waiting").map(([word, count]) => (states.length === 1 ? word : `${formatCount(count)} ${word}`));
  return [parts.join(", ") || "Nothing here now", said.join(", ")].filter(Boolean).join(" · ");
}

const FACTS: [string, string, string][] = [
  ["workload", "Workload", "workloads"],
  ["name", "Name", "names"],
  ["user", "User", "users"],
  ["project", "Project", "projects"],
  ["experiment", "Experiment", "experiments"],
  ["host", "Host", "hosts"],
  ["rack", "Rack", "racks"],
  ["partition", "Partition", "partitions"],
  ["model", "GPU type", "types"],
  ["resource_type", "Resource type", "types"],
  ["qos", "Quality of service", "classes"],
  ["reason", "Reason", "reasons"],
];

function Facts({ summary, facts, timeMs }: { summary: Summary; facts: Record<string, string | number | null> | null; timeMs: number }) {
  const rows: [string, ReactNode][] = [];
  for (const [field, label, many] of FACTS) {
    const values = summary.values.get(field) ?? [];
    if (values.length === 0) continue;
    rows.push([label, values.length === 1 ? <FactLink field={field} value={values[0][0]} /> : `${formatCount(values.length)} ${many}`]);
  }
  if (facts) {
    const at = (name: string) => (typeof facts[name] === "number" ? facts[name] : null);
    if (at("gpus_requested") !== null) rows.push(["GPUs asked for", formatCount(at("gpus_requested") ?? 0)]);
    rows.push(["Submitted", formatTime(at("submit_ms"))]);
    if (facts["state"] === "pending") {
      rows.push(["Waiting", formatDuration((timeMs - (at("submit_ms") ?? timeMs)) / 1000)], ["Place in the queue", String(at("queue_position") ?? "–")], ["Priority", formatValue(at("priority"))]);
    } else {
      rows.push(["Started", formatTime(at("start_ms"))], ["Running", formatDuration((timeMs - (at("start_ms") ?? timeMs)) / 1000)], ["Waited", formatDuration(((at("start_ms") ?? 0) - (at("submit_ms") ?? 0)) / 1000)]);
    }
    if (at("time_limit_s") !== null) rows.push(["Time limit", formatDuration(at("time_limit_s") ?? 0)]);
    for (const [name, value] of Object.entries(facts)) if (name.startsWith("attributes.") && value !== null) rows.push([name.slice(11), String(value)]);
  }
  return (
    <dl className="facts">
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
    <button type="button" className="link" title="Select all of it" onClick={() => choose({ field, op: "eq", value }, false)}>
      {value}
    </button>
  );
}

interface SeriesReply {
  rows: { entity: string; metric: string; time_ms: number; value: number | null }[];
  approximate?: boolean;
}

function Metrics({ summary, workload, startMs, attributes }: { summary: Summary; workload: string | null; startMs: number | null; attributes: ReadonlyMap<string, Attribute> }) {
  const gpus = useMemo(() => sample(summary.gpuIds), [summary.gpuIds]);
  const key = gpus.join();
  const series = useQuery({
    queryKey: ["series", key, workload, startMs],
    queryFn: ({ signal }) =>
      getJson<SeriesReply>(
        "/series",
        { gpus: key, metrics: summary.metrics.map((one) => one.metric), points: SERIES_POINTS, ...(startMs === null ? {} : { from: startMs / 1000 }) },
        signal,
      ),
    enabled: gpus.length > 0,
    staleTime: 30_000,
    retry: 1,
  });
  const live = useLive((state) => state.at === null);
  const life = useLifeStatistics(workload, useMemo(() => summary.metrics.map((one) => one.metric), [summary.metrics]), live);
  if (summary.gpus === 0) return null;
  const points = (metric: string) => (series.data?.rows ?? []).filter((row) => row.metric === metric);
  const whose = workload ? "the workload's life" : "recorded history";
  return (
    <section className="metrics" aria-label="Metrics">
      <h3>
        Now, and over {whose}
        {gpus.length < summary.gpuIds.length && <small> ({gpus.length} of {formatCount(summary.gpuIds.length)} GPUs)</small>}
      </h3>
      <table>
        {life && (
          <thead>
            <tr>
              <td />
              <th scope="col">now</th>
              <td />
              <th scope="col" title="Median of the GPUs' medians, from the first sample to now">
                life
              </th>
              <td />
            </tr>
          </thead>
        )}
        <tbody>
          {summary.metrics.map((one) => (
            <MetricRow key={one.metric} summary={one} attribute={attributes.get(one.metric)} line={meanLine(points(one.metric), LINE_SPANS)} life={life && lifeRange(life, summary.gpuIds, one.metric)} hasLife={life !== null} />
          ))}
        </tbody>
      </table>
      <p className="muted">The mark is the mean of all allocated GPUs{life ? "; the line below spans 5 to 95 % of the life of the workload's GPUs" : ""}.</p>
      {series.isError && <p className="muted">History could not be read. {series.error.message}</p>}
    </section>
  );
}

function sample(ids: readonly string[]): string[] {
  if (ids.length <= MOST_SERIES) return [...ids];
  return Array.from({ length: MOST_SERIES }, (_, i) => ids[Math.floor((i * ids.length) / MOST_SERIES)]);
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
  const place = (value: number | null) => (value === null ? 0 : Math.min(100, Math.max(0, ((value - range[0]) / (range[1] - range[0])) * 100)));
  const spread = summary.min !== null && summary.max !== null && summary.max > summary.min ? `${formatValue(summary.min)} – ${formatValue(summary.max, attribute?.unit)}` : "";
  return (
    <tr title={attribute?.description}>
      <th scope="row">{attribute?.label ?? summary.metric}</th>
      <td className="value" title={spread}>
        {formatValue(summary.mean, attribute?.unit)}
      </td>
      <td>
        <div className="bullet" role="img" aria-label={`Mean ${formatValue(summary.mean, attribute?.unit)}, cluster ${formatValue(summary.clusterMean, attribute?.unit)}${life ? `, over its life ${lifeText(life, attribute?.unit)}` : ""}`}>
          <i style={{ width: `${place(summary.mean)}%` }} />
          {summary.clusterMean !== null && <b style={{ left: `${place(summary.clusterMean)}%` }} />}
          {life && <u style={{ left: `${place(life.low)}%`, width: `${Math.max(2, place(life.high) - place(life.low))}%` }} />}
        </div>
      </td>
      {hasLife && (
        <td className="value life" title={life ? lifeText(life, attribute?.unit) : "No samples"} data-testid={`life-${summary.metric}`}>
          {formatValue(life?.median ?? null, attribute?.unit)}
        </td>
      )}
      <td>
        <Sparkline values={line} width={hasLife ? 40 : 70} label={`History of ${attribute?.label ?? summary.metric}`} range={range} />
      </td>
    </tr>
  );
}

function lifeText({ low, median, high }: LifeRange, unit: string | undefined): string {
  return `median ${formatValue(median, unit)}, 5 to 95 %: ${formatValue(low)} – ${formatValue(high, unit)}`;
}

function Actions({ summary, workload }: { summary: Summary; workload: string | null }) {
  const [user] = single(summary, "user");
  const [host] = single(summary, "host");
  const at = useLive((state) => state.at);
  return (
    <footer>
      {workload && links.diagnose && (
        <a className="button primary" href={links.diagnose(workload, at)}>
          Diagnose
        </a>
      )}
      {user && (
        <button type="button" onClick={() => setCondition("user", { field: "user", op: "eq", value: user })}>
          Only {user}
        </button>
      )}
      {host && (
        <button type="button" onClick={() => setCondition("host", { field: "host", op: "eq", value: host })}>
          Only {host}
        </button>
      )}
    </footer>
  );
}
