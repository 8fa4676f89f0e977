import { useQueryClient } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useEffect, useMemo, useRef, useState } from "react";
import { inCluster } from "@/api/chosen";
import { ApiError } from "@/api/client";
import type { Catalogue } from "@/base/catalogue";
import { formatTime } from "@/base/format";
import type { RuleBoard } from "@/base/rules/queries";
import { RuleBar } from "@/base/rules/RuleBar";
import { useTheme } from "@/base/theme";
import { IconButton } from "@/base/ui/controls";
import type { Span } from "@/charts/span";
import { Bivariate } from "@/features/diagnostics/Bivariate";
import { ClusterPanel } from "@/features/diagnostics/ClusterPanel";
import type { ColourNumbers } from "@/features/diagnostics/colours";
import { stableNumbers } from "@/features/diagnostics/colours";
import { Comparison } from "@/features/diagnostics/Comparison";
import type { Diagnosis } from "@/features/diagnostics/documents";
import { Multiples } from "@/features/diagnostics/Multiples";
import { between, useClusters, useDiagnosis, WorkloadContext } from "@/features/diagnostics/queries";
import { change, fromAddress, toAddress, useChosen, usePicked } from "@/features/diagnostics/store";
import { Summary } from "@/features/diagnostics/Summary";
import { TimelinePanel } from "@/features/diagnostics/TimelinePanel";
import { Waiting } from "@/features/diagnostics/Waiting";
import { counted } from "@/features/diagnostics/words";
import { useWorkloadBoard } from "@/features/diagnostics/workloadRules";
import "@/features/diagnostics/diagnostics.css";

/** One workload: what is wrong, on which GPU, since when, and what to try. */
export function Diagnostics({ workload, catalogue }: { workload: string; catalogue: Catalogue }) {
  useEffect(() => {
    change(fromAddress(location.search));
    return useChosen.subscribe((chosen) => history.replaceState(null, "", toAddress(workload, chosen)));
  }, [workload]);
  const [cancelled, setCancelled] = useState(false);
  const client = useQueryClient();
  const diagnosis = useDiagnosis(workload, null, workload !== "" && !cancelled, true);
  const running = diagnosis.data?.workload.state === "running";
  const context = useMemo(() => ({ workload, running }), [workload, running]);
  return (
    <WorkloadContext.Provider value={context}>
      <div className="diagnostics">
        <Head workload={workload} diagnosis={diagnosis.data} running={running} />
        {workload === "" && <Notice title="No workload is named" text="Choose one on the overview and press Diagnose." />}
        {diagnosis.isError && <Notice title={errorTitle(diagnosis.error)} text={diagnosis.error.message} />}
        {diagnosis.isPending && workload !== "" && !cancelled && (
          <Waiting
            workload={workload}
            onCancel={() => {
              setCancelled(true);
              void client.cancelQueries({ queryKey: ["diagnosis", workload] });
            }}
          />
        )}
        {cancelled && (
          <Notice title="Cancelled" text="Nothing more is read of this workload.">
            <button type="button" className="button" onClick={() => setCancelled(false)}>
              Look again
            </button>
          </Notice>
        )}
        {diagnosis.data && <Body diagnosis={diagnosis.data} catalogue={catalogue} />}
      </div>
    </WorkloadContext.Provider>
  );
}

function errorTitle(error: Error): string {
  return error instanceof ApiError && error.status === 404 ? "There is no such workload" : "This workload cannot be diagnosed";
}

function Notice({ title, text, children }: { title: string; text: string; children?: ReactNode }) {
  return (
    <section className="notice" role="alert" data-testid="notice">
      <h2>{title}</h2>
      <p>{text}</p>
      {children && <p>{children}</p>}
      <p>
        <a href="/">To the overview</a>
      </p>
    </section>
  );
}

function Head({ workload, diagnosis, running }: { workload: string; diagnosis: Diagnosis | undefined; running: boolean }) {
  const { theme, setTheme } = useTheme();
  const { held, window: span } = usePicked("held", "window");
  const other = theme === "dark" ? "light" : "dark";
  return (
    <header className="diagnostics-head">
      <a href="/" className="button">
        ← Overview
      </a>
      <h1>
        {diagnosis?.workload.name || workload || "Diagnostics"} {diagnosis?.workload.name && <small>{workload}</small>}
      </h1>
      <span className="spring" />
      {span && (
        <button type="button" className="button" data-testid="window" onClick={() => change({ window: null, view: null, lit: [] })}>
          {formatTime(span[0])} – {formatTime(span[1])} ✕
        </button>
      )}
      {running && <IconButton icon={held ? "play" : "pause"} label={held ? "Go on live" : "Hold the picture"} onClick={() => change({ held: !held })} />}
      {diagnosis && (
        <>
          <a className="button" href={reportAddress(workload, span, "html")} download={`diagnosis-${safeName(workload)}.html`} title={span ? "A report of this window" : "A report of the whole life"}>
            Report
          </a>
          <a className="button" href={reportAddress(workload, span, "markdown")} download={`diagnosis-${safeName(workload)}.md`}>
            Markdown
          </a>
        </>
      )}
      <IconButton icon={theme === "dark" ? "sun" : "moon"} label={`Use the ${other} theme`} onClick={() => setTheme(other)} />
    </header>
  );
}

