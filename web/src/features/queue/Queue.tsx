import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Fragment, useMemo, useState } from "react";
import { inCluster } from "@/api/chosen";
import { getJson } from "@/api/client";
import { workloadAddress } from "@/base/addresses";
import { formatCount, formatDuration } from "@/base/format";
import { navigate, useSearch } from "@/base/router";
import { AddCondition, ConditionChips } from "@/base/conditions/ConditionFilter";
import { SearchField } from "@/base/ui/controls";
import { PageHead } from "@/base/ui/PageHead";
import { PageLink } from "@/base/ui/PageLink";
import { AskForm } from "@/features/queue/AskForm";
import { FairnessTable } from "@/features/queue/FairnessTable";
import { ForecastRecordPanel } from "@/features/queue/ForecastRecordPanel";
import { FreeRoomTable } from "@/features/queue/FreeRoomTable";
import type { FreeRoom, LineState, Waiter, WaitingLine } from "@/features/queue/line";
import {
  FIELDS,
  partitionsOf,
  placeOnStrip,
  printAddress,
  readAddress,
  whereOf,
} from "@/features/queue/line";
import { PolicyLab } from "@/features/queue/PolicyLab";
import { SlowHosts } from "@/features/queue/SlowHosts";
import { WhyPanel } from "@/features/queue/WhyPanel";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/queue/Queue.module.css";
import { queueTexts as texts } from "@/texts";

const PAGE = 100;
/** The most that the server tells at once; beyond it a filter finds who is looked for. */
const MOST = 2000;

/** The waiting line: who is ahead, why, when it starts, and what is free. */
export function Queue() {
  const search = useSearch();
  // A job's page leads here with its number: that job is then explained above the line.
  const state = useMemo(() => readAddress(search), [search]);
  const [count, setCount] = useState(PAGE);
  const set: Set = (change) =>
    navigate(inCluster(`/queue${printAddress({ ...state, ...change })}`), { replace: true });
  const where = whereOf(state);
  const line = useQuery({
    queryKey: ["queue", where, count],
    queryFn: ({ signal }) =>
      getJson<WaitingLine>("/queue", { where, limit: String(count) }, signal),
    placeholderData: keepPreviousData,
    refetchInterval: 15_000,
  });
  return (
    <div className={pageStyles["page"]}>
      <PageHead />
      <main className={pageStyles["page-body"]}>
        <h1>{texts.queue}</h1>
        <p className={ui["muted"]}>{texts.intro}</p>
        {line.isPending && !line.isError && (
          <p className={pageStyles["page-notice"]} role="status">
            {texts.loading}
          </p>
        )}
        {line.data?.waiting === 0 ? (
          <p className={pageStyles["page-notice"]} role="status" data-testid="queue-empty">
            {texts.nobodyWaits}
          </p>
        ) : (
          <Filter document={line.data} state={state} set={set} />
        )}
        {line.isError && (
          <p className={pageStyles["page-notice"]} role="alert">
            {line.error.message}
          </p>
        )}
        {line.data && !line.isError && line.data.waiting > 0 && (
          <Line
            document={line.data}
            chosen={state.job}
            choose={(job) => set({ job })}
            more={() => setCount(Math.min(count + PAGE, MOST))}
          />
        )}
        <AskForm />
        <FreeRoomTable />
        <ForecastRecordPanel />
        <FairnessTable nowMs={line.data?.time_ms ?? 0} />
        <SlowHosts />
        <PolicyLab partitions={usePartitions()} />
      </main>
    </div>
  );
}

type Set = (change: Partial<LineState>) => void;

/** Every partition with hosts, from what is free there. */
function usePartitions(): string[] {
  const room = useQuery({
    queryKey: ["queue-free"],
    queryFn: ({ signal }) => getJson<FreeRoom>("/queue-free", undefined, signal),
  });
  return partitionsOf(room.data?.rows ?? []);
}

interface FilterProps {
  document: WaitingLine | undefined;
  state: LineState;
  set: Set;
}

