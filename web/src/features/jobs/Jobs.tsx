import { useVirtualizer } from "@tanstack/react-virtual";
import { Fragment, useEffect, useRef, useState } from "react";
import { usePageState } from "@/base/router";
import { inCluster } from "@/api/chosen";
import { withPrefix } from "@/api/prefix";
import {
  entityAddress,
  findingsAddress,
  selectionAddress,
  tracesAddress,
  workloadAddress,
} from "@/base/addresses";
import { formatCount, stateWord } from "@/base/format";
import { AddCondition, ConditionChips } from "@/base/conditions/ConditionFilter";
import { Choice, Popover, SearchField, Toggle } from "@/base/ui/controls";
import { Icon } from "@/base/ui/Icon";
import { PageHead } from "@/base/ui/PageHead";
import { PageLink } from "@/base/ui/PageLink";
import { SavedTables } from "@/features/jobs/SavedTables";
import type { JobsState } from "@/features/jobs/address";
import {
  addCondition,
  FIELDS,
  predicateOf,
  printAddress,
  readAddress,
  STATES,
} from "@/features/jobs/address";
import type { Column, JobRow } from "@/features/jobs/columns";
import { chosenColumns, COLUMNS, explain } from "@/features/jobs/columns";
import { jobsQuery, useJobs } from "@/features/jobs/useJobs";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/jobs/Jobs.module.css";
import { jobsTexts as texts } from "@/texts";

const ROW_PX = 32;
/** The gap between columns, the room of the links and of a row at its ends, as in the style sheet. */
const [GAP_PX, LINKS_PX, PADDING_PX] = [6, 60, 12];
const EXPORT_ROWS = 100_000;

/** Every job, running, waiting or past: sorted, filtered and paged by the server. */
export function Jobs() {
  const [state, setState] = usePageState(readAddress, printAddress);
  const set = (change: Partial<JobsState>) => setState({ ...state, ...change });
  return (
    <div className={styles["jobs"]}>
      <PageHead />
      <main className={styles["body"]}>
        <h1>{texts.jobs}</h1>
        <Tools state={state} set={set} />
        <Table state={state} set={set} />
      </main>
    </div>
  );
}

type Set = (change: Partial<JobsState>) => void;

function Tools({ state, set }: { state: JobsState; set: Set }) {
  const without = (field: string) =>
    Object.fromEntries(Object.entries(state.filters).filter(([key]) => key !== field));
  return (
    <div className={pageStyles["page-line"]}>
      <Choice
        label={texts.state}
        value={state.state}
        options={[
          { value: "" as const, label: texts.all },
          { value: "running" as const, label: texts.running },
          { value: "pending" as const, label: texts.waiting },
          { value: "ended" as const, label: texts.finished },
          { value: "failed,node_fail" as const, label: texts.failed },
        ]}
        onChange={(value) => set({ state: value })}
      />
      <SearchField
        label={texts.find}
        placeholder={texts.nameUserProject}
        text={state.text}
        onSearch={(text) => set({ text })}
      />
      <AddCondition fields={FIELDS} onAdd={(condition) => set(addCondition(state, condition))} />
      {!STATES.some((one) => one === state.state) && (
        <button type="button" className={ui["button"]} onClick={() => set({ state: "" })}>
          {texts.stateIs(state.state.split(",").map(stateWord).join(", "))}
        </button>
      )}
      {Object.entries(state.filters).map(([field, value]) => (
        <button
          key={field}
          type="button"
          className={ui["button"]}
          onClick={() => set({ filters: without(field) })}
        >
          {texts.filterIs(field, value)}
        </button>
      ))}
      <ConditionChips where={state.where} onChange={(where) => set({ where })} />
      <span className={pageStyles["spring"]} />
      <Columns state={state} set={set} />
      <SavedTables address={printAddress(state)} onOpen={(search) => set(readAddress(search))} />
      <Export state={state} />
    </div>
  );
}

function Columns({ state, set }: { state: JobsState; set: Set }) {
  const shown = new Set(chosenColumns(state.columns).map((one) => one.key));
  const toggle = (key: string, on: boolean) =>
    set({
      columns: COLUMNS.map((one) => one.key).filter((one) => (one === key ? on : shown.has(one))),
    });
  return (
    <Popover
      label={texts.columns}
      align="end"
      trigger={
        <button type="button" className={ui["button"]}>
          <Icon name="settings" /> {texts.columns}
        </button>
      }
    >
      <div className={ui["settings"]}>
        {COLUMNS.map((one) => (
          <Toggle
            key={one.key}
            label={one.label}
            checked={shown.has(one.key)}
            onChange={(on) => toggle(one.key, on)}
          />
        ))}
      </div>
    </Popover>
  );
}

function Export({ state }: { state: JobsState }) {
  const address = (format: string) => {
    const query = new URLSearchParams({ format, limit: String(EXPORT_ROWS) });
    for (const [key, value] of Object.entries(jobsQuery(state)))
      if (value !== null) query.set(key, String(value));
    return withPrefix(inCluster(`/api/v1/jobs?${query.toString()}`));
  };
  return (
    <>
      <a className={ui["button"]} href={address("csv")} download="jobs.csv" data-testid="jobs-csv">
        <Icon name="download" /> {texts.csv}
      </a>
      <a className={ui["button"]} href={address("parquet")} download="jobs.parquet">
        {texts.parquet}
      </a>
    </>
  );
}

