import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { usePageState } from "@/base/router";
import { getJson } from "@/api/client";
import { formatCount, formatShare, formatTime } from "@/base/format";
import { preparingText, useRules } from "@/base/verdicts/queries";
import { Bars } from "@/base/ui/Bars";
import { Choice } from "@/base/ui/controls";
import { Icon } from "@/base/ui/Icon";
import { PageHead } from "@/base/ui/PageHead";
import { PageLink } from "@/base/ui/PageLink";
import type { SortKey, WasteBy, WasteDocument, WasteLine, WasteState } from "@/features/waste/sums";
import { lineLink, printAddress, readAddress, sortLines, SUMS } from "@/features/waste/sums";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/waste/Waste.module.css";
import { wasteTexts as texts } from "@/texts";

const LABELS: Record<WasteBy, string> = {
  user: texts.user,
  project: texts.project,
  partition: texts.partition,
  rule: texts.rule,
  workload: texts.workload,
};
const PERIODS = [
  { value: "24h", label: "24 h" },
  { value: "7d", label: texts.n7Days },
  { value: "30d", label: texts.n30Days },
  { value: "", label: texts.custom },
];
const PAGE = 100;

/** GPU-hours under findings that count as waste: whose, over any period. */
export function Waste() {
  const [state, setState] = usePageState(readAddress, printAddress);
  const waste = useWaste(state);
  const set = (change: Partial<WasteState>) => setState({ ...state, ...change });
  return (
    <div className={pageStyles["page"]}>
      <PageHead />
      <main className={pageStyles["page-body"]}>
        <h1>{texts.wastedGpuHours}</h1>
        <p className={ui["muted"]}>{texts.gpuHoursOfFindingsWhoseRule}</p>
        <div className={pageStyles["page-line"]}>
          <Choice
            label={texts.groupBy}
            value={state.by}
            options={SUMS.map((value) => ({ value, label: LABELS[value] }))}
            onChange={(by) => set({ by })}
          />
          <Choice
            label={texts.period}
            value={state.since}
            options={PERIODS}
            onChange={(since) => set({ since })}
          />
          {state.since === "" && <Span state={state} set={set} />}
          <span className={pageStyles["spring"]} />
          {waste.data && <Download document={waste.data} />}
        </div>
        {waste.isError && (
          <p className={pageStyles["page-notice"]} role="alert">
            {waste.error.message}
          </p>
        )}
        {waste.isPending && !waste.isError && (
          <p className={pageStyles["page-notice"]} role="status">
            {texts.calculating}
          </p>
        )}
        {waste.data && !waste.isError && <Table document={waste.data} />}
      </main>
    </div>
  );
}

function useWaste({ by, since, from, to }: WasteState) {
  const utc = (local: string) => (local ? new Date(local).toISOString() : null);
  const span = since ? { since } : { from: safely(() => utc(from)), to: safely(() => utc(to)) };
  return useQuery({
    queryKey: ["waste", by, span],
    queryFn: ({ signal }) => getJson<WasteDocument>("/waste", { by, ...span }, signal),
    placeholderData: keepPreviousData,
    refetchInterval: ({ state: { data } }) => (data?.preparing ? 10_000 : 60_000),
  });
}

function safely<T>(read: () => T): T | null {
  try {
    return read();
  } catch {
    return null;
  }
}

function Span({ state, set }: { state: WasteState; set: (change: Partial<WasteState>) => void }) {
  return (
    <>
      <label className={ui["field"]}>
        <span>{texts.from}</span>
        <input
          type="datetime-local"
          value={state.from}
          onChange={(event) => set({ from: event.target.value })}
        />
      </label>
      <label className={ui["field"]}>
        <span>{texts.toWord}</span>
        <input
          type="datetime-local"
          value={state.to}
          onChange={(event) => set({ to: event.target.value })}
        />
      </label>
    </>
  );
}

