import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { Document } from "@/api/documents";
import { getJson } from "@/api/client";
import { entityAddress } from "@/base/addresses";
import { formatCount, formatDuration, formatShare, formatTime } from "@/base/format";
import { Choice } from "@/base/ui/controls";
import { Figures } from "@/base/ui/Figures";
import { PageHead } from "@/base/ui/PageHead";
import { PageLink } from "@/base/ui/PageLink";
import { Trend } from "@/base/ui/Trend";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/capacity/Capacity.module.css";
import { capacityTexts as texts } from "@/texts";

type Page = Document<"CapacityPage">;
type Change = Document<"PolicyChange">;
type Wait = Document<"WaitOfKind">;

const PERIODS = [
  { value: "6", label: texts.n6Hours },
  { value: "24", label: texts.n24Hours },
  { value: "168", label: texts.n7Days },
];
const HOUR_MS = 3_600_000;

/** How fragmented the cluster is, how long work waits, and what changes of policy did to both. */
export function Capacity() {
  const [hours, setHours] = useState("24");
  const page = useCapacity(Number(hours));
  return (
    <div className={pageStyles["page"]}>
      <PageHead />
      <main className={pageStyles["page-body"]}>
        <h1>{texts.capacity}</h1>
        <p className={ui["muted"]}>{texts.intro}</p>
        <div className={pageStyles["page-line"]}>
          <Choice label={texts.period} value={hours} options={PERIODS} onChange={setHours} />
        </div>
        {page.isError && (
          <p className={pageStyles["page-notice"]} role="alert">
            {page.error.message}
          </p>
        )}
        {page.isPending && (
          <div className={styles["skeleton"]} role="status" aria-label={texts.loading} />
        )}
        {page.data &&
          (page.data.steps.some((step) => step.gpus > 0) ? (
            <Body page={page.data} />
          ) : (
            <p className={pageStyles["page-notice"]}>{texts.noGpusYet}</p>
          ))}
      </main>
    </div>
  );
}

function useCapacity(hours: number) {
  return useQuery({
    queryKey: ["capacity", hours],
    queryFn: async ({ signal }) => {
      if (hours === 24) return getJson<Page>("/capacity", {}, signal);
      const { time_ms: now } = await getJson<Document<"FreeDocument">>("/queue-free", {}, signal);
      return getJson<Page>("/capacity", { from: now - hours * HOUR_MS }, signal);
    },
    placeholderData: keepPreviousData,
    refetchInterval: 60_000,
  });
}

function Body({ page }: { page: Page }) {
  const now = page.steps[page.steps.length - 1];
  const times = page.steps.map((step) => step.time_ms);
  const markers = page.changes.map((one) => ({ timeMs: one.time_ms, text: one.text }));
  const trend = (
    label: string,
    of: (step: (typeof page.steps)[number]) => number,
    format?: Format,
  ) => (
    <section aria-label={label}>
      <h2>{label}</h2>
      <Trend
        label={label}
        times={times}
        lines={[{ name: label, values: page.steps.map(of) }]}
        markers={markers}
        {...(format ? { format } : {})}
      />
    </section>
  );
  return (
    <>
      <Figures
        figures={[
          [texts.freeGpus, `${formatCount(now.free)} / ${formatCount(now.gpus)}`],
          [texts.wholeHostsFree, formatCount(now.whole_hosts_free)],
          [texts.largestJobThatFits, texts.gpus(formatCount(now.largest_gang))],
          [texts.stranded, percent(now.stranded_share)],
          [
            texts.waiting,
            texts.jobsAndGpus(formatCount(now.waiting), formatCount(now.waiting_gpus)),
          ],
        ]}
      />
      <div className={styles["trends"]} data-testid="capacity-trends">
        {trend(texts.wholeHostsFree, (step) => step.whole_hosts_free)}
        {trend(texts.largestJobThatFits, (step) => step.largest_gang)}
        {trend(texts.stranded, (step) => step.stranded_share, percent)}
        {trend(texts.waitingGpus, (step) => step.waiting_gpus)}
      </div>
      <Waits page={page} />
      <Changes changes={page.changes} />
      <Rooms page={page} />
    </>
  );
}

type Format = (value: number) => string;
const percent: Format = formatShare;
const span: Format = (seconds) => (seconds < 1 ? "0" : formatDuration(seconds));

function Waits({ page }: { page: Page }) {
  const markers = page.changes.map((one) => ({ timeMs: one.time_ms, text: one.text }));
  const sizes = texts.sizes;
  return (
    <div className={styles["trends"]}>
      <section aria-label={texts.waitBySize}>
        <h2>{texts.waitBySize}</h2>
        <Trend
          label={texts.waitBySize}
          times={page.waits.map((step) => step.time_ms)}
          lines={sizes.map((name, place) => ({
            name,
            values: page.waits.map((step) => step.median_wait_s[place] ?? null),
          }))}
          markers={markers}
          format={span}
          unit="s"
        />
      </section>
      <section aria-label={texts.waitByType}>
        <h2>{texts.waitByType}</h2>
        <WaitTable waits={page.types} first={texts.resourceType} />
      </section>
    </div>
  );
}

