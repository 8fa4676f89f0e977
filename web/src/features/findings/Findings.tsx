import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { getJson } from "@/api/client";
import { formatCount, formatDuration, formatTime } from "@/base/format";
import { links } from "@/base/links";
import { PREPARING, useRules } from "@/base/rules/queries";
import { Choice, Select } from "@/base/ui/controls";
import { PageHead } from "@/base/ui/PageHead";
import { Detail } from "@/features/findings/Detail";
import type { Finding, FindingsDocument, Shown } from "@/features/findings/documents";
import { openSeconds, printAddress, readAddress } from "@/features/findings/documents";
import { Mutes, NotificationLog } from "@/features/findings/Told";
import "@/base/ui/pages.css";
import "@/base/rules/rules.css";
import "@/features/findings/findings.css";

const REFRESH_MS = 10_000;
const PAGE = 100;
const MOST = 5_000;

/** What the rules found, what people said of it, and who was told. */
export function Findings() {
  const [shown, setShown] = useState(() => readAddress(location.search));
  useEffect(() => {
    if (printAddress(shown) !== location.search) history.pushState(null, "", location.pathname + printAddress(shown));
  }, [shown]);
  useEffect(() => {
    const back = () => setShown(readAddress(location.search));
    window.addEventListener("popstate", back);
    return () => window.removeEventListener("popstate", back);
  }, []);
  const set = (change: Partial<Shown>) => setShown({ ...shown, ...change });
  const { state, rule, user, project, workload } = shown;
  const findings = useQuery({
    queryKey: ["findings", state, rule, user, project, workload],
    queryFn: ({ signal }) => getJson<FindingsDocument>("/findings", { state: state === "all" ? "" : state, rule, user, project, workload, limit: MOST }, signal),
    placeholderData: keepPreviousData,
    refetchInterval: REFRESH_MS,
    retry: 1,
  });
  const { data } = findings;
  return (
    <div className="page">
      <PageHead />
      <main className="page-body findings-page">
        <h1>Findings</h1>
        <Filters shown={shown} set={set} rows={data?.rows ?? []} />
        {findings.isError && (
          <p className="page-notice" role="alert">
            {findings.error.message}
          </p>
        )}
        {findings.isPending && (
          <p className="page-notice" role="status">
            Reading the findings…
          </p>
        )}
        {data && (
          <div className="findings-split">
            <List document={data} shown={shown} set={set} />
            {shown.id && <Detail key={shown.id} id={shown.id} onClose={() => set({ id: "" })} />}
          </div>
        )}
        <Mutes />
        <NotificationLog />
      </main>
    </div>
  );
}

function Filters({ shown, set, rows }: { shown: Shown; set: (change: Partial<Shown>) => void; rows: readonly Finding[] }) {
  const rules = useRules();
  const options = (name: "user" | "project") => [...new Set([shown[name], ...rows.map((row) => row[name])])].filter(Boolean).sort().map((value) => ({ value, label: value }));
  const titles = (rules.data ?? []).map((rule) => ({ value: rule.id, label: rule.title || rule.id }));
  const listed = shown.rule === "" || titles.some((one) => one.value === shown.rule) ? titles : [...titles, { value: shown.rule, label: shown.rule }];
  return (
    <div className="page-line">
      <Choice
        label="State"
        value={shown.state}
        options={[
          { value: "open", label: "Open" },
          { value: "closed", label: "Closed" },
          { value: "all", label: "All" },
        ]}
        onChange={(state) => set({ state })}
      />
      <Select label="Rule" value={shown.rule} options={[{ value: "", label: "Any rule" }, ...listed]} onChange={(rule) => set({ rule })} />
      <Select label="User" value={shown.user} options={[{ value: "", label: "Any user" }, ...options("user")]} onChange={(user) => set({ user })} />
      <Select label="Project" value={shown.project} options={[{ value: "", label: "Any project" }, ...options("project")]} onChange={(project) => set({ project })} />
      {shown.workload && (
        <button type="button" onClick={() => set({ workload: "" })}>
          Workload {shown.workload} ✕
        </button>
      )}
    </div>
  );
}

function List({ document: { rows, total, preparing }, shown, set }: { document: FindingsDocument; shown: Shown; set: (change: Partial<Shown>) => void }) {
  const [count, setCount] = useState(PAGE);
  if (rows.length === 0)
    return (
      <p className="page-notice" role="status" data-testid={preparing ? "findings-preparing" : "findings-empty"}>
        {preparing ? `No findings yet: ${PREPARING}` : shown.state === "open" ? "Nothing is wrong by any rule in force." : "There are no such findings."}
      </p>
    );
  const now = Math.max(...rows.map((row) => row.updated_ms));
  return (
    <section aria-label="List of findings">
      <p className="muted" role="status" data-testid="findings-count">
        {formatCount(total)} finding{total === 1 ? "" : "s"}
        {total > rows.length && `, the first ${formatCount(rows.length)} are listed`}
        {preparing && `. More may follow: ${PREPARING}`}
      </p>
      <ul className="finding-list" data-testid="findings">
        {rows.slice(0, count).map((finding) => (
          <Row key={finding.id} finding={finding} now={now} chosen={finding.id === shown.id} onChoose={() => set({ id: finding.id === shown.id ? "" : finding.id })} />
        ))}
      </ul>
      {rows.length > count && (
        <button type="button" className="link" onClick={() => setCount(count + PAGE)}>
          {formatCount(rows.length - count)} more
        </button>
      )}
    </section>
  );
}

function Row({ finding, now, chosen, onChoose }: { finding: Finding; now: number; chosen: boolean; onChoose: () => void }) {
  const tags = [finding.acknowledged && "acknowledged", finding.muted && "muted", finding.episodes.length > 1 && `${finding.episodes.length} times`].filter(Boolean);
  return (
    <li className="finding-item" data-testid={`finding-${finding.id}`} data-open={finding.open}>
      <button type="button" className="finding-row" aria-expanded={chosen} onClick={onChoose}>
        <i className={`finding-mark ${finding.severity} ${finding.open ? "now" : ""}`} title={finding.open ? `${finding.severity}, open` : `${finding.severity}, closed`} />
        <span className="finding-title">
          <strong>{finding.title || finding.rule}</strong>
          <span className="muted">
            {formatTime(finding.opened_ms)} · {finding.open ? "open for" : "was open for"} {formatDuration(openSeconds(finding, now))} · {formatCount(finding.gpu_count)} of {formatCount(finding.gpus_held)} GPUs · {formatCount(finding.gpu_hours)} GPU-hours
          </span>
        </span>
        {tags.map((tag) => (
          <span key={String(tag)} className="finding-tag">
            {tag}
          </span>
        ))}
      </button>
      <span className="finding-who">
        <a href={links.diagnose?.(finding.workload)}>{finding.workload}</a>
        <span className="muted">{[finding.user, finding.project].filter(Boolean).join(" · ")}</span>
      </span>
    </li>
  );
}
