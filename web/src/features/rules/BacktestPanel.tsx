import { useMutation, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { chosenCluster } from "@/api/chosen";
import type { Document } from "@/api/documents";
import { getJson, postJson, remove } from "@/api/client";
import { formatCount, formatDuration, formatTime } from "@/base/format";
import { workloadAddress } from "@/base/addresses";
import { PageLink } from "@/base/ui/PageLink";
import type { DraftRule } from "@/base/verdicts/documents";
import { boundText } from "@/base/verdicts/slots";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import ruleStyles from "@/base/verdicts/rules.module.css";
import styles from "@/features/rules/BacktestPanel.module.css";
import formStyles from "@/features/rules/form.module.css";
import { rulesTexts as texts } from "@/texts";

type BacktestResult = Document<"BacktestResult">;

type Task = Omit<Document<"JobDocument">, "result"> & { result: BacktestResult | null };

const PERIODS = ["6h", "1d", "7d", "30d"];
const POLL_MS = 300;
const PAGE = 20;

/** What the draft would have found in stored history: started, watched, stopped. */
export function BacktestPanel({ rule, valid }: { rule: DraftRule; valid: boolean }) {
  const when = boundText(rule.when, rule.thresholds ?? {});
  const [since, setSince] = useState("1d");
  const [tested, setTested] = useState("");
  const start = useMutation({
    mutationFn: () =>
      postJson<Task>("/backtests", { rules: [rule], since, cluster: chosenCluster() }),
    onMutate: () => setTested(when),
  });
  const id = start.data?.id;
  const task = useQuery({
    queryKey: ["task", id],
    queryFn: ({ signal }) => getJson<Task>(`/tasks/${encodeURIComponent(id ?? "")}`, {}, signal),
    enabled: id !== undefined,
    refetchInterval: (query) => (isOver(query.state.data) ? false : POLL_MS),
  });
  const stop = useMutation({
    mutationFn: () => remove(`/tasks/${encodeURIComponent(id ?? "")}`),
    onSuccess: () => task.refetch(),
  });
  const running = start.isPending || (id !== undefined && !isOver(task.data) && !task.isError);
  useStopAtEnd(running ? id : undefined);
  const failed = start.error ?? task.error ?? stop.error;
  return (
    <section className={styles["rule-backtest"]} aria-label={texts.backTest}>
      <h3>{texts.backTest}</h3>
      <div className={formStyles["rule-line"]}>
        <label htmlFor="backtest-since">{texts.overTheLast}</label>
        <input
          id="backtest-since"
          list="backtest-periods"
          value={since}
          maxLength={20}
          disabled={running}
          onChange={(event) => setSince(event.target.value)}
        />
        <datalist id="backtest-periods">
          {PERIODS.map((period) => (
            <option key={period} value={period} />
          ))}
        </datalist>
        {running ? (
          <button
            className={ui["button"]}
            type="button"
            data-testid="backtest-cancel"
            disabled={id === undefined || stop.isPending}
            onClick={() => stop.mutate()}
          >
            {texts.cancel}
          </button>
        ) : (
          <button
            className={ui["button"]}
            type="button"
            data-testid="backtest-start"
            disabled={!valid}
            onClick={() => start.mutate()}
          >
            {texts.testAgainstHistory}
          </button>
        )}
      </div>
      {running && <Progress task={task.data} />}
      {task.data?.state === "cancelled" && <p role="status">{texts.cancelled}</p>}
      {(failed || task.data?.state === "failed") && (
        <p role="alert" className={ruleStyles["rule-warning"]}>
          {failed?.message ?? task.data?.error}
        </p>
      )}
      {task.data?.result && (
        <>
          {tested !== when && (
            <p className={ui["muted"]}>{texts.testedWithAnEarlierVersionOf(tested)}</p>
          )}
          <Results result={task.data.result} />
        </>
      )}
    </section>
  );
}

function isOver(task: Task | undefined): boolean {
  return task !== undefined && ["done", "failed", "cancelled"].includes(task.state);
}

/** Nobody waits for a back-test whose editor is closed. */
function useStopAtEnd(id: string | undefined): void {
  useEffect(() => {
    if (id === undefined) return;
    let over = false;
    const end = () => {
      over = true;
    };
    window.addEventListener("pagehide", end);
    return () => {
      window.removeEventListener("pagehide", end);
      // Cancelling what has just finished is harmless.
      if (!over) void remove(`/tasks/${encodeURIComponent(id)}`).catch(() => undefined);
    };
  }, [id]);
}

function Progress({ task }: { task: Task | undefined }) {
  const share = task && task.total > 0 ? Math.min(1, task.done / task.total) : 0;
  return (
    <div
      className={styles["rule-progress"]}
      data-testid="backtest-progress"
      role="progressbar"
      aria-label={texts.backTest}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(share * 100)}
    >
      <i style={{ width: `${share * 100}%` }} />
      <span>{task?.state === "waiting" ? texts.queued : `${Math.round(share * 100)} %`}</span>
    </div>
  );
}

function Results({ result }: { result: BacktestResult }) {
  const [count, setCount] = useState(PAGE);
  const [summary] = result.rules;
  const days = (result.to_ms - result.from_ms) / 86_400_000;
  return (
    <div className={styles["backtest-results"]} data-testid="backtest-results">
      <p role="status">
        <b>{formatCount(result.rows.length)}</b>{" "}
        {texts.ofWorkloadsIn(formatCount(result.workloads), formatDuration(days * 86_400))}{" "}
        <b>{formatCount(summary?.gpu_hours ?? 0)}</b>{" "}
        {texts.gpuHoursFindingsPerDay(formatCount(summary?.per_day ?? 0))}
      </p>
      {result.rows.length > 0 && (
        <table>
          <thead>
            <tr>
              <th>{texts.workload}</th>
              <th>{texts.found}</th>
              <th>{texts.duration}</th>
              <th className={pageStyles["figure"]}>{texts.gpus}</th>
              <th className={pageStyles["figure"]}>{texts.gpuHours}</th>
            </tr>
          </thead>
          <tbody>
            {result.rows.slice(0, count).map((row) => (
              <tr key={row.workload}>
                <td>
                  <PageLink href={workloadAddress(row.workload)} title={row.user}>
                    {row.workload}
                  </PageLink>
                </td>
                <td>{formatTime(row.opened_ms)}</td>
                <td>{formatDuration(((row.closed_ms ?? result.to_ms) - row.opened_ms) / 1000)}</td>
                <td className={pageStyles["figure"]}>{formatCount(row.gpus)}</td>
                <td className={pageStyles["figure"]}>{formatCount(row.gpu_hours)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {result.rows.length > count && (
        <button type="button" className={ui["link"]} onClick={() => setCount(count + 100)}>
          {texts.moreRows(formatCount(result.rows.length - count))}
        </button>
      )}
    </div>
  );
}