function Download({ document: { csv, by, from_ms, to_ms } }: { document: WasteDocument }) {
  const day = (ms: number) => new Date(ms).toISOString().slice(0, 10);
  const save = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv], { type: "text/csv" }));
    link.download = `waste-by-${by}-${day(from_ms)}-${day(to_ms)}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  };
  return (
    <button className={ui["button"]} type="button" data-testid="waste-csv" onClick={save}>
      <Icon name="download" /> {texts.csv}
    </button>
  );
}

const COLUMNS: { key: SortKey; label: string }[] = [
  { key: "name", label: "" },
  { key: "gpu_hours", label: texts.gpuHoursColumn },
  { key: "workloads", label: texts.workloads },
  { key: "findings", label: texts.findings },
];

function Table({
  document: { rows, by, from_ms, to_ms, preparing, share_read, trend },
}: {
  document: WasteDocument;
}) {
  const [sort, setSort] = useState<{ key: SortKey; descending: boolean }>({
    key: "gpu_hours",
    descending: true,
  });
  const [count, setCount] = useState(PAGE);
  const rules = useRules();
  const titles = useMemo(
    () => new Map((rules.data ?? []).map((rule) => [rule.id, rule.title || rule.id])),
    [rules.data],
  );
  const called = (name: string) =>
    (by === "rule" ? titles.get(name) : undefined) ?? (name || texts.no(by));
  const most = Math.max(...rows.map((row) => row.gpu_hours), 1e-9);
  const total = rows.reduce((sum, row) => sum + row.gpu_hours, 0);
  const order = (key: SortKey) =>
    setSort({ key, descending: sort.key === key ? !sort.descending : key !== "name" });
  const reason = preparingText(share_read ?? null);
  const period = `${formatTime(from_ms)} – ${formatTime(to_ms)}`;
  if (rows.length === 0)
    return (
      <p
        className={pageStyles["page-notice"]}
        role="status"
        data-testid={preparing ? "waste-preparing" : "waste-empty"}
      >
        {preparing ? texts.notKnownYet(reason) : texts.noWastedGpuHours(period)}
      </p>
    );
  return (
    <>
      <p role="status">
        <b>{formatCount(total)}</b>{" "}
        {texts.gpuHours(period, preparing ? texts.moreMayFollow(reason) : "")}
      </p>
      <section aria-label={texts.trend} data-testid="waste-trend">
        <Bars
          label={texts.trend}
          bars={trend.map((step) => ({
            timeMs: step.time_ms,
            value: step.gpu_hours,
            part: step.wasted_gpu_hours,
          }))}
          valueLabel={texts.usedGpuHours}
          partLabel={texts.wastedGpuHours}
        />
      </section>
      <div className={pageStyles["page-scroll"]}>
        <table
          className={`${pageStyles["page-table"]} ${styles["waste-table"]}`}
          data-testid="waste-table"
        >
          <thead>
            <tr>
              {COLUMNS.map(({ key, label }) => (
                <th
                  key={key}
                  className={key === "name" ? undefined : pageStyles["figure"]}
                  aria-sort={
                    sort.key === key ? (sort.descending ? "descending" : "ascending") : "none"
                  }
                >
                  <button type="button" className={ui["link"]} onClick={() => order(key)}>
                    {label || LABELS[by]} {sort.key === key ? (sort.descending ? "↓" : "↑") : ""}
                  </button>
                </th>
              ))}
              <th className={pageStyles["figure"]}>{texts.share}</th>
              <th aria-hidden="true" className={styles["waste-bar"]} />
            </tr>
          </thead>
          <tbody>
            {sortLines(rows, sort.key, sort.descending, called)
              .slice(0, count)
              .map((row) => (
                <Line
                  key={row.name}
                  row={row}
                  by={by}
                  name={called(row.name)}
                  width={row.gpu_hours / most}
                  share={row.gpu_hours / Math.max(total, 1e-9)}
                />
              ))}
          </tbody>
        </table>
      </div>
      {rows.length > count && (
        <button type="button" className={ui["link"]} onClick={() => setCount(count + PAGE)}>
          {texts.more(formatCount(rows.length - count))}
        </button>
      )}
    </>
  );
}

function Line({
  row,
  by,
  name,
  width,
  share,
}: {
  row: WasteLine;
  by: WasteBy;
  name: string;
  /** Of the largest line, for the bar. */
  width: number;
  /** Of all that was wasted. */
  share: number;
}) {
  const link = lineLink(by, row.name);
  return (
    <tr>
      <td title={row.name}>{link ? <PageLink href={link}>{name}</PageLink> : name}</td>
      <td className={pageStyles["figure"]}>{formatCount(row.gpu_hours)}</td>
      <td className={pageStyles["figure"]}>{formatCount(row.workloads)}</td>
      <td className={pageStyles["figure"]}>{formatCount(row.findings)}</td>
      <td className={pageStyles["figure"]}>{formatShare(share)}</td>
      <td className={styles["waste-bar"]} aria-hidden="true">
        <i style={{ width: `${Math.max(0.5, width * 100)}%` }} />
      </td>
    </tr>
  );
}
