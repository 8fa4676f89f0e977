import { Fragment, useContext, useEffect, useMemo, useRef } from "react";
import {
  attributeLabel,
  formatCount,
  formatDuration,
  formatTime,
  formatValue,
} from "@/base/format";
import type { RuleBoard } from "@/base/verdicts/queries";
import { RuleMark } from "@/base/verdicts/RuleMark";
import { isViolated } from "@/base/verdicts/slots";
import { entityAddress } from "@/base/addresses";
import { PageLink } from "@/base/ui/PageLink";
import { drawLife, PHASE_COLOURS } from "@/charts/life";
import type { Diagnosis, Evidence, Finding } from "@/features/diagnostics/documents";
import { useDiagnosis, usePeers, WorkloadContext } from "@/features/diagnostics/queries";
import { change, useChosen } from "@/features/diagnostics/store";
import { counted, lifeOf, progressText } from "@/features/diagnostics/words";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/diagnostics/Summary.module.css";
import { diagnosticsTexts as texts } from "@/texts";

const MOST_NAMED = 8;

/** Facts, verdicts, peers, rules, and the life as a strip. */
export function Summary({ diagnosis, board }: { diagnosis: Diagnosis; board: RuleBoard }) {
  return (
    <section className={styles["summary"]} aria-label={texts.summary}>
      <Facts diagnosis={diagnosis} />
      <div className={styles["verdicts"]}>
        <InWindow />
        {diagnosis.findings.map((finding, i) => (
          <Verdict key={i} finding={finding} all={diagnosis.workload.gpus.length} />
        ))}
        <NotJudged diagnosis={diagnosis} />
        <Life diagnosis={diagnosis} />
      </div>
      <div className={styles["beside"]}>
        <PeerTable />
        <Rules board={board} />
      </div>
    </section>
  );
}

function Verdict({ finding, all }: { finding: Finding; all: number }) {
  const healthy = !finding.fault;
  const show = () =>
    change({
      selected: finding.gpus,
      view: null,
      window: [Date.parse(finding.window.from), Date.parse(finding.window.to)],
    });
  return (
    <article
      className={healthy ? `${styles["verdict"]} ${styles["healthy"]}` : styles["verdict"]}
      data-testid="finding"
      data-kind={finding.kind}
    >
      <h2>{finding.summary}</h2>
      <p className={ui["muted"]}>
        {texts.kindAndConfidence(
          finding.kind.replaceAll("_", " "),
          Math.round(finding.confidence * 100),
          healthy ? "" : texts.gpuHoursAtStake(formatCount(finding.gpu_hours)),
        )}
      </p>
      {!healthy && (
        <p>
          <b>{texts.where}</b> <Where finding={finding} all={all} /> <b>{texts.since}</b>{" "}
          {texts.forWord(formatTime(Date.parse(finding.window.from)))}{" "}
          <span className={styles["whole"]}>
            {formatDuration(
              (Date.parse(finding.window.to) - Date.parse(finding.window.from)) / 1000,
            )}
          </span>
        </p>
      )}
      {finding.evidence.length > 0 && (
        <ul className={styles["evidence"]}>
          {finding.evidence.map((one, i) => (
            <li key={i}>{evidenceText(one)}</li>
          ))}
        </ul>
      )}
      <p>
        <b>{healthy ? texts.nextStep : texts.try}</b> {finding.next}
      </p>
      {!healthy && finding.gpus.length > 0 && (
        <button type="button" className={ui["button"]} onClick={show}>
          {texts.showTheseGpus}
        </button>
      )}
    </article>
  );
}

/** What could not be looked for, by what is missing for it. */
function NotJudged({ diagnosis }: { diagnosis: Diagnosis }) {
  const reasons = new Map<string, string[]>();
  for (const one of diagnosis.unjudged)
    reasons.set(one.why, [...(reasons.get(one.why) ?? []), one.kind.replaceAll("_", " ")]);
  if (reasons.size === 0) return null;
  return (
    <details className={ui["muted"]} data-testid="unjudged">
      <summary>{texts.notJudged(diagnosis.unjudged.length)}</summary>
      <ul>
        {[...reasons].map(([why, kinds]) => (
          <li key={why}>{texts.notJudgedBecause(kinds.join(", "), why)}</li>
        ))}
      </ul>
    </details>
  );
}