function Table({ state, set }: { state: JobsState; set: Set }) {
  const box = useRef<HTMLDivElement>(null);
  const [span, setSpan] = useState<readonly [number, number]>([0, 40]);
  const { rows, total, byState, error } = useJobs(state, span[0], span[1]);
  const columns = chosenColumns(state.columns);
  const list = useVirtualizer({
    count: total ?? 0,
    getScrollElement: () => box.current,
    estimateSize: () => ROW_PX,
    overscan: 12,
  });
  const items = list.getVirtualItems();
  const first = items.at(0)?.index ?? 0;
  const last = items.at(-1)?.index ?? 40;
  useEffect(() => setSpan([first, last]), [first, last]);
  const template = columns.map((one) => `minmax(${one.width}px, ${one.width}fr)`).join(" ");
  const width = columns.reduce((sum, one) => sum + one.width + GAP_PX, LINKS_PX + 2 * PADDING_PX);
  if (error && total === null)
    return (
      <p className={pageStyles["page-notice"]} role="alert">
        {error.message}
      </p>
    );
  return (
    <>
      {error && <p role="alert">{texts.lastKnown(error.message)}</p>}
      <p className={ui["muted"]} role="status" data-testid="jobs-total" data-total={total ?? ""}>
        {total === null ? texts.loading : texts.total(formatCount(total))}{" "}
        {byState && Object.keys(byState).length > 0 && <StateCounts counts={byState} set={set} />}
      </p>
      <div className={styles["box"]} ref={box} tabIndex={0} role="region" aria-label={texts.jobs}>
        <div
          role="table"
          aria-label={texts.jobs}
          aria-rowcount={total ?? 0}
          style={{ minWidth: width }}
        >
          <div role="rowgroup" className={styles["head"]}>
            <div
              role="row"
              className={styles["row"]}
              style={{ gridTemplateColumns: `${template} ${LINKS_PX}px` }}
            >
              {columns.map((one) => (
                <Heading key={one.key} column={one} state={state} set={set} />
              ))}
              <div role="columnheader">
                <span className={ui["visually-hidden"]}>{texts.links}</span>
              </div>
            </div>
          </div>
          <div role="rowgroup" style={{ height: list.getTotalSize(), position: "relative" }}>
            {items.map((item) => (
              <div
                key={item.key}
                role="row"
                aria-rowindex={item.index + 1}
                data-testid="job-row"
                className={styles["row"]}
                style={{
                  gridTemplateColumns: `${template} ${LINKS_PX}px`,
                  height: ROW_PX,
                  position: "absolute",
                  top: item.start,
                  left: 0,
                  right: 0,
                }}
              >
                <Cells row={rows.get(item.index)} columns={columns} />
              </div>
            ))}
          </div>
        </div>
        {total === 0 && (
          <p className={pageStyles["page-notice"]}>
            {state.state || predicateOf(state) ? texts.noJobsMatch : texts.noJobsYet}
          </p>
        )}
      </div>
    </>
  );
}

/** How many jobs the other filters leave in each state; a click asks for that state. */
function StateCounts({ counts, set }: { counts: Record<string, number>; set: Set }) {
  const sorted = Object.entries(counts).sort(([, a], [, b]) => b - a);
  return (
    <>
      {texts.byState}
      {sorted.map(([state, count], place) => (
        <Fragment key={state}>
          {place > 0 ? " · " : " "}
          <button type="button" className={ui["link"]} onClick={() => set({ state })}>
            {texts.countOfState(formatCount(count), stateWord(state))}
          </button>
        </Fragment>
      ))}
    </>
  );
}

function Heading({ column, state, set }: { column: Column; state: JobsState; set: Set }) {
  const here = state.sort === column.sort;
  const figure = column.figure ? styles["figure"] : undefined;
  const sort = column.sort;
  return (
    <div
      role="columnheader"
      className={figure}
      aria-sort={here ? (state.descending ? "descending" : "ascending") : "none"}
    >
      <button
        type="button"
        className={ui["link"]}
        onClick={() => set({ sort, descending: here ? !state.descending : column.figure })}
      >
        {column.label} {here ? (state.descending ? "↓" : "↑") : ""}
      </button>
    </div>
  );
}

function Cells({ row, columns }: { row: JobRow | undefined; columns: readonly Column[] }) {
  if (!row)
    return columns.map((one) => (
      <div key={one.key} role="cell">
        <i className={styles["skeleton"]} />
      </div>
    ));
  return (
    <>
      {columns.map((one) => (
        <div key={one.key} role="cell" className={one.figure ? styles["figure"] : undefined}>
          <Cell row={row} column={one} />
        </div>
      ))}
      <div role="cell" className={styles["links"]}>
        <PageLink
          href={selectionAddress({ field: "workload", op: "eq", value: row.workload })}
          title={texts.showOnTheOverview}
          aria-label={texts.showOnTheOverviewOf(row.workload)}
        >
          <Icon name="target" />
        </PageLink>
        <PageLink
          href={tracesAddress(row.workload)}
          title={texts.traces}
          aria-label={texts.tracesOf(row.workload)}
        >
          <Icon name="fill_x" />
        </PageLink>
      </div>
    </>
  );
}

function Cell({ row, column }: { row: JobRow; column: Column }) {
  const text = column.text(row);
  if (column.key === "workload" || column.key === "name")
    return <PageLink href={workloadAddress(row.workload)}>{text}</PageLink>;
  if (column.key === "user" || column.key === "project" || column.key === "partition") {
    const name = row[column.key];
    return name ? <PageLink href={entityAddress(column.key, name)}>{text}</PageLink> : text;
  }
  if (column.key === "findings" && row.findings > 0)
    return (
      <PageLink href={findingsAddress({ workload: row.workload, state: "all" })}>{text}</PageLink>
    );
  if (column.key === "state")
    return (
      <span className={styles["state"]} data-state={row.state} title={row.reason}>
        {text}
      </span>
    );
  return <span title={explain(column, row)}>{text}</span>;
}
