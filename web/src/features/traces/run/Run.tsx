import type { ComponentType } from "react";
import { useEffect, useRef, useState } from "react";
import { navigate, useSearch } from "@/base/router";
import { inCluster } from "@/api/chosen";
import { traceAddress, tracesAddress, workloadAddress } from "@/base/addresses";
import { formatCount, formatTime } from "@/base/format";
import { PageHead } from "@/base/ui/PageHead";
import { PageLink } from "@/base/ui/PageLink";
import { formatNs } from "@/charts/marey/window";
import type { RunDetail, Verdict } from "@/features/traces/documents";
import { isBusy, useRun, useRunActions, useVerdicts } from "@/features/traces/queries";
import {
  CollectivesPanel,
  CommunicationPanel,
  WaitsPanel,
} from "@/features/traces/run/CommunicationPanels";
import { DifferencePanel } from "@/features/traces/run/DifferencePanel";
import type { PanelProps } from "@/features/traces/run/TimePanels";
import {
  BreakdownPanel,
  MemoryPanel,
  NamesPanel,
  PathPanel,
  StepsPanel,
} from "@/features/traces/run/TimePanels";
import { RunHead } from "@/features/traces/RunHead";
import { firstNumber } from "@/features/traces/selection";
import { usePrediction } from "@/features/traces/whatif/queries";
import { formatBytes, shorten, stateWord } from "@/features/traces/words";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/traces/run/Run.module.css";
import { tracesTexts as texts, whatIfTexts } from "@/texts";

const TABS: readonly { key: string; label: string; Panel: ComponentType<PanelProps> }[] = [
  { key: "steps", label: texts.steps, Panel: StepsPanel },
  { key: "breakdown", label: texts.breakdown, Panel: BreakdownPanel },
  { key: "collectives", label: texts.collectives, Panel: CollectivesPanel },
  { key: "waits", label: texts.whoMadeWhomWait, Panel: WaitsPanel },
  { key: "communication", label: texts.communication, Panel: CommunicationPanel },
  { key: "memory", label: texts.memory, Panel: MemoryPanel },
  {
    key: "kernels",
    label: texts.kernels,
    Panel: (props) => <NamesPanel {...props} table="kernels" />,
  },
  {
    key: "operators",
    label: texts.operators,
    Panel: (props) => <NamesPanel {...props} table="operators" />,
  },
  { key: "path", label: texts.criticalPath, Panel: PathPanel },
  { key: "difference", label: texts.difference, Panel: DifferencePanel },
];

/** One run: what is wrong with it in words, then every table that says so. */
export function Run() {
  const search = new URLSearchParams(useSearch());
  const id = search.get("id") ?? "";
  const detail = useRun(id);
  return (
    <div className={pageStyles["page"]}>
      <PageHead />
      <main className={pageStyles["page-body"]}>
        <p>
          <PageLink href={tracesAddress()}>{texts.allTraces}</PageLink>
        </p>
        {detail.isError && <Gone message={detail.error.message} />}
        {detail.isPending && id !== "" && <p role="status">{texts.loading}</p>}
        {id === "" && <Gone message={texts.noRunChosen} />}
        {detail.data && !detail.isError && <Shown detail={detail.data} search={search} />}
      </main>
    </div>
  );
}

/** What stands in place of a run that is not there, or is no longer. */
export function Gone({ message, run = "" }: { message: string; run?: string }) {
  return (
    <div className={pageStyles["page-notice"]} role="alert">
      <p>{message}</p>
      {run && (
        <>
          <PageLink className={ui["button"]} href={traceAddress("run", run)}>
            {texts.goToRun}
          </PageLink>{" "}
        </>
      )}
      <PageLink className={ui["button"]} href={tracesAddress()}>
        {texts.goToTraces}
      </PageLink>
    </div>
  );
}