function Filter({ document, state, set }: FilterProps) {
  const filtered = whereOf(state) !== "";
  return (
    <div className={pageStyles["page-line"]}>
      <SearchField
        label={texts.find}
        placeholder={texts.jobUserProject}
        text={state.text}
        onSearch={(text) => set({ text })}
      />
      <AddCondition
        fields={FIELDS}
        onAdd={(condition) => set({ where: [...state.where, condition] })}
      />
      <ConditionChips where={state.where} onChange={(where) => set({ where })} />
      {document && (
        <p role="status" className={ui["muted"]} data-testid="queue-total">
          {filtered
            ? texts.waitingOf(formatCount(document.total), formatCount(document.waiting))
            : texts.waiting(formatCount(document.waiting))}{" "}
          {texts.from(document.method)}
        </p>
      )}
    </div>
  );
}

interface LineProps {
  document: WaitingLine;
  chosen: string;
  choose: (workload: string) => void;
  more: () => void;
}

function Line({ document: { time_ms, rows, total }, chosen, choose, more }: LineProps) {
  // A job that is not among the rows is explained above them.
  const apart = chosen !== "" && !rows.some((row) => row.workload === chosen);
  const why = chosen && <WhyPanel workload={chosen} nowMs={time_ms} close={() => choose("")} />;
  return (
    <section aria-label={texts.waitingLine} className={styles["section"]}>
      {apart && why}
      <div className={pageStyles["page-scroll"]}>
        <table className={pageStyles["page-table"]} data-testid="queue-table">
          <thead>
            <tr>
              <th className={pageStyles["figure"]}>{texts.position}</th>
              <th>{texts.workload}</th>
              <th>{texts.user}</th>
              <th>{texts.partition}</th>
              <th className={pageStyles["figure"]}>{texts.gpus}</th>
              <th className={pageStyles["figure"]}>{texts.waited}</th>
              <th className={styles["strip-head"]}>{texts.expectedStart}</th>
              <th className={styles["reason-head"]}>{texts.why}</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <Fragment key={row.workload}>
                <Row
                  row={row}
                  chosen={row.workload === chosen}
                  choose={() => choose(row.workload === chosen ? "" : row.workload)}
                />
                {row.workload === chosen && (
                  <tr>
                    <td colSpan={8} className={styles["why"]}>
                      {why}
                    </td>
                  </tr>
                )}
              </Fragment>
            ))}
          </tbody>
        </table>
      </div>
      {total === 0 && <p className={pageStyles["page-notice"]}>{texts.nobodyMatches}</p>}
      {rows.length < Math.min(total, MOST) && (
        <button type="button" className={ui["link"]} onClick={more}>
          {texts.more(formatCount(total - rows.length))}
        </button>
      )}
    </section>
  );
}

function Row({ row, chosen, choose }: { row: Waiter; chosen: boolean; choose: () => void }) {
  return (
    <tr className={chosen ? styles["chosen"] : undefined}>
      <td className={pageStyles["figure"]}>{row.position}</td>
      <td>
        <PageLink href={workloadAddress(row.workload)}>{row.workload}</PageLink>
      </td>
      <td>{row.user}</td>
      <td className={styles["one-line"]}>{row.partition}</td>
      <td className={`${pageStyles["figure"]} ${styles["one-line"]}`}>
        {formatCount(row.gpus)}
        {row.gpu_model ? ` ${row.gpu_model}` : ""}
      </td>
      <td className={pageStyles["figure"]}>{formatDuration(row.waited_s)}</td>
      <td>
        <Strip p50={row.p50_s} p90={row.p90_s} never={row.verdict === "never"} />
      </td>
      <td>
        <button type="button" className={ui["link"]} aria-expanded={chosen} onClick={choose}>
          {row.sentence || row.reason || texts.explain}
        </button>
      </td>
    </tr>
  );
}

interface StripProps {
  p50: number | null;
  p90: number | null;
  never: boolean;
}

/** The expected start as words and as a mark on a strip from a minute to a week. */
function Strip({ p50, p90, never }: StripProps) {
  if (p50 === null)
    return <span className={ui["muted"]}>{never ? texts.never : texts.cannotTell}</span>;
  const from = placeOnStrip(p50);
  const to = p90 === null ? 100 : placeOnStrip(p90);
  return (
    <span className={styles["strip"]} title={texts.stripTitle}>
      <span>{texts.inTime(formatDuration(p50))}</span>
      <i aria-hidden="true">
        <b style={{ left: `${from}%`, width: `${Math.max(2, to - from)}%` }} />
      </i>
    </span>
  );
}
