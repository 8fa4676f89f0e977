import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { getJson } from "@/api/client";
import { formatCount, formatTime } from "@/base/format";
import { PREPARING, useRules } from "@/base/rules/queries";
import { Choice } from "@/base/ui/controls";
import { Icon } from "@/base/ui/Icon";
import { PageHead } from "@/base/ui/PageHead";
import type { SortKey, WasteBy, WasteDocument, WasteLine, WasteState } from "@/features/waste/sums";
import { lineLink, printAddress, readAddress, sortLines, SUMS } from "@/features/waste/sums";
import "@/base/ui/pages.css";
import "@/features/waste/waste.css";

const LABELS: Record<WasteBy, string> = { user: "User", project: "Project", partition: "Partition", rule: "Rule", workload: "Workload" };
const PERIODS = [
  { value: "24h", label: "24 h" },
  { value: "7d", label: "7 days" },
  { value: "30d", label: "30 days" },
  { value: "", label: "Other" },
];
const PAGE = 100;

/** GPU-hours under findings that count as waste: whose, over any period. */
export function Waste() {
  const [state, setState] = useState(() => readAddress(location.search));
  useEffect(() => history.replaceState(null, "", location.pathname + printAddress(state)), [state]);
  const waste = useWaste(state);
  const set = (change: Partial<WasteState>) => setState({ ...state, ...change });
  return (
    <div className="page">
      <PageHead />
      <main className="page-body">
        <h1>Wasted GPU-hours</h1>
        <p className="muted">GPU-hours under findings whose rule counts them as wasted. An hour that several rules hold against one workload counts once, except by rule.</p>
        <div className="page-line">
          <Choice label="Sum by" value={state.by} options={SUMS.map((value) => ({ value, label: LABELS[value] }))} onChange={(by) => set({ by })} />
          <Choice label="Period" value={state.since} options={PERIODS} onChange={(since) => set({ since })} />
          {state.since === "" && <Span state={state} set={set} />}
          <span className="spring" />
          {waste.data && <Download document={waste.data} />}
        </div>
        {waste.isError && (
          <p className="page-notice" role="alert">
            {waste.error.message}
          </p>
        )}
        {waste.isPending && !waste.isError && (
          <p className="page-notice" role="status">
            Adding up…
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
    refetchInterval: 60_000,
    retry: 1,
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
      <label className="field">
        <span>From</span>
        <input type="datetime-local" value={state.from} onChange={(event) => set({ from: event.target.value })} />
      </label>
      <label className="field">
        <span>To</span>
        <input type="datetime-local" value={state.to} onChange={(event) => set({ to: event.target.value })} />
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
    <button type="button" data-testid="waste-csv" onClick={save}>
      <Icon name="download" /> CSV
    </button>
  );
}

const COLUMNS: { key: SortKey; label: string }[] = [
  { key: "name", label: "" },
  { key: "gpu_hours", label: "GPU-hours" },
  { key: "workloads", label: "Workloads" },
  { key: "findings", label: "Findings" },
];

function Table({ document: { rows, by, from_ms, to_ms, preparing } }: { document: WasteDocument }) {
  const [sort, setSort] = useState<{ key: SortKey; descending: boolean }>({ key: "gpu_hours", descending: true });
  const [count, setCount] = useState(PAGE);
  const rules = useRules();
  const titles = useMemo(() => new Map((rules.data ?? []).map((rule) => [rule.id, rule.title || rule.id])), [rules.data]);
  const called = (name: string) => (by === "rule" ? titles.get(name) : undefined) ?? (name || `no ${by}`);
  const most = Math.max(...rows.map((row) => row.gpu_hours), 1e-9);
  const total = rows.reduce((sum, row) => sum + row.gpu_hours, 0);
  const order = (key: SortKey) => setSort({ key, descending: sort.key === key ? !sort.descending : key !== "name" });
  const period = `${formatTime(from_ms)} – ${formatTime(to_ms)}`;
  if (rows.length === 0)
    return (
      <p className="page-notice" role="status" data-testid={preparing ? "waste-preparing" : "waste-empty"}>
        {preparing ? `Not known yet: ${PREPARING}` : `Nothing was wasted by any rule, ${period}.`}
      </p>
    );
  return (
    <>
      <p role="status">
        <b>{formatCount(total)}</b> GPU-hours, {period}
        {preparing && `. More may follow: ${PREPARING}`}
      </p>
      <div className="page-scroll">
        <table className="page-table waste-table" data-testid="waste-table">
          <thead>
            <tr>
              {COLUMNS.map(({ key, label }) => (
                <th key={key} className={key === "name" ? "" : "figure"} aria-sort={sort.key === key ? (sort.descending ? "descending" : "ascending") : "none"}>
                  <button type="button" className="link" onClick={() => order(key)}>
                    {label || LABELS[by]} {sort.key === key ? (sort.descending ? "↓" : "↑") : ""}
                  </button>
                </th>
              ))}
              <th aria-hidden="true" className="waste-bar" />
            </tr>
          </thead>
          <tbody>
            {sortLines(rows, sort.key, sort.descending, called)
              .slice(0, count)
              .map((row) => (
                <Line key={row.name} row={row} by={by} name={called(row.name)} share={row.gpu_hours / most} />
              ))}
          </tbody>
        </table>
      </div>
      {rows.length > count && (
        <button type="button" className="link" onClick={() => setCount(count + PAGE)}>
          {formatCount(rows.length - count)} more
        </button>
      )}
    </>
  );
}

function Line({ row, by, name, share }: { row: WasteLine; by: WasteBy; name: string; share: number }) {
  const link = lineLink(by, row.name);
  return (
    <tr>
      <td title={row.name}>{link ? <a href={link}>{name}</a> : name}</td>
      <td className="figure">{formatCount(row.gpu_hours)}</td>
      <td className="figure">{formatCount(row.workloads)}</td>
      <td className="figure">{formatCount(row.findings)}</td>
      <td className="waste-bar" aria-hidden="true">
        <i style={{ width: `${Math.max(0.5, share * 100)}%` }} />
      </td>
    </tr>
  );
}