function WaitTable({ waits, first }: { waits: readonly Wait[]; first: string }) {
  return (
    <table className={pageStyles["page-table"]} data-testid="capacity-types">
      <thead>
        <tr>
          <th>{first}</th>
          <th className={pageStyles["figure"]}>{texts.started}</th>
          <th className={pageStyles["figure"]}>{texts.stillWaiting}</th>
          <th className={pageStyles["figure"]}>{texts.medianWait}</th>
          <th className={pageStyles["figure"]}>{texts.longestWaiting}</th>
        </tr>
      </thead>
      <tbody>
        {waits.map((wait) => (
          <tr key={wait.kind}>
            <td>{wait.kind}</td>
            <td className={pageStyles["figure"]}>{formatCount(wait.started)}</td>
            <td className={pageStyles["figure"]}>{formatCount(wait.waiting)}</td>
            <td className={pageStyles["figure"]}>{duration(wait.median_wait_s)}</td>
            <td className={pageStyles["figure"]}>{duration(wait.longest_waiting_s)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const duration = (seconds: number | null) => (seconds === null ? "–" : formatDuration(seconds));

function Changes({ changes }: { changes: readonly Change[] }) {
  return (
    <section aria-label={texts.policyChanges}>
      <h2>{texts.policyChanges}</h2>
      {changes.length === 0 && <p className={ui["muted"]}>{texts.noPolicyChanges}</p>}
      {changes.map((change) => (
        <article key={`${String(change.time_ms)} ${change.text}`} data-testid="policy-change">
          <h3>
            {formatTime(change.time_ms)}: {change.text}
          </h3>
          <p className={ui["muted"]}>
            {texts.compared(formatDuration((change.after.to_ms - change.after.from_ms) / 1000))}
          </p>
          <div className={pageStyles["page-scroll"]}>
            <ChangeTable change={change} />
          </div>
        </article>
      ))}
    </section>
  );
}

/** What was before, what is after: room, and the median wait by size. */
function ChangeTable({ change: { before, after } }: { change: Change }) {
  const whole = (value: number | null) => (value === null ? "–" : formatCount(value));
  const share = (value: number | null) => (value === null ? "–" : percent(value));
  const rows: [string, string, string][] = [
    [texts.wholeHostsFree, whole(before.whole_hosts_free), whole(after.whole_hosts_free)],
    [texts.largestJobThatFits, whole(before.largest_gang), whole(after.largest_gang)],
    [texts.stranded, share(before.stranded_share), share(after.stranded_share)],
  ];
  const kinds = [...new Set([...before.waits, ...after.waits].map((wait) => wait.kind))];
  const formatWait = (waits: readonly Wait[], kind: string) => {
    const wait = waits.find((one) => one.kind === kind);
    return wait
      ? texts.waitAndStarts(
          duration(wait.median_wait_s),
          formatCount(wait.started),
          formatCount(wait.waiting),
        )
      : "–";
  };
  for (const kind of kinds)
    rows.push([
      texts.waitOfSize(kind),
      formatWait(before.waits, kind),
      formatWait(after.waits, kind),
    ]);
  return (
    <table className={pageStyles["page-table"]}>
      <thead>
        <tr>
          <th>{texts.figure}</th>
          <th className={pageStyles["figure"]}>{texts.before}</th>
          <th className={pageStyles["figure"]}>{texts.after}</th>
        </tr>
      </thead>
      <tbody>
        {rows.map(([label, was, is]) => (
          <tr key={label}>
            <th scope="row">{label}</th>
            <td className={pageStyles["figure"]}>{was}</td>
            <td className={pageStyles["figure"]}>{is}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Rooms({ page }: { page: Page }) {
  const now = page.steps[page.steps.length - 1];
  return (
    <section aria-label={texts.byType}>
      <h2>{texts.byType}</h2>
      <div className={pageStyles["page-scroll"]}>
        <table className={pageStyles["page-table"]}>
          <thead>
            <tr>
              <th>{texts.partition}</th>
              <th>{texts.gpuType}</th>
              <th className={pageStyles["figure"]}>{texts.freeGpus}</th>
              <th className={pageStyles["figure"]}>{texts.wholeHostsFree}</th>
              <th className={pageStyles["figure"]}>{texts.largestJobThatFits}</th>
              <th className={pageStyles["figure"]}>{texts.stranded}</th>
            </tr>
          </thead>
          <tbody>
            {now.rooms.map((room) => (
              <tr key={`${room.partition} ${room.model}`}>
                <td>
                  {room.partition ? (
                    <PageLink href={entityAddress("partition", room.partition)}>
                      {room.partition}
                    </PageLink>
                  ) : (
                    "–"
                  )}
                </td>
                <td>{room.model}</td>
                <td className={pageStyles["figure"]}>
                  {formatCount(room.free)} / {formatCount(room.gpus)}
                </td>
                <td className={pageStyles["figure"]}>{formatCount(room.whole_hosts_free)}</td>
                <td className={pageStyles["figure"]}>{formatCount(room.largest_gang)}</td>
                <td className={pageStyles["figure"]}>{percent(room.stranded_share)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
