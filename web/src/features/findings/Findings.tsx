import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Fragment, useMemo, useState } from "react";
import { navigate, useSearch } from "@/base/router";
import { inCluster } from "@/api/chosen";
import { getJson } from "@/api/client";
import { formatCount, formatDuration, formatTime } from "@/base/format";
import { entityAddress, workloadAddress } from "@/base/addresses";
import { preparingText, useRules } from "@/base/verdicts/queries";
import { Choice, Select } from "@/base/ui/controls";
import { PageHead } from "@/base/ui/PageHead";
import { PageLink } from "@/base/ui/PageLink";
import { BulkActions } from "@/features/findings/BulkActions";
import { Detail } from "@/features/findings/Detail";
import type { Finding, FindingsDocument, Shown } from "@/features/findings/documents";
import { openSeconds, printAddress, readAddress } from "@/features/findings/documents";
import { grouped, narrowed } from "@/features/findings/grouping";
import { Mutes, NotificationLog } from "@/features/findings/Notifications";
import pageStyles from "@/base/ui/page.module.css";
import { Permitted } from "@/base/ui/Permitted";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/findings/Findings.module.css";
import { findingsTexts as texts } from "@/texts";

const REFRESH_MS = 10_000;
const PAGE = 100;
const MOST = 5_000;

/** What the rules found, what people said of it, and who was told. */
export function Findings() {
  const search = useSearch();
  const shown = useMemo(() => readAddress(search), [search]);
  const set = (change: Partial<Shown>) =>
    navigate(inCluster(location.pathname + printAddress({ ...shown, ...change })));
  const { state, rule, user, project, workload } = shown;
  const findings = useQuery({
    queryKey: ["findings", state, rule, user, project, workload],
    queryFn: ({ signal }) =>
      getJson<FindingsDocument>(
        "/findings",
        { state: state === "all" ? "" : state, rule, user, project, workload, limit: MOST },
        signal,
      ),
    placeholderData: keepPreviousData,
    refetchInterval: REFRESH_MS,
  });
  const { data } = findings;
  return (
    <div className={pageStyles["page"]}>
      <PageHead />
      <main className={`${pageStyles["page-body"]} ${styles["findings-page"]}`}>
        <h1>{texts.findings}</h1>
        <Filters shown={shown} set={set} rows={data?.rows ?? []} />
        {findings.isError && (
          <p className={pageStyles["page-notice"]} role="alert">
            {findings.error.message}
          </p>
        )}
        {findings.isPending && (
          <p className={pageStyles["page-notice"]} role="status">
            {texts.loadingFindings}
          </p>
        )}
        {data && (
          <div className={styles["findings-split"]}>
            <List document={data} shown={shown} set={set} />
            {shown.id ? (
              <Detail key={shown.id} id={shown.id} onClose={() => set({ id: "" })} />
            ) : (
              data.rows.length > 0 && (
                <p className={`${ui["muted"]} ${styles["hint"]}`}>{texts.chooseAFinding}</p>
              )
            )}
          </div>
        )}
        <Mutes />
        <NotificationLog />
      </main>
    </div>
  );
}

function Filters({
  shown,
  set,
  rows,
}: {
  shown: Shown;
  set: (change: Partial<Shown>) => void;
  rows: readonly Finding[];
}) {
  const rules = useRules();
  const options = (name: "user" | "project") =>
    [...new Set([shown[name], ...rows.map((row) => row[name])])]
      .filter(Boolean)
      .sort()
      .map((value) => ({ value, label: value }));
  const titles = new Map((rules.data ?? []).map((rule) => [rule.id, rule.title || rule.id]));
  // Findings outlive their rule: a deleted one can still be chosen.
  for (const id of [shown.rule, ...rows.map((row) => row.rule)])
    if (id && !titles.has(id)) titles.set(id, id);
  const listed = [...titles].map(([value, label]) => ({ value, label }));
  return (
    <div className={`${pageStyles["page-line"]} ${styles["filters"]}`}>
      <Choice
        label={texts.state}
        value={shown.state}
        options={[
          { value: "open", label: texts.open },
          { value: "closed", label: texts.closed },
          { value: "all", label: texts.all },
        ]}
        onChange={(state) => set({ state })}
      />
      <Select
        label={texts.rule}
        value={shown.rule}
        options={[{ value: "", label: texts.anyRule }, ...listed]}
        onChange={(rule) => set({ rule })}
      />
      <Select
        label={texts.user}
        value={shown.user}
        options={[{ value: "", label: texts.anyUser }, ...options("user")]}
        onChange={(user) => set({ user })}
      />
      <Select
        label={texts.project}
        value={shown.project}
        options={[{ value: "", label: texts.anyProject }, ...options("project")]}
        onChange={(project) => set({ project })}
      />
      <Select
        label={texts.severity}
        value={shown.severity}
        options={[
          { value: "", label: texts.anySeverity },
          { value: "critical", label: texts.critical },
          { value: "warning", label: texts.warning },
          { value: "info", label: texts.info },
        ]}
        onChange={(severity) => set({ severity })}
      />
      <label className={ui["field"]}>
        <span>{texts.text}</span>
        <input type="search" value={shown.q} onChange={(event) => set({ q: event.target.value })} />
      </label>
      <Select
        label={texts.sortBy}
        value={shown.sort}
        options={[
          { value: "", label: texts.impact },
          { value: "newest", label: texts.newest },
        ]}
        onChange={(sort) => set({ sort: sort === "newest" ? "newest" : "" })}
      />
      <Select
        label={texts.groupBy}
        value={shown.group}
        options={[
          { value: "", label: texts.nothing },
          { value: "workload", label: texts.byWorkload },
          { value: "rule", label: texts.byCause },
        ]}
        onChange={(group) => set({ group: group === "workload" || group === "rule" ? group : "" })}
      />
      {shown.workload && (
        <button className={ui["button"]} type="button" onClick={() => set({ workload: "" })}>
          {texts.workload(shown.workload)}
        </button>
      )}
    </div>
  );
}

