import { useState } from "react";
import { useMay } from "@/base/account";
import { useSearch } from "@/base/router";
import { traceAddress, tracesAddress, workloadAddress } from "@/base/addresses";
import { formatCount, formatTime } from "@/base/format";
import { IconButton } from "@/base/ui/controls";
import { PageHead } from "@/base/ui/PageHead";
import { PageLink } from "@/base/ui/PageLink";
import type { RunSummary } from "@/features/traces/documents";
import { isBusy, useLimits, useRunActions, useRuns } from "@/features/traces/queries";
import { sortRows } from "@/features/traces/tables";
import { Upload } from "@/features/traces/Upload";
import { formatBytes, shorten, stateWord } from "@/features/traces/words";
import pageStyles from "@/base/ui/page.module.css";
import { Permitted } from "@/base/ui/Permitted";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/traces/Traces.module.css";
import { tracesTexts as texts } from "@/texts";

/** What is said where there are no traces: how to send some, to those who may. */
function describeNothing(ofWorkload: boolean, maySend: boolean): string {
  if (!maySend) return texts.noTracesToSee;
  return ofWorkload ? texts.noTracesOfThisWorkload : texts.noTraces;
}

/** Runs whose traces are here: sent by hand, found in folders, attached to workloads. */
export function Traces() {
  const workload = new URLSearchParams(useSearch()).get("workload") ?? "";
  const runs = useRuns(workload);
  const limits = useLimits();
  const maySend = useMay("contribute");
  const [filter, setFilter] = useState("");
  const [resumed, setResumed] = useState<RunSummary | null>(null);
  const shown = filterRuns(runs.data?.runs ?? [], filter);
  return (
    <div className={pageStyles["page"]}>
      <PageHead />
      <main className={pageStyles["page-body"]}>
        <h1>{texts.traces}</h1>
        <p className={ui["muted"]}>{texts.tracesIntroduction}</p>
        {workload && (
          <p>
            {texts.ofWorkload} <PageLink href={workloadAddress(workload)}>{workload}</PageLink>
            {" · "}
            <PageLink href={tracesAddress()}>{texts.allTraces}</PageLink>
          </p>
        )}
        <Permitted to="contribute">
          <Upload
            workload={workload}
            limits={limits.data ?? null}
            resumed={resumed}
            onDone={() => setResumed(null)}
          />
        </Permitted>
        {runs.isError && (
          <p className={pageStyles["page-notice"]} role="alert">
            {runs.error.message}
          </p>
        )}
        {runs.data && runs.data.runs.length > 0 && (
          <>
            <label className={`${ui["field"]} ${styles["filter"]}`}>
              <span>{texts.filterRuns}</span>
              <input
                type="text"
                value={filter}
                placeholder={texts.nameWorkloadOrVerdict}
                onChange={(event) => setFilter(event.target.value)}
              />
            </label>
            <RunTable runs={shown} onResume={setResumed} />
          </>
        )}
        {runs.data?.runs.length === 0 && !runs.isError && (
          <p className={pageStyles["page-notice"]} role="status" data-testid="traces-empty">
            {describeNothing(workload !== "", maySend)}
          </p>
        )}
        {runs.isPending && !runs.isError && (
          <p className={pageStyles["page-notice"]} role="status">
            {texts.loading}
          </p>
        )}
      </main>
    </div>
  );
}

function filterRuns(runs: readonly RunSummary[], filter: string): RunSummary[] {
  const wanted = filter.trim().toLowerCase();
  return runs.filter(({ name, workload, verdict }) =>
    [name, workload, verdict].some((text) => text.toLowerCase().includes(wanted)),
  );
}

/** What a run is sorted by in each column. */
const sortKeys = (run: RunSummary) => ({
  name: run.name,
  workload: run.workload,
  ranks: run.ranks,
  steps: run.steps,
  bytes: run.bytes,
  verdict: run.verdict,
  time: run.start_ms ?? run.created_ms,
});

type SortKey = keyof ReturnType<typeof sortKeys>;

const HEADS: readonly { key: SortKey; label: string; figure?: boolean }[] = [
  { key: "name", label: texts.run },
  { key: "workload", label: texts.workload },
  { key: "ranks", label: texts.ranks, figure: true },
  { key: "steps", label: texts.steps, figure: true },
  { key: "bytes", label: texts.size, figure: true },
  { key: "verdict", label: texts.verdict },
  { key: "time", label: texts.recorded },
];

