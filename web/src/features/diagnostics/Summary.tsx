import { useMemo } from "react";
import { formatCount, formatDuration, formatTime, formatValue } from "@/base/format";
import { sparklinePath } from "@/base/sparkline";
import type { Diagnosis, Evidence, Finding } from "@/features/diagnostics/documents";
import { usePeers, useRules } from "@/features/diagnostics/queries";
import { change } from "@/features/diagnostics/store";
import { eventText } from "@/features/diagnostics/words";

/** Facts, verdicts, peers, rules, and the life as a strip. */
export function Summary({ diagnosis }: { diagnosis: Diagnosis }) {
  return (
    <section className="summary" aria-label="Summary">
      <div className="verdicts">
        {diagnosis.findings.length === 0 && <p className="verdict-text" data-testid="verdict">{diagnosis.verdict}</p>}
        {diagnosis.findings.map((finding, i) => (
          <Verdict key={i} finding={finding} all={diagnosis.workload.gpus.length} />
        ))}
        <Life diagnosis={diagnosis} />
      </div>
      <div className="beside">
        <Facts diagnosis={diagnosis} />
        <PeerTable />
        <Rules />
      </div>
    </section>
  );
}

function Verdict({ finding, all }: { finding: Finding; all: number }) {
  const healthy = finding.kind === "healthy";
  const show = () => change({ selected: finding.gpus, view: null, window: [Date.parse(finding.window.from), Date.parse(finding.window.to)] });
  return (
    <article className={healthy ? "verdict healthy" : "verdict"} data-testid="finding" data-kind={finding.kind}>
      <h2>{finding.summary}</h2>
      <p className="muted">
        {finding.kind.replaceAll("_", " ")} · {Math.round(finding.confidence * 100)} % sure
        {!healthy && ` · ${formatCount(finding.gpu_hours)} GPU-hours at stake`}
      </p>
      {!healthy && (
        <>
          <p>
            <b>Where</b> {whereText(finding, all)} <b>Since</b> {formatTime(Date.parse(finding.window.from))}, for {formatDuration((Date.parse(finding.window.to) - Date.parse(finding.window.from)) / 1000)}
          </p>
          <ul className="evidence">
            {finding.evidence.map((one, i) => (
              <li key={i}>{evidenceText(one)}</li>
            ))}
          </ul>
          <p className="next">
            <b>Try</b> {finding.next}
          </p>
          <button type="button" className="button" onClick={show}>
            Show these GPUs
          </button>
        </>
      )}
    </article>
  );
}

function whereText({ gpus, hosts }: Finding, all: number): string {
  if (gpus.length === all) return `all ${formatCount(all)} GPUs.`;
  const listed = gpus.slice(0, 8).join(", ");
  return `${listed}${gpus.length > 8 ? ` and ${formatCount(gpus.length - 8)} more` : ""} (${formatCount(gpus.length)} of ${formatCount(all)} GPUs, ${formatCount(hosts.length)} hosts).`;
}

function evidenceText({ what, value, against, unit }: Evidence): string {
  return `${what}: ${formatValue(value, unit)}${against === null ? "" : ` against ${formatValue(against, unit)}`}`;
}

const PHASES: Record<string, string> = {
  waiting: "var(--line-strong)",
  initialisation: "#8ea3c8",
  training: "var(--good)",
  evaluation: "#56b4e9",
  checkpoint: "#cc79a7",
  pause: "var(--warn)",
  stall: "var(--alert)",
};
const EVENT_COLOUR: Record<string, string> = { xid: "var(--alert)", throttle: "var(--warn)", node_down: "var(--alert)", node_drain: "var(--warn)" };
const WIDTH = 1000;

/** Waiting is often much longer than the run itself: it gets at most a fifth of the strip. */
function Life({ diagnosis }: { diagnosis: Diagnosis }) {
  const drawn = useMemo(() => lifeScale(diagnosis), [diagnosis]);
  if (!drawn) return null;
  const { spans, place } = drawn;
  const phases = [...new Set(spans.map((span) => span.phase))];
  const events = diagnosis.events.filter((event) => event.kind !== "checkpoint" && event.kind !== "evaluation");
  const progress = diagnosis.progress.map((one) => one.throughput ?? one.step);
  const [first, last] = [diagnosis.progress[0], diagnosis.progress.at(-1)];
  return (
    <figure className="life" data-testid="life">
      <figcaption className="muted">
        Its life{last ? ` · progress: step ${last.step === null ? "–" : formatCount(last.step)}${last.throughput === null ? "" : `, ${formatValue(last.throughput)} ${last.unit}`}${last.loss === null ? "" : `, loss ${formatValue(last.loss)}`}` : ""}
      </figcaption>
      <svg viewBox={`0 0 ${WIDTH} 46`} preserveAspectRatio="none" role="img" aria-label={`Life: ${spans.map((span) => span.phase).slice(0, 12).join(", ")}`}>
        {spans.map((span, i) => (
          <rect key={i} x={place(span.from)} y={24} width={Math.max(0.8, place(span.to) - place(span.from))} height={14} style={{ fill: PHASES[span.phase] }}>
            <title>{`${span.phase}: ${formatTime(span.from)}, ${formatDuration((span.to - span.from) / 1000)}`}</title>
          </rect>
        ))}
        {first && last && progress.length > 1 && (
          <g transform={`translate(${place(Date.parse(first.time))} 2)`}>
            <path className="progress-line" d={sparklinePath(progress, place(Date.parse(last.time)) - place(Date.parse(first.time)), 18)} />
          </g>
        )}
        {events.slice(0, 200).map((event, i) => (
          <rect key={i} x={place(Date.parse(event.time)) - 1} y={20} width={2.4} height={22} style={{ fill: EVENT_COLOUR[event.kind] ?? "var(--text)" }}>
            <title>{eventText(event)}</title>
          </rect>
        ))}
      </svg>
      <ul className="phases">
        {phases.map((phase) => (
          <li key={phase}>
            <i style={{ background: PHASES[phase] }} /> {phase}
          </li>
        ))}
        {events.length > 0 && <li className="muted">{formatCount(events.length)} events marked</li>}
      </ul>
    </figure>
  );
}