/** What the brushed window alone says; the verdicts below are of the whole life. */
function InWindow() {
  const span = useChosen((chosen) => chosen.window);
  const { workload } = useContext(WorkloadContext);
  const found = useDiagnosis(workload, span, span !== null);
  if (!span) return null;
  return (
    <p className={styles["in-window"]} data-testid="in-window" aria-live="polite">
      <b>{texts.inTheSelectedWindow}</b>{" "}
      {found.isError ? found.error.message : found.data ? windowText(found.data) : texts.evaluating}{" "}
      <span className={ui["muted"]}>{texts.belowTheEntireRun}</span>
    </p>
  );
}

function windowText({ findings, verdict }: Diagnosis): string {
  if (findings.length === 0) return verdict;
  return findings
    .map((one) =>
      texts.summaryAndConfidence(
        one.summary,
        one.kind.replaceAll("_", " "),
        Math.round(one.confidence * 100),
      ),
    )
    .join(" ");
}

/** Which GPUs, or where none is known which hosts, each a link to its page. */
function Where({ finding: { gpus, hosts }, all }: { finding: Finding; all: number }) {
  const links = (kind: string, names: readonly string[]) =>
    names.slice(0, MOST_NAMED).map((name, place) => (
      <Fragment key={name}>
        {place > 0 && ", "}
        <PageLink className={ui["link"]} href={entityAddress(kind, name)}>
          {name}
        </PageLink>
      </Fragment>
    ));
  if (gpus.length === 0)
    return hosts.length > 0 ? <>{links("host", hosts)}.</> : <>{texts.notKnown}.</>;
  if (gpus.length === all && all > 1) return <>{texts.all(counted(all, "gpu"))}</>;
  return (
    <>
      {links("gpu", gpus)}
      {gpus.length > MOST_NAMED && texts.andMore(formatCount(gpus.length - MOST_NAMED))}
      {all > 1 &&
        texts.someOfTheGpus(
          formatCount(gpus.length),
          counted(all, "gpu"),
          counted(hosts.length, "host"),
        )}
      {all === 1 && "."}
    </>
  );
}

function evidenceText({ what, value, against, unit, reference }: Evidence): string {
  if (value === null && against === null) return withLocalTimes(what);
  const compared =
    against === null
      ? ""
      : texts.comparedTo(texts.references[reference] ?? reference, formatValue(against, unit));
  return `${what}: ${formatValue(value, unit)}${compared}`;
}

/** The server writes moments in UTC; here they are written as everywhere on the page. */
function withLocalTimes(text: string): string {
  return text.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, (moment) => formatTime(Date.parse(moment)));
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
    <figure className={styles["life"]} data-testid="life">
      <figcaption className={ui["muted"]}>
        {texts.timelineCaption(last ? texts.progress(progressText(last)) : "")}
      </figcaption>
      <svg
        ref={svg}
        role="img"
        aria-label={texts.timelinePhases(
          life.spans
            .map((span) => span.phase)
            .slice(0, 12)
            .join(", "),
        )}
      />
      <p className={`${styles["ends"]} ${ui["muted"]}`}>
        <span>{formatTime(life.spans[0].from)}</span>
        <span>{formatTime(life.spans[life.spans.length - 1].to)}</span>
      </p>
      <ul className={styles["phases"]}>
        {phases.map((phase) => (
          <li key={phase}>
            <i style={{ background: PHASE_COLOURS[phase] }} /> {phase}
          </li>
        ))}
        {life.events.length > 0 && (
          <li className={ui["muted"]}>{texts.marked(counted(life.events.length, "event"))}</li>
        )}
      </ul>
    </figure>
  );
}

