import { useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { useSearch } from "@/base/router";
import type { Document } from "@/api/documents";
import { inCluster } from "@/api/chosen";
import { getJson } from "@/api/client";
import { PREFIX } from "@/api/prefix";
import { entityAddress, findingsAddress, jobsAddress, workloadAddress } from "@/base/addresses";
import { formatCount, formatDuration, formatShare, formatTime, stateWord } from "@/base/format";
import { Bars } from "@/base/ui/Bars";
import { Figures } from "@/base/ui/Figures";
import { PageHead } from "@/base/ui/PageHead";
import { PageLink } from "@/base/ui/PageLink";
import { SiteLinks } from "@/base/ui/SiteLinks";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/people/EntityPage.module.css";
import { peopleTexts as texts } from "@/texts";

type Entity = Document<"EntityPage">;
const KINDS: Record<string, string> = texts.kinds;
const WITH_DIGEST = ["user", "project"];
const WITH_EVENTS = ["host", "gpu"];
const FILTERED_FINDINGS = ["user", "project"];
const WITH_JOBS = ["user", "project", "partition"];

/** A user, project, partition, host or GPU: now, the last seven days, waste, findings, hardware events. */
export function EntityPage() {
  const query = new URLSearchParams(useSearch());
  const [kind, name] = [...query.entries()].find(([key]) => key in KINDS) ?? ["", ""];
  const page = useQuery({
    queryKey: ["entity", kind, name],
    queryFn: ({ signal }) => getJson<Entity>(`/entities/${kind}`, { name }, signal),
    enabled: name !== "",
    refetchInterval: 30_000,
  });
  useEffect(() => {
    if (name) document.title = `${name} · Marey`;
  }, [name]);
  return (
    <div className={pageStyles["page"]}>
      <PageHead />
      <main className={pageStyles["page-body"]}>
        <h1>
          <small className={ui["muted"]}>{KINDS[kind] ?? ""}</small> {name || texts.nothingChosen}
        </h1>
        {page.isError && (
          <p className={pageStyles["page-notice"]} role="alert">
            {page.error.message}
          </p>
        )}
        {page.isPending && name !== "" && <div className={styles["skeleton"]} role="status" />}
        {page.data && <Body page={page.data} />}
      </main>
    </div>
  );
}

function Body({ page }: { page: Entity }) {
  const filter = { [page.kind]: page.name };
  return (
    <>
      <Figures figures={figuresOf(page)} />
      <p className={styles["links"]}>
        {WITH_JOBS.includes(page.kind) && (
          <PageLink href={jobsAddress(filter)}>{texts.allJobs}</PageLink>
        )}
        <PageLink href={onOverview(page)}>{texts.showOnTheOverview}</PageLink>
        {WITH_DIGEST.includes(page.kind) && (
          <a href={digestAddress(page)} target="_blank" rel="noreferrer" data-testid="digest">
            {texts.weeklyDigest}
          </a>
        )}
      </p>
      <SiteLinks kind={page.kind} name={page.name} />
      <Place page={page} />
      <section aria-label={texts.gpuHoursOverTime}>
        <h2>{texts.gpuHoursOverTime}</h2>
        <Bars
          label={texts.gpuHoursOverTime}
          bars={page.trend.map((step) => ({
            timeMs: step.time_ms,
            value: step.gpu_hours,
            part: step.wasted_gpu_hours,
          }))}
          valueLabel={texts.gpuHours}
          partLabel={texts.wasted}
        />
      </section>
      <div className={styles["pair"]}>
        <Related page={page} />
        <Found page={page} />
        {WITH_EVENTS.includes(page.kind) && <Events page={page} />}
      </div>
      <JobList page={page} />
    </>
  );
}

function figuresOf(page: Entity): [string, string][] {
  const figures: [string, string][] = [
    [texts.gpusInUse, formatCount(page.gpus_now)],
    [texts.running, formatCount(page.running)],
    // Nobody waits on a host yet.
    ...(WITH_JOBS.includes(page.kind)
      ? [[texts.waiting, formatCount(page.waiting)] satisfies [string, string]]
      : []),
    [texts.jobs7Days, formatCount(page.jobs)],
    [texts.failed, formatCount(page.failed)],
    [texts.gpuHours, formatCount(page.gpu_hours)],
    [texts.wasted, formatCount(page.wasted_gpu_hours)],
    [texts.efficiency, formatShare(page.efficiency)],
  ];
  if (WITH_JOBS.includes(page.kind))
    figures.push([
      texts.medianWait,
      page.median_wait_s === null ? "–" : formatDuration(page.median_wait_s),
    ]);
  if (page.state) figures.unshift([texts.state, page.state]);
  if (page.kind === "partition") figures.unshift([texts.gpus, statesOf(page)]);
  if (page.model) figures.push([texts.gpuType, page.model]);
  return figures;
}

/** "824: 800 allocated, 24 idle", the most common state first. */
function statesOf({ states }: Entity): string {
  const counts = Object.entries(states).sort(([, a], [, b]) => b - a);
  const all = counts.reduce((sum, [, count]) => sum + count, 0);
  const words = counts.map(([state, count]) => `${formatCount(count)} ${state}`);
  return [formatCount(all), ...(words.length > 0 ? [words.join(", ")] : [])].join(": ");
}

/** Where a host or GPU is: its partitions, its host, and the GPUs beside it. */
function Place({ page }: { page: Entity }) {
  const lines: [string, string, { name: string; label: string; state?: string }[]][] = [
    [texts.partitions, "partition", page.partitions.map((name) => ({ name, label: name }))],
    [
      texts.kinds.host,
      "host",
      page.kind === "gpu" && page.host ? [{ name: page.host, label: page.host }] : [],
    ],
    [
      texts.gpus,
      "gpu",
      page.kind === "host"
        ? page.gpus.map(({ gpu, state }) => ({
            name: gpu,
            label: gpu.slice(gpu.lastIndexOf(":") + 1),
            state,
          }))
        : [],
    ],
  ];
  return (
    <dl className={styles["place"]}>
      {lines
        .filter(([, , names]) => names.length > 0)
        .map(([label, kind, names]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>
              {names.map(({ name, label: shown, state }) => (
                <PageLink key={name} href={entityAddress(kind, name)} title={state ?? name}>
                  {shown}
                  {state && state !== "allocated" && ` (${state})`}{" "}
                </PageLink>
              ))}
            </dd>
          </div>
        ))}
    </dl>
  );
}

/** What the rules found here in the last days, what costs most first. */
function Found({ page }: { page: Entity }) {
  return (
    <section aria-label={texts.findings} data-testid="entity-findings">
      <h2>{texts.findings}</h2>
      {page.found.length === 0 ? (
        <p className={ui["muted"]}>{texts.noFindings}</p>
      ) : (
        <table className={pageStyles["page-table"]}>
          <thead>
            <tr>
              <th>{texts.finding}</th>
              <th>{texts.job}</th>
              <th>{texts.opened}</th>
              <th className={pageStyles["figure"]}>{texts.gpuHours}</th>
            </tr>
          </thead>
          <tbody>
            {page.found.map((one) => (
              <tr key={one.id}>
                <td>
                  <PageLink href={findingsAddress({ state: "all", id: one.id })}>
                    {one.title}
                  </PageLink>{" "}
                  <small className={ui["muted"]}>{one.open ? texts.open : texts.closed}</small>
                </td>
                <td>
                  <PageLink href={workloadAddress(one.workload)}>{one.workload}</PageLink>
                </td>
                <td>{formatTime(one.opened_ms)}</td>
                <td className={pageStyles["figure"]}>{formatCount(one.gpu_hours)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {page.findings > page.found.length && FILTERED_FINDINGS.includes(page.kind) && (
        <p className={pageStyles["page-line"]}>
          <PageLink href={findingsAddress({ state: "all", [page.kind]: page.name })}>
            {texts.allFindings(formatCount(page.findings))}
          </PageLink>
        </p>
      )}
    </section>
  );
}

function onOverview(page: Entity): string {
  const selection = { field: page.kind, op: "eq", value: page.name };
  return `/?sel=${encodeURIComponent(JSON.stringify(selection))}`;
}

function digestAddress(page: Entity): string {
  const query = new URLSearchParams({ kind: page.kind, name: page.name, format: "html" });
  return `${PREFIX}/api/v1${inCluster(`/digest?${query.toString()}`)}`;
}

function Related({ page }: { page: Entity }) {
  if (page.related.length === 0) return null;
  return (
    <section aria-label={texts.mostGpuHours}>
      <h2>{texts.mostGpuHours}</h2>
      <table className={pageStyles["page-table"]}>
        <thead>
          <tr>
            <th>{texts.name}</th>
            <th className={pageStyles["figure"]}>{texts.gpuHours}</th>
            <th className={pageStyles["figure"]}>{texts.jobs}</th>
          </tr>
        </thead>
        <tbody>
          {page.related.map((one) => (
            <tr key={`${one.kind} ${one.name}`}>
              <td>
                <span className={ui["muted"]}>{KINDS[one.kind]}</span>{" "}
                <PageLink href={entityAddress(one.kind, one.name)}>{one.name}</PageLink>
              </td>
              <td className={pageStyles["figure"]}>{formatCount(one.gpu_hours)}</td>
              <td className={pageStyles["figure"]}>{formatCount(one.jobs)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Events({ page }: { page: Entity }) {
  return (
    <section aria-label={texts.hardwareEvents}>
      <h2>{texts.hardwareEvents}</h2>
      {page.events.length === 0 && <p className={ui["muted"]}>{texts.noHardwareEvents}</p>}
      <table hidden={page.events.length === 0} className={pageStyles["page-table"]}>
        <thead>
          <tr>
            <th>{texts.time}</th>
            <th>{texts.event}</th>
            <th>{texts.where}</th>
          </tr>
        </thead>
        <tbody>
          {page.events.map((one, place) => (
            <tr key={place}>
              <td>{formatTime(one.time_ms)}</td>
              <td>
                {one.kind.replaceAll("_", " ")} {one.text && <small>{one.text}</small>}
              </td>
              <td>
                <PageLink
                  href={one.gpu ? entityAddress("gpu", one.gpu) : entityAddress("host", one.host)}
                >
                  {one.gpu || one.host}
                </PageLink>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function JobList({ page }: { page: Entity }) {
  if (page.rows.length === 0) return <p className={ui["muted"]}>{texts.noJobsIn7Days}</p>;
  return (
    <section aria-label={texts.jobs}>
      <h2>{texts.jobs}</h2>
      <div className={pageStyles["page-scroll"]}>
        <table className={pageStyles["page-table"]} data-testid="entity-jobs">
          <thead>
            <tr>
              <th>{texts.state}</th>
              <th>{texts.name}</th>
              <th>{texts.kinds.user}</th>
              <th className={pageStyles["figure"]}>{texts.gpus}</th>
              <th>{texts.submitted}</th>
              <th className={pageStyles["figure"]}>{texts.runTime}</th>
              <th className={pageStyles["figure"]}>{texts.wasted}</th>
              <th className={pageStyles["figure"]}>{texts.findings}</th>
            </tr>
          </thead>
          <tbody>
            {page.rows.map((row) => (
              <tr key={row.workload}>
                <td>{stateWord(row.state)}</td>
                <td>
                  <PageLink href={workloadAddress(row.workload)}>
                    {row.name || row.workload}
                  </PageLink>
                </td>
                <td>
                  {row.user && (
                    <PageLink href={entityAddress("user", row.user)}>{row.user}</PageLink>
                  )}
                </td>
                <td className={pageStyles["figure"]}>{formatCount(row.gpus)}</td>
                <td>{formatTime(row.submit_ms)}</td>
                <td className={pageStyles["figure"]}>
                  {row.run_s === null ? "–" : formatDuration(row.run_s)}
                </td>
                <td className={pageStyles["figure"]}>{formatCount(row.wasted_gpu_hours)}</td>
                <td className={pageStyles["figure"]}>{formatCount(row.findings)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