/** The report of what is being looked at: the brushed window, else the whole life. */
function reportAddress(workload: string, span: Span | null, format: "html" | "markdown"): string {
  const query = new URLSearchParams({ workload, format });
  for (const [name, value] of Object.entries(between(span))) query.set(name, String(value));
  return inCluster(`/api/v1/diagnosis/report?${query.toString()}`);
}

function safeName(text: string): string {
  return text.replace(/[^\w.-]+/g, "_").slice(0, 60);
}

function Body({ diagnosis, catalogue }: { diagnosis: Diagnosis; catalogue: Catalogue }) {
  const metrics = useMemo(() => {
    const present = new Set(diagnosis.metrics.map((one) => one.metric));
    return catalogue.metrics.filter((metric) => present.has(metric.id));
  }, [diagnosis, catalogue]);
  const [page, setPage] = useState(0);
  const board = useWorkloadBoard(diagnosis.workload.gpus, page);
  const { lenses, litRule } = usePicked("lenses", "litRule");
  if (diagnosis.window === null)
    return (
      <>
        <Summary diagnosis={diagnosis} board={board} />
        <Notice title="No samples" text="No samples of this workload are stored in this window, so there is nothing to draw." />
      </>
    );
  return (
    <>
      <RuleBar board={board} lenses={lenses} onLenses={(next) => change({ lenses: next })} lit={litRule} onLight={(field) => change({ litRule: field })} page={page} onPage={setPage} />
      <Summary diagnosis={diagnosis} board={board} />
      {diagnosis.window.samples < 2 && <p className="hint" data-testid="one-sample">There is one sample only: plots need at least two moments, and no verdict is given.</p>}
      {diagnosis.workload.gpus.length === 1 && <p className="hint" data-testid="one-gpu">This workload has one GPU: there is nothing to compare it with, so it is not clustered.</p>}
      {diagnosis.window.samples >= 2 && <Parts diagnosis={diagnosis} metrics={metrics} board={board} />}
    </>
  );
}

function Parts({ diagnosis, metrics: all, board }: { diagnosis: Diagnosis; metrics: Catalogue["metrics"]; board: RuleBoard }) {
  const metrics = useMemo(() => all.filter((metric) => metric.entity === "gpu"), [all]);
  const span = useChosen((chosen) => chosen.window);
  const clusters = useClusters(diagnosis.workload.id, span);
  const before = useRef<ColourNumbers>(new Map());
  const numbers = useMemo(() => {
    const found = stableNumbers(clusters.data?.clusters ?? [], before.current);
    if (found.size > 0) before.current = found;
    return found;
  }, [clusters.data]);
  const known = clusters.data;
  return (
    <>
      {clusters.isError && <p className="hint" role="alert">{clusters.error.message}</p>}
      <section className="part" aria-label="GPUs" data-testid="gpus-part" data-busy={clusters.isFetching ? "1" : "0"}>
        {!known && !clusters.isError && <p className="muted" role="status">Looking for GPUs that behave alike…</p>}
        {known && <ClusterPanel clusters={known} numbers={numbers} metrics={metrics} />}
        {known && known.gpus.length > 0 && <Multiples clusters={known} numbers={numbers} board={board} />}
        {known && known.gpus.length === 0 && <p className="hint">No samples of this metric in this window.</p>}
        {known && <p className="muted" role="status">{clusters.isPlaceholderData ? "Looking… " : ""}{counted(known.gpus.length, "GPU")}, {counted(known.moments, "moment")}{known.approximate ? "; clusters are approximate: above 8,192 GPUs micro-clusters are linked, and no merge tree is drawn" : ""}.</p>}
      </section>
      <div className="pair-of-parts">
        <TimelinePanel diagnosis={diagnosis} clusters={known} numbers={numbers} metrics={all} />
        <Bivariate numbers={numbers} metrics={metrics} />
      </div>
      <Comparison diagnosis={diagnosis} />
    </>
  );
}