function Facts({ diagnosis }: { diagnosis: Diagnosis }) {
  const { workload, window: span } = diagnosis;
  // Who, where and how it ended stand at the top of the page.
  const rows: [string, string][] = [
    [
      texts.gpus,
      workload.gpus.length > 0
        ? texts.on(formatCount(workload.gpus.length), counted(workload.hosts.length, "host"))
        : "",
    ],
    [texts.started, workload.start ? formatTime(Date.parse(workload.start)) : ""],
    [texts.ended, workload.end ? formatTime(Date.parse(workload.end)) : ""],
    [
      texts.observed,
      span
        ? `${counted(span.samples, "sample")}${span.samples > 1 ? texts.oneEvery(formatDuration(span.step_s)) : ""}`
        : texts.noSamplesLower,
    ],
    ...Object.entries(workload.attributes)
      .slice(0, 6)
      .map(([name, value]): [string, string] => [attributeLabel(name), value]),
  ];
  return (
    <dl className={styles["workload-facts"]}>
      {rows
        .filter(([, value]) => value)
        .map(([label, value], i) => (
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
  if (!peers.data)
    return peers.isError ? null : (
      <p className={ui["muted"]}>{texts.lookingForComparableWorkloads}</p>
    );
  const { same, metrics } = peers.data;
  const count = peers.data.peers.length;
  return (
    <div className={styles["peers"]} data-testid="peers">
      <h3>
        {texts.comparedWith(
          count === 0 ? "peers" : texts.peers(formatCount(count), count === 1 ? "" : "s"),
        )}{" "}
        <small className={ui["muted"]}>
          ({formatCount(same.gpus)} × {same.gpu_model || "GPUs"})
        </small>
      </h3>
      {count === 0 && <p className={ui["muted"]}>{texts.noOtherWorkloadOfThisSize}</p>}
      {count > 0 && metrics.every((one) => one.own === null) && (
        <p className={ui["muted"]}>{texts.thisWorkloadHasNoSamplesTo}</p>
      )}
      <table hidden={metrics.every((one) => one.own === null)}>
        <thead>
          <tr>
            <th scope="col">{texts.mean}</th>
            <th scope="col">{texts.thisWorkload}</th>
            <th scope="col">{texts.peers2575}</th>
          </tr>
        </thead>
        <tbody>
          {metrics
            .filter((one) => one.own !== null)
            .map((one) => (
              <tr
                key={one.metric}
                data-below={one.low !== null && one.own !== null && one.own < one.low}
              >
                <th scope="row">{one.label}</th>
                <td>{formatValue(one.own, one.unit)}</td>
                <td>
                  {one.peers === null
                    ? "–"
                    : `${formatValue(one.peers, one.unit)} (${formatValue(one.low)}–${formatValue(one.high)})`}
                </td>
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
    <div data-testid="rules">
      <h3>
        {texts.rulesViolated}{" "}
        <small className={ui["muted"]}>
          {board.preparing
            ? texts.notEvaluatedYet
            : texts.violatedOf(
                violated.length,
                board.entries.filter((entry) => entry.enabled).length,
              )}
        </small>
      </h3>
      <ul>
        {violated.map((entry) => {
          const verdict = board.verdicts.get(entry.field);
          const slot = board.slots.indexOf(entry.field);
          const gpus = [...new Set([...(verdict?.now.gpus ?? []), ...(verdict?.life.gpus ?? [])])];
          return (
            <li key={entry.field}>
              <RuleMark slot={slot < 0 ? null : slot} now={entry.now.workloads > 0} />{" "}
              <button
                type="button"
                className={ui["link"]}
                onClick={() => change({ selected: gpus })}
              >
                {entry.title}
              </button>{" "}
              <span className={ui["muted"]}>
                · {counted(gpus.length, "gpu")},{" "}
                {entry.now.workloads > 0 ? texts.violatedNow : texts.violatedEarlier}
              </span>
            </li>
          );
        })}
      </ul>
    </div>
  );
}
