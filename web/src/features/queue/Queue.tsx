import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Fragment, useState } from "react";
import { getJson } from "@/api/client";
import { workloadAddress } from "@/base/addresses";
import { formatCount, formatDuration } from "@/base/format";
import { useSearch } from "@/base/router";
import { PageHead } from "@/base/ui/PageHead";
import { PageLink } from "@/base/ui/PageLink";
import { AskForm } from "@/features/queue/AskForm";
import { FairnessTable } from "@/features/queue/FairnessTable";
import { ForecastRecordPanel } from "@/features/queue/ForecastRecordPanel";
import { FreeRoomTable } from "@/features/queue/FreeRoomTable";
import type { Waiter, WaitingLine } from "@/features/queue/line";
import { filterLine, partitionsOf, placeOnStrip } from "@/features/queue/line";
import { PolicyLab } from "@/features/queue/PolicyLab";
import { SlowHosts } from "@/features/queue/SlowHosts";
import { WhyPanel } from "@/features/queue/WhyPanel";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/queue/Queue.module.css";
import { queueTexts as texts } from "@/texts";

const PAGE = 100;

/** The waiting line: who is ahead, why, when it starts, and what is free. */
export function Queue() {
  // A job's page leads here with its number: the line then shows that job, opened.
  const asked = new URLSearchParams(useSearch()).get("job") ?? "";
  const [filter, setFilter] = useState(asked);
  const [chosen, setChosen] = useState(asked);
  const line = useQuery({
    queryKey: ["queue"],
    queryFn: ({ signal }) => getJson<WaitingLine>("/queue", { limit: "2000" }, signal),
    placeholderData: keepPreviousData,
    refetchInterval: 15_000,
  });
  return (
    <div className={pageStyles["page"]}>
      <PageHead />
      <main className={pageStyles["page-body"]}>
        <h1>{texts.queue}</h1>
        <p className={ui["muted"]}>{texts.intro}</p>
        {line.isError && (
          <p className={pageStyles["page-notice"]} role="alert">
            {line.error.message}
          </p>
        )}
        {line.isPending && !line.isError && (
          <p className={pageStyles["page-notice"]} role="status">
            {texts.loading}
          </p>
        )}
        {line.data && !line.isError && (
          <Line
            document={line.data}
            filter={filter}
            setFilter={setFilter}
            chosen={chosen}
            choose={setChosen}
          />
        )}
        <AskForm />
        <FreeRoomTable />
        <ForecastRecordPanel />
        <FairnessTable nowMs={line.data?.time_ms ?? 0} />
        <SlowHosts />
        <PolicyLab partitions={partitionsOf(line.data?.rows ?? [])} />
      </main>
    </div>
  );
}

interface LineProps {
  document: WaitingLine;
  filter: string;
  setFilter: (text: string) => void;
  chosen: string;
  choose: (workload: string) => void;
}

function Line({
  document: { time_ms, rows, total, method },
  filter,
  setFilter,
  chosen,
  choose,
}: LineProps) {
  const [count, setCount] = useState(PAGE);
  const kept = filterLine(rows, filter);
  if (total === 0)
    return (
      <p className={pageStyles["page-notice"]} role="status" data-testid="queue-empty">
        {texts.nobodyWaits}
      </p>
    );
  return (
    <section aria-label={texts.waitingLine} className={styles["section"]}>
      <div className={pageStyles["page-line"]}>
        <label className={ui["field"]}>
          <span>{texts.filter}</span>
          <input type="text" value={filter} onChange={(event) => setFilter(event.target.value)} />
        </label>
        <p role="status" className={ui["muted"]}>
          {texts.waiting(formatCount(kept.length), formatCount(total))} {texts.from(method)}
        </p>
      </div>
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
            {kept.slice(0, count).map((row) => (
              <Fragment key={row.workload}>
                <Row
                  row={row}
                  chosen={row.workload === chosen}
                  choose={() => choose(row.workload === chosen ? "" : row.workload)}
                />
                {row.workload === chosen && (
                  <tr>
                    <td colSpan={8} className={styles["why"]}>
                      <WhyPanel workload={chosen} nowMs={time_ms} close={() => choose("")} />
                    </td>
                  </tr>
                )}
              </Fragment>
            ))}
          </tbody>
        </table>
      </div>
      {kept.length > count && (
        <button type="button" className={ui["link"]} onClick={() => setCount(count + PAGE)}>
          {texts.more(formatCount(kept.length - count))}
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
      <td>{row.partition}</td>
      <td className={pageStyles["figure"]}>
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
