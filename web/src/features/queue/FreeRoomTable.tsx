import { useQuery } from "@tanstack/react-query";
import { getJson } from "@/api/client";
import { workloadAddress } from "@/base/addresses";
import { formatCount, formatDuration, formatShare } from "@/base/format";
import { sparklinePath } from "@/base/sparkline";
import { PageLink } from "@/base/ui/PageLink";
import type { FreeRoom, RoomTrend } from "@/features/queue/line";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/queue/Queue.module.css";
import { queueTexts as texts } from "@/texts";

/** What is free, really: gangs that start now, whole hosts, GPUs that nobody in line can use. */
export function FreeRoomTable() {
  const free = useQuery({
    queryKey: ["queue-free"],
    queryFn: ({ signal }) => getJson<FreeRoom>("/queue-free", undefined, signal),
    refetchInterval: 15_000,
  });
  const trend = useQuery({
    queryKey: ["queue-trend"],
    queryFn: ({ signal }) => getJson<RoomTrend>("/queue-trend", undefined, signal),
    refetchInterval: 60_000,
  });
  return (
    <section className={styles["section"]} aria-label={texts.free}>
      <h2>{texts.free}</h2>
      <p className={ui["muted"]}>{texts.freeIntro}</p>
      {free.isError && <p role="alert">{free.error.message}</p>}
      {free.data && free.data.rows.length === 0 && <p role="status">{texts.noHosts}</p>}
      {free.data && free.data.rows.length > 0 && (
        <div className={pageStyles["page-scroll"]}>
          <table className={pageStyles["page-table"]} data-testid="queue-free">
            <thead>
              <tr>
                <th>{texts.partition}</th>
                <th>{texts.gpuType}</th>
                <th className={pageStyles["figure"]}>{texts.freeOf}</th>
                <th className={pageStyles["figure"]}>{texts.wholeHosts}</th>
                <th className={pageStyles["figure"]}>{texts.largestOnOneHost}</th>
                <th className={pageStyles["figure"]}>{texts.stranded}</th>
                <th>{texts.largestGangTrend}</th>
                <th>{texts.emptiesNext}</th>
              </tr>
            </thead>
            <tbody>
              {free.data.rows.map((row) => (
                <tr key={`${row.partition}/${row.model}`}>
                  <td>{row.partition}</td>
                  <td>{row.model}</td>
                  <td className={pageStyles["figure"]}>
                    {texts.of(formatCount(row.free), formatCount(row.gpus))}
                  </td>
                  <td className={pageStyles["figure"]}>{formatCount(row.whole_hosts_free)}</td>
                  <td className={pageStyles["figure"]}>{formatCount(row.largest_on_one_host)}</td>
                  <td className={pageStyles["figure"]}>{formatShare(row.stranded_share)}</td>
                  <td>
                    <Trend
                      values={trendOf(trend.data?.rows ?? [], row.partition, row.model)}
                      now={row.largest_gang}
                    />
                  </td>
                  <td>
                    <NextHost row={row} nowMs={free.data.time_ms} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

/** Which host frees up first, when by the time limits, and who holds it until then. */
function NextHost({ row, nowMs }: { row: FreeRoom["rows"][number]; nowMs: number }) {
  if (!row.next_host) return <>–</>;
  const [first, ...others] = row.next_host_holders;
  return (
    <span title={row.next_host_holders.join(", ")}>
      {row.next_host}
      {row.next_host_ms !== null &&
        ` ${texts.inTime(formatDuration(Math.max(0, row.next_host_ms - nowMs) / 1000))}`}
      {first && (
        <>
          {", "}
          {texts.heldBy} <PageLink href={workloadAddress(first)}>{first}</PageLink>
          {others.length > 0 && ` ${texts.andMore(others.length)}`}
        </>
      )}
    </span>
  );
}

/** The largest gangs of the last day (96 samples), oldest first. */
function trendOf(rows: RoomTrend["rows"], partition: string, model: string): number[] {
  return rows
    .filter((row) => row.partition === partition && row.model === model)
    .slice(-96)
    .map((row) => row.largest_gang);
}

function Trend({ values, now }: { values: readonly number[]; now: number }) {
  return (
    <span className={styles["trend"]}>
      <svg viewBox="0 0 96 18" aria-hidden="true">
        <path d={sparklinePath([...values, now], 96, 16)} transform="translate(0 1)" />
      </svg>
      {formatCount(now)}
    </span>
  );
}