function Shown({ detail, search }: { detail: RunDetail; search: URLSearchParams }) {
  const { run } = detail;
  const where = search.get("where") ?? "";
  const chosen = TABS.find(({ key }) => key === search.get("tab")) ?? TABS[0];
  const go = (change: Record<string, string>) =>
    navigate(inCluster(traceAddress("run", run.id, { tab: chosen.key, where, ...change })), {
      replace: true,
    });
  return (
    <>
      <RunHead detail={detail} view="run" where={where} />
      <Facts detail={detail} />
      {run.state !== "ready" ? (
        <Unready run={run} />
      ) : (
        <>
          <Verdicts run={run.id} ranks={run.ranks} />
          <Where value={where} onChange={(next) => go({ where: next })} />
          <div className={styles["tabs"]} role="tablist" aria-label={texts.tablesOfTheRun}>
            {TABS.map(({ key, label }) => (
              <button
                key={key}
                id={`tab-${key}`}
                type="button"
                role="tab"
                aria-selected={key === chosen.key}
                aria-controls="run-panel"
                onClick={() => go({ tab: key })}
              >
                {label}
              </button>
            ))}
          </div>
          <div
            id="run-panel"
            role="tabpanel"
            aria-labelledby={`tab-${chosen.key}`}
            data-testid={`panel-${chosen.key}`}
          >
            <chosen.Panel detail={detail} where={where} />
          </div>
        </>
      )}
    </>
  );
}

/** A run that is not converted: how far it is, or the way to start. A demo's run starts by itself. */
export function Unready({ run }: { run: RunDetail["run"] }) {
  const { convert, cancel } = useRunActions();
  const asked = useRef(false);
  const start = convert.mutate;
  useEffect(() => {
    if (run.origin !== "demo" || run.state !== "found" || asked.current) return;
    asked.current = true;
    start(run.id);
  }, [run, start]);
  const busy = isBusy(run) || (convert.isPending && run.state === "found");
  return (
    <div className={pageStyles["page-notice"]} data-testid="unready" data-state={run.state}>
      <p role="status">
        {stateWord(run)}
        {isBusy(run) && ` · ${texts.converting(Math.round(run.progress * 100), run.doing)}`}
        {run.error && `: ${shorten(run.error, 500)}`}
      </p>
      {busy ? (
        <>
          <progress value={run.progress} max={1} aria-label={texts.progressOf(run.name)} />
          {run.may_change && run.state !== "uploading" && (
            <button className={ui["link"]} type="button" onClick={() => cancel.mutate(run.id)}>
              {texts.cancel}
            </button>
          )}
        </>
      ) : (
        <>
          <p>{texts.convertFirst}</p>
          <button className={ui["button"]} type="button" onClick={() => start(run.id)}>
            {texts.convert}
          </button>
        </>
      )}
      {convert.isError && <p role="alert">{convert.error.message}</p>}
    </div>
  );
}

