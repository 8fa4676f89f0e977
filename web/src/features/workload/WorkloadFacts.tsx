import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import type { Document } from "@/api/documents";
import { getJson } from "@/api/client";
import type { WorkloadRecord } from "@/api/similarRuns";
import { similarTo, useSimilarRuns, useWorkloadRecord } from "@/api/similarRuns";
import {
  entityAddress,
  jobsAddress,
  queueAddress,
  selectionAddress,
  workloadAddress,
} from "@/base/addresses";
import { formatCount, formatDuration, formatTime, stateWord } from "@/base/format";
import type { Span } from "@/features/workload/life";
import { joinSpans, startAt } from "@/features/workload/life";
import { SiteLinks } from "@/base/ui/SiteLinks";
import { PageLink } from "@/base/ui/PageLink";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/workload/WorkloadFacts.module.css";
import { workloadTexts as texts } from "@/texts";

type Findings = Document<"FindingList">;
type Jobs = Document<"JobTable">;
const SHOWN = 6;

/** What is known of a job in any state, at once: facts, its life, findings, events and earlier runs. */
export function WorkloadFacts({ id }: { id: string }) {
  const record = useWorkloadRecord(id);
  const where = JSON.stringify({ field: "workload", op: "eq", value: id });
  const job = useQuery({
    queryKey: ["job", id],
    queryFn: ({ signal }) => getJson<Jobs>("/jobs", { where, limit: 1 }, signal),
    enabled: id !== "",
    refetchInterval: 30_000,
  });
  const row = job.data?.rows[0] ?? null;
  if (!record.data) return null;
  return (
    <section className={styles["facts"]} aria-label={texts.facts} data-testid="workload-facts">
      <Facts workload={record.data} row={row} />
      <SiteLinks kind="workload" name={id} />
      <Life workload={record.data} row={row} />
      <div className={styles["lists"]}>
        <FoundOf id={id} />
        <EventsOf id={id} />
        <EarlierRuns workload={record.data} />
      </div>
    </section>
  );
}

type Row = Document<"JobRow"> | null;

