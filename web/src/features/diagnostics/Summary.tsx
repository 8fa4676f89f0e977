import { useContext, useEffect, useMemo, useRef } from "react";
import { formatCount, formatDuration, formatTime, formatValue } from "@/base/format";
import type { RuleBoard } from "@/base/rules/queries";
import { RuleMark } from "@/base/rules/RuleMark";
import { isViolated } from "@/base/rules/slots";
import { drawLife, PHASE_COLOURS } from "@/charts/life";
import type { Diagnosis, Evidence, Finding } from "@/features/diagnostics/documents";
import { useDiagnosis, usePeers, WorkloadContext } from "@/features/diagnostics/queries";
import { change, useChosen } from "@/features/diagnostics/store";
import { counted, lifeOf, progressText } from "@/features/diagnostics/words";

/** Facts, verdicts, peers, rules, and the life as a strip. */
export function Summary({ diagnosis, board }: { diagnosis: Diagnosis; board: RuleBoard }) {
  return (
    <section className="summary" aria-label="Summary">
      <Facts diagnosis={diagnosis} />
      <div className="verdicts">
        <InWindow />
        {diagnosis.findings.length === 0 && <p className="verdict-text" data-testid="verdict">{diagnosis.verdict}</p>}
        {diagnosis.findings.map((finding, i) => (
          <Verdict key={i} finding={finding} all={diagnosis.workload.gpus.length} />
        ))}
        <Life diagnosis={diagnosis} />
      </div>
      <div className="beside">
        <PeerTable />
        <Rules board={board} />
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
        <p>
          <b>Where</b> {whereText(finding, all)} <b>Since</b> {formatTime(Date.parse(finding.window.from))}, for <span className="whole">{formatDuration((Date.parse(finding.window.to) - Date.parse(finding.window.from)) / 1000)}</span>
        </p>
      )}
      {finding.evidence.length > 0 && (
        <ul className="evidence">
          {finding.evidence.map((one, i) => (
            <li key={i}>{evidenceText(one)}</li>
          ))}
        </ul>
      )}
      <p className="next">
        <b>{healthy ? "Next" : "Try"}</b> {finding.next}
      </p>
      {!healthy && (
        <button type="button" className="button" onClick={show}>
          Show these GPUs
        </button>
      )}
    </article>
  );
}

/** What the brushed window alone says; the verdicts below are of the whole life. */
function InWindow() {
  const span = useChosen((chosen) => chosen.window);
  const { workload } = useContext(WorkloadContext);
  const found = useDiagnosis(workload, span, span !== null);
  if (!span) return null;
  return (
    <p className="in-window" data-testid="in-window" aria-live="polite">
      <b>In the window looked at:</b> {found.isError ? found.error.message : found.data ? windowText(found.data) : "looking…"} <span className="muted">Below: the whole life.</span>
    </p>
  );
}

function windowText({ findings, verdict }: Diagnosis): string {
  if (findings.length === 0) return verdict;
  return findings.map((one) => `${one.summary} (${one.kind.replaceAll("_", " ")}, ${Math.round(one.confidence * 100)} % sure)`).join(" ");
}

function whereText({ gpus, hosts }: Finding, all: number): string {
  if (gpus.length === all) return all === 1 ? `${gpus[0]}.` : `all ${counted(all, "GPU")}.`;
  const listed = gpus.slice(0, 8).join(", ");
  return `${listed}${gpus.length > 8 ? ` and ${formatCount(gpus.length - 8)} more` : ""} (${formatCount(gpus.length)} of ${counted(all, "GPU")}, ${counted(hosts.length, "host")}).`;
}

function evidenceText({ what, value, against, unit }: Evidence): string {
  return `${what}: ${formatValue(value, unit)}${against === null ? "" : ` against ${formatValue(against, unit)}`}`;
}

/** Waiting is often much longer than the run itself: it gets at most a fifth of the strip. */
function Life({ diagnosis }: { diagnosis: Diagnosis }) {
  const svg = useRef<SVGSVGElement | null>(null);
  const life = useMemo(() => lifeOf(diagnosis), [diagnosis]);
  useEffect(() => {
    if (svg.current) drawLife(svg.current, life);
  }, [life]);
  const phases = [...new Set(life.spans.map((span) => span.phase))];
  const last = diagnosis.progress.at(-1);
  if (life.spans.length === 0) return null;
  return (
    <figure className="life" data-testid="life">
      <figcaption className="muted">
        Its life{last ? ` · progress: ${progressText(last)}` : ""}
      </figcaption>
      <svg ref={svg} role="img" aria-label={`Life: ${life.spans.map((span) => span.phase).slice(0, 12).join(", ")}`} />
      <p className="ends muted">
        <span>{formatTime(life.spans[0].from)}</span>
        <span>{formatTime(life.spans[life.spans.length - 1].to)}</span>
      </p>
      <ul className="phases">
        {phases.map((phase) => (
          <li key={phase}>
            <i style={{ background: PHASE_COLOURS[phase] }} /> {phase}
          </li>
        ))}
        {life.events.length > 0 && <li className="muted">{counted(life.events.length, "event")} marked</li>}
      </ul>
    </figure>
  );
}

function Facts({ diagnosis }: { diagnosis: Diagnosis }) {
  const { workload, window: span } = diagnosis;
  const rows: [string, string][] = [
    ["User", workload.user],
    ["Project", workload.project],
    ["Partition", workload.partition],
    ["State", workload.state],
    ["GPUs", `${formatCount(workload.gpus.length)} on ${counted(workload.hosts.length, "host")}`],
    ["Started", workload.start ? formatTime(Date.parse(workload.start)) : ""],
    ["Ended", workload.end ? formatTime(Date.parse(workload.end)) : ""],
    ["Looked at", span ? `${counted(span.samples, "moment")}${span.samples > 1 ? `, every ${formatDuration(span.step_s)}` : ""}` : "no samples"],
    ...Object.entries(workload.attributes).slice(0, 6).map(([name, value]): [string, string] => [name.replaceAll("_", " "), value]),
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
      {count > 0 && metrics.every((one) => one.own === null) && <p className="muted">No samples of its own to set against theirs.</p>}
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

function Rules({ board }: { board: RuleBoard }) {
  const violated = board.entries.filter(isViolated);
  if (board.entries.length === 0) return null;
  return (
    <div className="rules" data-testid="rules">
      <h3>
        Rules violated <small className="muted">{board.preparing ? "(not judged yet)" : `(${violated.length} of ${board.entries.filter((entry) => entry.enabled).length})`}</small>
      </h3>
      <ul>
        {violated.map((entry) => {
          const verdict = board.verdicts.get(entry.field);
          const slot = board.slots.indexOf(entry.field);
          const gpus = [...new Set([...(verdict?.now.gpus ?? []), ...(verdict?.life.gpus ?? [])])];
          return (
            <li key={entry.field}>
              <RuleMark slot={slot < 0 ? null : slot} now={entry.now.workloads > 0} />{" "}
              <button type="button" className="link" onClick={() => change({ selected: gpus })}>
                {entry.title}
              </button>{" "}
              <span className="muted">
                · {counted(gpus.length, "GPU")}, {entry.now.workloads > 0 ? "now" : "earlier"}
              </span>
            </li>
          );
        })}
      </ul>
    </div>
  );
}