function Facts({ detail }: { detail: RunDetail }) {
  const { run, parallelism } = detail;
  const split = parallelism?.dimensions
    .filter(({ kind, size }) => size > 1 && kind !== "unknown")
    .map(({ kind, size }) => texts.dimension(kind, size))
    .join(" × ");
  const facts: [string, React.ReactNode][] = [
    [texts.ranks, formatCount(run.ranks)],
    [texts.steps, formatCount(run.steps)],
    [texts.size, formatBytes(run.bytes)],
    [texts.recorded, formatTime(run.start_ms ?? run.created_ms)],
    [texts.parallelism, split || texts.notKnown],
    [
      texts.clockError,
      detail.clock_error_us === null ? "–" : `±${formatNs(detail.clock_error_us * 1e3)}`,
    ],
  ];
  if (run.workload)
    facts.push([
      texts.workload,
      <PageLink key="w" href={workloadAddress(run.workload, run.end_ms)}>
        {texts.itsGpusAtThatTime(shorten(run.workload, 40))}
      </PageLink>,
    ]);
  const notes = [...run.warnings, ...detail.notes];
  return (
    <>
      <dl className={styles["facts"]}>
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {notes.length > 0 && (
        <details>
          <summary>{texts.notes(notes.length)}</summary>
          <ul>
            {notes.slice(0, 100).map((note, i) => (
              <li key={i}>{shorten(note, 300)}</li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

function Verdicts({ run, ranks }: { run: string; ranks: number }) {
  const verdicts = useVerdicts(run);
  if (verdicts.isError) return <p role="alert">{verdicts.error.message}</p>;
  if (!verdicts.data) return <p role="status">{texts.loading}</p>;
  if (verdicts.data.length === 0) return <p role="status">{texts.nothingWrongFound}</p>;
  return (
    <ol className={styles["verdicts"]} aria-label={texts.verdicts} data-testid="verdicts">
      {verdicts.data.map((verdict, i) => (
        <VerdictCard key={i} verdict={verdict} run={run} ranks={ranks} />
      ))}
    </ol>
  );
}

/** Runs of more ranks are replayed only when somebody asks. */
const REPLAYED_UNASKED = 32;

/** The way to the what-if that would undo the cause, with what it would gain where that is quick to say. */
function Fix({
  run,
  verdict,
  ranks,
  step,
}: {
  run: string;
  verdict: Verdict;
  ranks: number;
  step: number | undefined;
}) {
  const prediction = usePrediction(run, verdict.what_if, { enabled: ranks <= REPLAYED_UNASKED });
  const gain = prediction.data ? Math.round((1 - 1 / prediction.data.speedup) * 1000) / 10 : null;
  const address = traceAddress("marey", run, {
    step,
    where: verdict.where,
    panel: "what-if",
    if: verdict.what_if.join(";"),
  });
  return (
    <PageLink href={address} data-testid="verdict-what-if">
      {gain === null ? whatIfTexts.ifFixed : whatIfTexts.ifFixedGain(whatIfTexts.gain(gain))}
    </PageLink>
  );
}

function VerdictCard({ verdict, run, ranks }: { verdict: Verdict; run: string; ranks: number }) {
  const step = firstNumber(verdict.where, "step") ?? verdict.steps[0];
  return (
    <li
      className={styles["verdict"]}
      data-kind={verdict.confidence > 0 ? verdict.kind : "not-judged"}
    >
      <h2>{verdict.title}</h2>
      <p>{shorten(verdict.sentence, 600)}</p>
      {verdict.advice && <p>{verdict.advice}</p>}
      {verdict.evidence.length > 0 && (
        <ul>
          {verdict.evidence.slice(0, 6).map((line, i) => (
            <li key={i}>{shorten(line, 300)}</li>
          ))}
        </ul>
      )}
      <p className={ui["muted"]}>
        {verdict.kind !== "none" &&
          texts.recoverable(
            formatNs(verdict.recoverable_ms * 1e6),
            verdict.share === null ? "–" : `${Math.round(verdict.share * 100)} %`,
          )}{" "}
        {texts.confidence(Math.round(verdict.confidence * 100))}{" "}
        {verdict.kind !== "none" && (
          <>
            <PageLink href={traceAddress("marey", run, { step, where: verdict.where })}>
              {texts.showInMarey}
            </PageLink>
            {" · "}
            <PageLink href={traceAddress("flow", run, { step, where: verdict.where })}>
              {texts.showInFlow}
            </PageLink>
            {verdict.what_if.length > 0 && (
              <>
                {" · "}
                <Fix run={run} verdict={verdict} ranks={ranks} step={step} />
              </>
            )}
          </>
        )}
      </p>
    </li>
  );
}

/** The selection as text: the same that the command line and notebooks take. */
function Where({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const [draft, setDraft] = useState(value);
  const [seen, setSeen] = useState(value);
  // A link or the back button changed it.
  if (seen !== value) {
    setSeen(value);
    setDraft(value);
  }
  return (
    <form
      className={styles["selection"]}
      onSubmit={(event) => {
        event.preventDefault();
        onChange(draft.trim());
      }}
    >
      <label className={ui["field"]}>
        <span>{texts.selection}</span>
        <input
          type="text"
          value={draft}
          placeholder={texts.selectionExample}
          onChange={(event) => setDraft(event.target.value)}
        />
      </label>
      <button className={ui["button"]} type="submit">
        {texts.apply}
      </button>
      {value && (
        <button
          className={ui["link"]}
          type="button"
          onClick={() => {
            setDraft("");
            onChange("");
          }}
        >
          {texts.clear}
        </button>
      )}
    </form>
  );
}