function lifeScale(diagnosis: Diagnosis) {
  const spans = diagnosis.life.map((span) => ({ phase: span.phase, from: Date.parse(span.from), to: Date.parse(span.to) }));
  if (spans.length === 0) return null;
  const [begin, end] = [spans[0].from, spans[spans.length - 1].to];
  const start = spans[0].phase === "waiting" ? spans[0].to : begin;
  const waiting = spans.length === 1 && start > begin ? WIDTH : start > begin ? Math.min(WIDTH / 5, ((start - begin) / Math.max(1, end - begin)) * WIDTH) : 0;
  const place = (time: number) => {
    if (time <= start) return start > begin ? (Math.max(0, time - begin) / (start - begin)) * waiting : 0;
    return waiting + (Math.min(1, (time - start) / Math.max(1, end - start))) * (WIDTH - waiting);
  };
  return { spans, place };
}

function Facts({ diagnosis }: { diagnosis: Diagnosis }) {
  const { workload, window: span } = diagnosis;
  const rows: [string, string][] = [
    ["User", workload.user],
    ["Project", workload.project],
    ["Partition", workload.partition],
    ["State", workload.state],
    ["GPUs", `${formatCount(workload.gpus.length)} on ${formatCount(workload.hosts.length)} host${workload.hosts.length === 1 ? "" : "s"}`],
    ["Started", workload.start ? formatTime(Date.parse(workload.start)) : ""],
    ["Ended", workload.end ? formatTime(Date.parse(workload.end)) : ""],
    ["Looked at", span ? `${formatCount(span.samples)} moments, every ${formatDuration(span.step_s)}` : "no samples"],
    ...Object.entries(workload.attributes).slice(0, 6),
  ];
  return (
    <dl className="workload-facts">
      {rows.filter(([, value]) => value).map(([label, value], i) => (
        <div key={i}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function PeerTable() {
  const peers = usePeers();
  if (!peers.data) return peers.isError ? null : <p className="muted">Looking for peers…</p>;
  const { same, metrics } = peers.data;
  const count = peers.data.peers.length;
  return (
    <div className="peers" data-testid="peers">
      <h3>
        Against {count === 0 ? "peers" : `${formatCount(count)} peer${count === 1 ? "" : "s"}`} <small className="muted">({formatCount(same.gpus)} × {same.gpu_model || "GPUs"})</small>
      </h3>
      {count === 0 && <p className="muted">No other workload of this size on this type of GPU is stored.</p>}
      <table hidden={metrics.every((one) => one.own === null)}>
        <thead>
          <tr>
            <th scope="col">Mean</th>
            <th scope="col">This</th>
            <th scope="col">Peers (middle half)</th>
          </tr>
        </thead>
        <tbody>
          {metrics.filter((one) => one.own !== null).map((one) => (
            <tr key={one.metric} className={one.low !== null && one.own !== null && one.own < one.low ? "below" : ""}>
              <th scope="row">{one.label}</th>
              <td>{formatValue(one.own, one.unit)}</td>
              <td>{one.peers === null ? "–" : `${formatValue(one.peers, one.unit)} (${formatValue(one.low)}–${formatValue(one.high)})`}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Rules() {
  const { rules, findings } = useRules();
  if (rules.length === 0) return null;
  const met = new Map(findings.filter((one) => one.open).map((one) => [one.rule, one]));
  return (
    <div className="rules" data-testid="rules">
      <h3>
        Rules violated <small className="muted">({met.size} of {rules.length})</small>
      </h3>
      <ul>
        {rules.filter((rule) => met.has(rule.id)).map((rule) => (
          <li key={rule.id} className={rule.severity}>
            <button type="button" className="link" onClick={() => change({ selected: met.get(rule.id)?.gpus ?? [] })}>
              {rule.title || rule.id}
            </button>{" "}
            <span className="muted">{formatCount(met.get(rule.id)?.gpu_count ?? 0)} GPUs</span>
          </li>
        ))}
      </ul>
    </div>
  );
}