function List({
  document: { rows: all, total, preparing, share_read },
  shown,
  set,
}: {
  document: FindingsDocument;
  shown: Shown;
  set: (change: Partial<Shown>) => void;
}) {
  const [count, setCount] = useState(PAGE);
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set());
  const rows = useMemo(() => narrowed(all, shown), [all, shown]);
  const reason = preparingText(share_read ?? null);
  const pick = (id: string, on: boolean) => {
    const next = new Set(picked);
    if (on) next.add(id);
    else next.delete(id);
    setPicked(next);
  };
  const chosen = rows.filter((row) => picked.has(row.id));
  if (rows.length === 0)
    return (
      <p
        className={pageStyles["page-notice"]}
        role="status"
        data-testid={preparing ? "findings-preparing" : "findings-empty"}
      >
        {preparing
          ? texts.noFindingsYet(reason)
          : shown.state === "open" && all.length === 0
            ? texts.noOpenFindings
            : texts.noFindingsMatch}
      </p>
    );
  const now = Math.max(...rows.map((row) => row.updated_ms));
  return (
    <section aria-label={texts.listOfFindings}>
      <p className={ui["muted"]} role="status" data-testid="findings-count">
        {texts.findingsListed(
          formatCount(total),
          total === 1 ? "" : "s",
          total > rows.length ? texts.firstListed(formatCount(rows.length)) : "",
          preparing ? texts.moreMayFollow(reason) : "",
        )}
      </p>
      {chosen.length > 0 && <BulkActions chosen={chosen} onDone={() => setPicked(new Set())} />}
      {grouped(rows.slice(0, count), shown.group).map((group) => (
        <Fragment key={group.key}>
          {group.label && (
            <h2 className={styles["group"]}>
              {shown.group === "workload" ? (
                <PageLink href={workloadAddress(group.key)}>{group.label}</PageLink>
              ) : (
                group.label
              )}{" "}
              <small className={ui["muted"]}>
                {texts.groupSum(group.rows.length, formatCount(group.gpuHours))}
              </small>
            </h2>
          )}
          <ul data-testid="findings">
            {group.rows.map((finding) => (
              <Row
                key={finding.id}
                finding={finding}
                now={now}
                chosen={finding.id === shown.id}
                picked={picked.has(finding.id)}
                onPick={(on) => pick(finding.id, on)}
                onChoose={() => set({ id: finding.id === shown.id ? "" : finding.id })}
              />
            ))}
          </ul>
        </Fragment>
      ))}
      {rows.length > count && (
        <button type="button" className={ui["link"]} onClick={() => setCount(count + PAGE)}>
          {texts.more(formatCount(rows.length - count))}
        </button>
      )}
    </section>
  );
}

function Row({
  finding,
  now,
  chosen,
  picked,
  onPick,
  onChoose,
}: {
  finding: Finding;
  now: number;
  chosen: boolean;
  picked: boolean;
  onPick: (on: boolean) => void;
  onChoose: () => void;
}) {
  const tags = [
    finding.acknowledged && texts.acknowledged,
    finding.muted && texts.mutedTag,
    finding.episodes.length > 1 && texts.times(finding.episodes.length),
  ].filter(Boolean);
  return (
    <li
      className={styles["finding-item"]}
      data-testid={`finding-${finding.id}`}
      data-open={finding.open}
    >
      <Permitted to="contribute">
        <input
          type="checkbox"
          aria-label={texts.selectFinding(finding.title || finding.rule, finding.workload)}
          checked={picked}
          onChange={(event) => onPick(event.target.checked)}
        />
      </Permitted>
      <button
        type="button"
        className={styles["finding-row"]}
        aria-expanded={chosen}
        onClick={onChoose}
      >
        <i
          className={styles["finding-mark"]}
          data-severity={finding.severity}
          data-open={finding.open}
          title={
            finding.open
              ? texts.severityOpen(finding.severity)
              : texts.severityClosed(finding.severity)
          }
        />
        <span className={styles["finding-title"]}>
          <strong>{finding.title || finding.rule}</strong>
          <span className={ui["muted"]}>
            {texts
              .findingFacts(
                formatTime(finding.opened_ms),
                finding.open ? texts.openFor : texts.wasOpenFor,
                formatDuration(openSeconds(finding, now)),
                formatCount(finding.gpu_count),
                formatCount(finding.gpus_held),
                formatCount(finding.gpu_hours),
              )
              .map((part, place) => (
                <Fragment key={place}>
                  {place > 0 && " · "}
                  <span className={styles["part"]}>{part}</span>
                </Fragment>
              ))}
          </span>
        </span>
        {tags.map((tag) => (
          <span key={String(tag)} className={styles["finding-tag"]}>
            {tag}
          </span>
        ))}
      </button>
      <span className={styles["finding-who"]}>
        <PageLink href={workloadAddress(finding.workload)}>{finding.workload}</PageLink>
        <span className={ui["muted"]}>
          {finding.user && (
            <PageLink href={entityAddress("user", finding.user)}>{finding.user}</PageLink>
          )}{" "}
          {finding.project && (
            <PageLink href={entityAddress("project", finding.project)}>{finding.project}</PageLink>
          )}
        </span>
      </span>
    </li>
  );
}