function RunTable({
  runs,
  onResume,
}: {
  runs: readonly RunSummary[];
  onResume: (run: RunSummary) => void;
}) {
  const [sort, setSort] = useState<{ key: SortKey; descending: boolean } | null>(null);
  const mayAct = useMay("contribute");
  if (runs.length === 0) return <p role="status">{texts.noRunMatches}</p>;
  const ordered = sort
    ? sortRows(
        runs.map((run) => ({ run, ...sortKeys(run) })),
        sort.key,
        sort.descending,
      ).map(({ run }) => run)
    : runs;
  return (
    <div className={pageStyles["page-scroll"]}>
      <table className={`${pageStyles["page-table"]} ${styles["runs"]}`} data-testid="trace-runs">
        <thead>
          <tr>
            {HEADS.map(({ key, label, figure }) => (
              <th
                key={key}
                className={figure ? pageStyles["figure"] : undefined}
                aria-sort={
                  sort?.key === key ? (sort.descending ? "descending" : "ascending") : "none"
                }
              >
                <button
                  type="button"
                  className={ui["link"]}
                  onClick={() =>
                    setSort({ key, descending: sort?.key === key ? !sort.descending : !!figure })
                  }
                >
                  {label} {sort?.key === key ? (sort.descending ? "↓" : "↑") : ""}
                </button>
              </th>
            ))}
            {mayAct && <th>{texts.actions}</th>}
          </tr>
        </thead>
        <tbody>
          {ordered.map((run) => (
            <RunLine key={run.id} run={run} onResume={onResume} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function RunLine({ run, onResume }: { run: RunSummary; onResume: (run: RunSummary) => void }) {
  const name = shorten(run.name, 80);
  return (
    <tr data-run={run.id} data-state={run.state}>
      <td title={shorten(run.name, 500)}>
        {run.state === "uploading" ? (
          name
        ) : (
          <PageLink href={traceAddress("run", run.id)}>{name}</PageLink>
        )}
      </td>
      <td>
        <Attached run={run} />
      </td>
      <td className={pageStyles["figure"]}>{run.ranks > 0 ? formatCount(run.ranks) : "–"}</td>
      <td className={pageStyles["figure"]}>{run.steps > 0 ? formatCount(run.steps) : "–"}</td>
      <td className={pageStyles["figure"]}>{run.bytes > 0 ? formatBytes(run.bytes) : "–"}</td>
      <td>
        <Outcome run={run} />
      </td>
      <td className={styles["time"]}>{formatTime(run.start_ms ?? run.created_ms)}</td>
      <Permitted to="contribute">
        <td>
          <Actions run={run} onResume={onResume} />
        </td>
      </Permitted>
    </tr>
  );
}

/** The verdict of a run that is ready; what is happening to the others. */
function Outcome({ run }: { run: RunSummary }) {
  if (run.state === "ready") return <>{shorten(run.verdict) || texts.nothingWrongFound}</>;
  if (run.state === "failed")
    return <span className={styles["bad"]}>{shorten(run.error || stateWord(run), 300)}</span>;
  if (run.state !== "converting") return <span className={ui["muted"]}>{stateWord(run)}</span>;
  return (
    <span className={styles["progress"]}>
      <progress value={run.progress} max={1} aria-label={texts.progressOf(shorten(run.name, 60))} />
      {texts.converting(Math.round(run.progress * 100), run.doing)}
    </span>
  );
}

/** The workload that a run belongs to, which can be changed by hand. */
export function Attached({ run }: { run: RunSummary }) {
  const { change } = useRunActions();
  const [draft, setDraft] = useState<string | null>(null);
  if (draft !== null)
    return (
      <form
        className={styles["attach"]}
        onSubmit={(event) => {
          event.preventDefault();
          change.mutate(
            { run: run.id, workload: draft.trim() },
            { onSuccess: () => setDraft(null) },
          );
        }}
      >
        <input
          type="text"
          aria-label={texts.workloadId}
          value={draft}
          autoFocus
          onChange={(event) => setDraft(event.target.value)}
        />
        <button className={ui["button"]} type="submit" disabled={change.isPending}>
          {draft.trim() ? texts.attach : texts.detach}
        </button>
        <button className={ui["link"]} type="button" onClick={() => setDraft(null)}>
          {texts.cancel}
        </button>
        {change.isError && <span role="alert">{change.error.message}</span>}
      </form>
    );
  return (
    <span className={styles["attached"]}>
      {run.workload && (
        <PageLink href={workloadAddress(run.workload, run.end_ms)}>
          {shorten(run.workload, 60)}
        </PageLink>
      )}
      {run.may_change && (
        <Permitted to="contribute">
          <button
            className={ui["link"]}
            type="button"
            aria-label={(run.workload ? texts.changeWorkload : texts.attachToWorkload)(
              shorten(run.name, 60),
            )}
            onClick={() => setDraft(run.workload)}
          >
            {run.workload ? texts.change : texts.attach}
          </button>
        </Permitted>
      )}
    </span>
  );
}

function Actions({ run, onResume }: { run: RunSummary; onResume: (run: RunSummary) => void }) {
  const { convert, cancel, erase } = useRunActions();
  const mayOperate = useMay("operate");
  const [asking, setAsking] = useState(false);
  const name = shorten(run.name, 60);
  const error = convert.error ?? cancel.error ?? erase.error;
  if (asking)
    return (
      <span className={styles["actions"]}>
        {texts.deleteQuestion}
        <button className={ui["button"]} type="button" onClick={() => erase.mutate(run.id)}>
          {texts.delete}
        </button>
        <button className={ui["link"]} type="button" onClick={() => setAsking(false)}>
          {texts.keep}
        </button>
      </span>
    );
  return (
    <span className={styles["actions"]}>
      {run.may_change && run.state === "uploading" && (
        <button className={ui["link"]} type="button" onClick={() => onResume(run)}>
          {texts.continueUpload}
        </button>
      )}
      {["found", "failed", "cancelled", "uploading"].includes(run.state) && (
        <button
          className={ui["link"]}
          type="button"
          aria-label={texts.convertRun(name)}
          onClick={() => convert.mutate(run.id)}
        >
          {texts.convert}
        </button>
      )}
      {run.may_change && isBusy(run) && run.state !== "uploading" && (
        <button
          className={ui["link"]}
          type="button"
          aria-label={texts.cancelConversion(name)}
          onClick={() => cancel.mutate(run.id)}
        >
          {texts.cancel}
        </button>
      )}
      {run.may_change && (run.origin === "upload" || mayOperate) && (
        <IconButton icon="trash" label={texts.deleteRun(name)} onClick={() => setAsking(true)} />
      )}
      {error && <span role="alert">{error.message}</span>}
    </span>
  );
}
