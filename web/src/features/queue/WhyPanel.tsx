import { useQuery } from "@tanstack/react-query";
import { getJson } from "@/api/client";
import { formatCount, formatDuration } from "@/base/format";
import { ExpectedSpeed } from "@/features/queue/ExpectedSpeed";
import { ForecastHistory } from "@/features/queue/ForecastHistory";
import type { Why } from "@/features/queue/line";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/queue/Queue.module.css";
import { queueTexts as texts } from "@/texts";

/** Why one workload waits: the blocker, who is ahead, what moved, and the forecast. */
export function WhyPanel({
  workload,
  nowMs,
  close,
}: {
  workload: string;
  nowMs: number;
  close: () => void;
}) {
  const why = useQuery({
    queryKey: ["queue-why", workload],
    queryFn: ({ signal }) =>
      getJson<Why>(`/queue/${encodeURIComponent(workload)}`, undefined, signal),
    refetchInterval: 15_000,
    retry: 0,
  });
  return (
    <section className={styles["panel"]} aria-label={texts.whyOf(workload)} data-testid="queue-why">
      <div className={styles["panel-head"]}>
        <h2>{texts.whyOf(workload)}</h2>
        <button type="button" className={ui["button"]} onClick={close}>
          {texts.close}
        </button>
      </div>
      {why.isError && <p role="alert">{why.error.message}</p>}
      {why.isPending && !why.isError && <p role="status">{texts.loading}</p>}
      {why.data && <Explanation why={why.data} nowMs={nowMs} />}
      {why.data && <ExpectedSpeed workload={workload} />}
    </section>
  );
}

function Explanation({ why, nowMs }: { why: Why; nowMs: number }) {
  return (
    <>
      {why.sentences.map((sentence) => (
        <p key={sentence}>{sentence}</p>
      ))}
      <p>
        <b>{why.start.sentence}</b>{" "}
        <span className={ui["muted"]}>{texts.from(why.start.method)}</span>
      </p>
      {why.start.scheduler_s !== null && (
        <p className={ui["muted"]}>
          {texts.schedulerSays(formatDuration(why.start.scheduler_s))} {why.start.scheduler_record}
        </p>
      )}
      <p className={ui["muted"]}>{why.start.record}</p>
      <ForecastHistory forecasts={why.forecasts} nowMs={nowMs} />
      <dl className={styles["facts"]}>
        <Fact name={texts.place} value={texts.placeOf(why.position, why.waiting)} />
        <Fact name={texts.aheadInPartition} value={aheadOf(why.ahead)} />
        <Fact name={texts.aheadOwn} value={aheadOf(why.ahead_own)} />
        <Fact name={texts.aheadProject} value={aheadOf(why.ahead_project)} />
        <Fact name={texts.aheadOthers} value={aheadOf(why.ahead_others)} />
        {why.blocking_hosts.length > 0 && (
          <Fact name={texts.firstHosts} value={why.blocking_hosts.slice(0, 6).join(", ")} />
        )}
        {Object.entries(why.factors).map(([name, value]) => (
          <Fact key={name} name={texts.factor(name)} value={formatCount(value)} />
        ))}
      </dl>
      <p className={ui["muted"]}>{why.aging.sentence}</p>
      {why.changes.length > 0 && (
        <>
          <h3>{texts.sinceYesterday}</h3>
          <ul>
            {why.changes.map((change) => (
              <li key={change}>{change}</li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}

/** Jobs, GPUs and GPU-hours by time limits, as far as they are known. */
function aheadOf(ahead: Why["ahead"]): string {
  if (ahead.jobs === 0) return texts.noJobs;
  const jobs = texts.jobsAndGpus(ahead.jobs, formatCount(ahead.jobs), formatCount(ahead.gpus));
  return ahead.gpu_hours === null
    ? jobs
    : `${jobs}, ${texts.upToGpuHours(formatCount(ahead.gpu_hours))}`;
}

function Fact({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}