function Facts({ workload, row }: { workload: WorkloadRecord; row: Row }) {
  const link = (kind: string, name: string | null): ReactNode =>
    name ? <PageLink href={entityAddress(kind, name)}>{name}</PageLink> : "–";
  const hosts = [...new Set(workload.allocations.map((one) => one.gpu.replace(/:[^:]*$/, "")))];
  const facts: [string, ReactNode][] = [
    [texts.state, `${stateWord(workload.state)}${workload.reason ? ` (${workload.reason})` : ""}`],
    [texts.user, link("user", workload.user)],
    [texts.project, link("project", workload.project)],
    [texts.partition, link("partition", workload.partition)],
    [texts.gpusRequested, formatCount(workload.gpus_requested ?? 0)],
    [texts.waited, duration(row?.wait_s)],
    [texts.ran, duration(row?.run_s)],
  ];
  if (workload.exit_code !== null && workload.state !== "running")
    facts.push([texts.exitCode, String(workload.exit_code)]);
  return (
    <dl className={styles["line"]}>
      {facts.map(([label, value]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
      {hosts.length > 0 && (
        <div>
          <dt>{texts.hosts}</dt>
          <dd>
            {hosts.slice(0, SHOWN).map((host) => (
              <PageLink key={host} href={entityAddress("host", host)}>
                {host}{" "}
              </PageLink>
            ))}
            {hosts.length > SHOWN && texts.andMore(hosts.length - SHOWN)}
          </dd>
        </div>
      )}
      <div>
        <dt>{texts.show}</dt>
        <dd>
          <PageLink
            href={selectionAddress({ field: "workload", op: "eq", value: workload.workload })}
          >
            {texts.onTheOverview}
          </PageLink>
        </dd>
      </div>
      {workload.state === "pending" && (
        <div>
          <dt>{texts.queue}</dt>
          <dd>
            <PageLink href={queueAddress(workload.workload)}>{texts.whyIsItWaiting}</PageLink>
          </dd>
        </div>
      )}
    </dl>
  );
}

function duration(seconds: number | null | undefined): string {
  return seconds === null || seconds === undefined ? "–" : formatDuration(seconds);
}

/** The moment up to which a job is known to wait or run: the cluster's clock may not be ours. */
function knownUntil(row: Row): number {
  if (row === null) return 0;
  if (row.start_ms !== null) return row.start_ms + (row.run_s ?? 0) * 1000;
  return (row.submit_ms ?? 0) + (row.wait_s ?? 0) * 1000;
}

/** What the scheduler says of the time before the first recorded state. */
function beforeRecording({ states }: WorkloadRecord, row: Row): Span[] {
  if (row?.submit_ms === null || row?.submit_ms === undefined || states.length === 0) return [];
  const first = Math.min(...states.map((one) => one.valid_from_ms));
  const started = Math.min(row.start_ms ?? first, first);
  return [
    { state: "pending", from: row.submit_ms, to: started },
    { state: "running", from: started, to: first },
  ].filter((one) => one.to > one.from);
}

/** The states of a job one after another, as wide as they were long. */
function Life({ workload, row }: { workload: WorkloadRecord; row: Row }) {
  const now = knownUntil(row);
  const polled = joinSpans([
    ...beforeRecording(workload, row),
    ...workload.states
      .filter((one) => one.state === "pending" || one.state === "running")
      .map((one) => ({
        state: one.state ?? "",
        from: one.valid_from_ms,
        to: one.valid_to_ms ?? workload.end_ms ?? now,
      }))
      .filter((one) => one.to > one.from),
  ]);
  const spans = startAt(polled, row?.start_ms ?? null);
  const total = spans.reduce((sum, one) => sum + one.to - one.from, 0);
  if (total <= 0) return null;
  const words = spans
    .map((one) => `${stateWord(one.state)} ${formatDuration((one.to - one.from) / 1000)}`)
    .join(", ");
  return (
    <figure className={styles["life"]}>
      <div role="img" aria-label={texts.timeline(words)}>
        {spans.map((one) => (
          <i
            key={one.from}
            data-state={one.state}
            style={{ flexGrow: (one.to - one.from) / total }}
            title={`${stateWord(one.state)} ${formatTime(one.from)} – ${formatTime(one.to)}`}
          />
        ))}
      </div>
      <figcaption>
        {formatTime(spans[0].from)} · {words}
        {workload.end_ms !== null &&
          ` · ${stateWord(workload.state)} ${formatTime(workload.end_ms)}`}
      </figcaption>
    </figure>
  );
}

function FoundOf({ id }: { id: string }) {
  const found = useQuery({
    queryKey: ["findings of", id],
    queryFn: ({ signal }) => getJson<Findings>("/findings", { workload: id, limit: 20 }, signal),
    refetchInterval: 30_000,
  });
  return (
    <div>
      <h2>{texts.findings}</h2>
      {found.data?.rows.length === 0 && <p className={ui["muted"]}>{texts.noFindings}</p>}
      <ul>
        {found.data?.rows.slice(0, SHOWN).map((one) => (
          <li key={one.id}>
            <PageLink href={`/findings?state=all&workload=${encodeURIComponent(id)}&id=${one.id}`}>
              {one.title || one.rule}
            </PageLink>{" "}
            <small className={ui["muted"]}>
              {one.open ? texts.open : texts.closed} · {texts.gpuHours(formatCount(one.gpu_hours))}
            </small>
          </li>
        ))}
      </ul>
    </div>
  );
}

function EventsOf({ id }: { id: string }) {
  const events = useQuery({
    queryKey: ["events of", id],
    queryFn: ({ signal }) =>
      getJson<Document<"EventTable">>("/events", { workload: id, limit: 50 }, signal),
    staleTime: 30_000,
  });
  // The answer is in order of time.
  const newest = (events.data?.rows ?? []).slice(-SHOWN).reverse();
  return (
    <div>
      <h2>{texts.events}</h2>
      {events.data?.rows.length === 0 && <p className={ui["muted"]}>{texts.noEvents}</p>}
      <ul>
        {newest.map((one, place) => (
          <li key={place}>
            {formatTime(one.time_ms)} {one.kind.replaceAll("_", " ")}{" "}
            <Where gpu={one.gpu} host={one.host} />
          </li>
        ))}
      </ul>
    </div>
  );
}

/** Where something happened, as a link to that GPU or host. */
function Where({ gpu, host }: { gpu: string | null; host: string | null }) {
  if (gpu) return <PageLink href={entityAddress("gpu", gpu)}>{gpu}</PageLink>;
  return host ? <PageLink href={entityAddress("host", host)}>{host}</PageLink> : null;
}

function EarlierRuns({ workload }: { workload: WorkloadRecord }) {
  const { runs, total } = useSimilarRuns(workload.workload);
  const everyone = {
    user: workload.user ?? "",
    where: JSON.stringify(similarTo(workload)),
  };
  return (
    <div>
      <h2>{texts.otherRuns}</h2>
      {runs.length === 0 && <p className={ui["muted"]}>{texts.noOtherRuns}</p>}
      <ul>
        {runs.slice(0, SHOWN).map((row) => (
          <li key={row.workload}>
            <PageLink href={workloadAddress(row.workload)}>{row.workload}</PageLink>{" "}
            {row.name !== workload.name && `${row.name}, `}
            {stateWord(row.state)}
            {row.run_s !== null && `, ${formatDuration(row.run_s)}`}{" "}
            {row.start_ms !== null && (
              <PageLink
                className={ui["link"]}
                href={`${workloadAddress(workload.workload)}&with=${encodeURIComponent(row.workload)}`}
              >
                {texts.compare}
              </PageLink>
            )}
          </li>
        ))}
      </ul>
      {total > SHOWN + 1 && (
        <p className={pageStyles["page-line"]}>
          <PageLink href={jobsAddress(everyone)}>{texts.allRuns(total)}</PageLink>
        </p>
      )}
    </div>
  );
}
