import { useQueryClient } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Suspense, useEffect, useMemo, useRef, useState } from "react";
import { inCluster } from "@/api/chosen";
import { ApiError } from "@/api/client";
import { withPrefix } from "@/api/prefix";
import { tracesAddress } from "@/base/addresses";
import type { Catalogue } from "@/base/live/catalogue";
import { formatTime } from "@/base/format";
import type { RuleBoard } from "@/base/verdicts/queries";
import type { RuleBarComponent } from "@/base/verdicts/ruleBar";
import { IconButton } from "@/base/ui/controls";
import { PageHead } from "@/base/ui/PageHead";
import { PageLink } from "@/base/ui/PageLink";
import type { Span } from "@/charts/span";
import { Bivariate } from "@/features/diagnostics/panels/Bivariate";
import { ClusterPanel } from "@/features/diagnostics/panels/ClusterPanel";
import type { ColourNumbers } from "@/features/diagnostics/colours";
import { stableNumbers } from "@/features/diagnostics/colours";
import { Comparison } from "@/features/diagnostics/panels/Comparison";
import type { Diagnosis } from "@/features/diagnostics/documents";
import { Multiples } from "@/features/diagnostics/panels/Multiples";
import {
  between,
  useClusters,
  useDiagnosis,
  WorkloadContext,
} from "@/features/diagnostics/queries";
import {
  change,
  fromAddress,
  NO_BRUSH,
  toAddress,
  useChosen,
  usePicked,
} from "@/features/diagnostics/store";
import { Summary } from "@/features/diagnostics/Summary";
import { TimelinePanel } from "@/features/diagnostics/panels/TimelinePanel";
import { Waiting } from "@/features/diagnostics/Waiting";
import { counted } from "@/features/diagnostics/words";
import { useWorkloadBoard } from "@/features/diagnostics/workloadRules";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/diagnostics/Diagnostics.module.css";
import partStyles from "@/features/diagnostics/parts.module.css";
import { diagnosticsTexts as texts } from "@/texts";

/** One workload: what is wrong, on which GPU, since when, and what to try. */
export function Diagnostics({
  workload,
  catalogue,
  RuleBar,
  top,
}: {
  workload: string;
  catalogue: Catalogue;
  RuleBar: RuleBarComponent;
  /** What is known of the workload without its samples, shown at once. */
  top: ReactNode;
}) {
  useEffect(() => {
    change(fromAddress(location.search));
    const stop = useChosen.subscribe((chosen) =>
      history.replaceState(null, "", withPrefix(toAddress(workload, chosen))),
    );
    return () => {
      stop();
      change(fromAddress(""));
    };
  }, [workload]);
  const [cancelled, setCancelled] = useState(false);
  const client = useQueryClient();
  const diagnosis = useDiagnosis(workload, null, workload !== "" && !cancelled, true);
  const running = diagnosis.data?.workload.state === "running";
  const context = useMemo(() => ({ workload, running }), [workload, running]);
  return (
    <WorkloadContext.Provider value={context}>
      <div className={styles["page"]}>
        <PageHead />
        <main className={styles["diagnostics"]}>
          <Head workload={workload} diagnosis={diagnosis.data} running={running} />
          <Suspense fallback={null}>{top}</Suspense>
          {workload === "" && (
            <Notice title={texts.noWorkloadSelected} text={texts.chooseOneOnTheOverviewAnd} />
          )}
          {diagnosis.isError && (
            <Notice title={errorTitle(diagnosis.error)} text={diagnosis.error.message} />
          )}
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
            <Notice title={texts.cancelled} text={texts.theDiagnosisWasStopped}>
              <button type="button" className={ui["button"]} onClick={() => setCancelled(false)}>
                {texts.tryAgain}
              </button>
            </Notice>
          )}
          {diagnosis.data && (
            <Body diagnosis={diagnosis.data} catalogue={catalogue} RuleBar={RuleBar} />
          )}
        </main>
      </div>
    </WorkloadContext.Provider>
  );
}

function errorTitle(error: Error): string {
  return error instanceof ApiError && error.status === 404
    ? texts.workloadNotFound
    : texts.thisWorkloadCannotBeDiagnosed;
}

function Notice({ title, text, children }: { title: string; text: string; children?: ReactNode }) {
  return (
    <section className={partStyles["notice"]} role="alert" data-testid="notice">
      <h2>{title}</h2>
      <p>{text}</p>
      {children && <p>{children}</p>}
      <p>
        <PageLink href="/">{texts.goToTheOverview}</PageLink>
      </p>
    </section>
  );
}

function Head({
  workload,
  diagnosis,
  running,
}: {
  workload: string;
  diagnosis: Diagnosis | undefined;
  running: boolean;
}) {
  const { held, window: span } = usePicked("held", "window");
  return (
    <header className={styles["diagnostics-head"]}>
      <h1>
        {diagnosis?.workload.name || workload || texts.diagnostics}{" "}
        {diagnosis?.workload.name && <small>{workload}</small>}
      </h1>
      <span className={pageStyles["spring"]} />
      {span && (
        <button
          type="button"
          className={ui["button"]}
          data-testid="window"
          onClick={() => change({ window: null, view: null, ...NO_BRUSH })}
        >
          {formatTime(span[0])} – {formatTime(span[1])} ✕
        </button>
      )}
      {running && (
        <IconButton
          icon={held ? "play" : "pause"}
          label={held ? texts.resume : texts.pause}
          onClick={() => change({ held: !held })}
        />
      )}
      {diagnosis && (
        <>
          <PageLink className={ui["button"]} href={tracesAddress(workload)}>
            {texts.traces}
          </PageLink>
          <a
            className={ui["button"]}
            href={reportAddress(workload, span, "html")}
            download={`diagnosis-${safeName(workload)}.html`}
            title={span ? texts.reportForThisWindow : texts.reportForTheEntireRun}
          >
            {texts.report}
          </a>
          <a
            className={ui["button"]}
            href={reportAddress(workload, span, "markdown")}
            download={`diagnosis-${safeName(workload)}.md`}
          >
            {texts.markdown}
          </a>
        </>
      )}
    </header>
  );
}

/** The report of what is being looked at: the brushed window, else the whole life. */
function reportAddress(workload: string, span: Span | null, format: "html" | "markdown"): string {
  const query = new URLSearchParams({ workload, format });
  for (const [name, value] of Object.entries(between(span))) query.set(name, String(value));
  return withPrefix(inCluster(`/api/v1/diagnosis/report?${query.toString()}`));
}

function safeName(text: string): string {
  return text.replace(/[^\w.-]+/g, "_").slice(0, 60);
}

function Body({
  diagnosis,
  catalogue,
  RuleBar,
}: {
  diagnosis: Diagnosis;
  catalogue: Catalogue;
  RuleBar: RuleBarComponent;
}) {
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
        {diagnosis.workload.gpus.length > 0 && (
          <Notice title={texts.noSamples} text={texts.thereAreNoSamplesOfThis} />
        )}
      </>
    );
  return (
    <>
      <RuleBar
        board={board}
        lenses={lenses}
        onLenses={(next) => change({ lenses: next })}
        lit={litRule}
        onLight={(field) => change({ litRule: field })}
        page={page}
        onPage={setPage}
      />
      <Summary diagnosis={diagnosis} board={board} />
      {diagnosis.window.samples < 2 && (
        <p className={partStyles["hint"]} data-testid="one-sample">
          {texts.onlyOneSampleSoFarPlots}
        </p>
      )}
      {diagnosis.workload.gpus.length === 1 && (
        <p className={partStyles["hint"]} data-testid="one-gpu">
          {texts.thisWorkloadHasOnlyOneGpu}
        </p>
      )}
      {diagnosis.window.samples >= 2 && (
        <Parts diagnosis={diagnosis} metrics={metrics} board={board} />
      )}
    </>
  );
}

function Parts({
  diagnosis,
  metrics: all,
  board,
}: {
  diagnosis: Diagnosis;
  metrics: Catalogue["metrics"];
  board: RuleBoard;
}) {
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
      {clusters.isError && (
        <p className={partStyles["hint"]} role="alert">
          {clusters.error.message}
        </p>
      )}
      <section
        className={partStyles["part"]}
        aria-label={texts.gpus}
        data-testid="gpus-part"
        data-busy={clusters.isFetching ? "1" : "0"}
      >
        {!known && !clusters.isError && (
          <p className={ui["muted"]} role="status">
            {texts.groupingGpusBySimilarity}
          </p>
        )}
        {known && <ClusterPanel clusters={known} numbers={numbers} metrics={metrics} />}
        {known && known.gpus.length > 0 && (
          <Multiples clusters={known} numbers={numbers} board={board} />
        )}
        {known && known.gpus.length === 0 && (
          <p className={partStyles["hint"]}>{texts.noSamplesOfThisMetricIn}</p>
        )}
        {known && (
          <p className={ui["muted"]} role="status">
            {clusters.isPlaceholderData ? texts.loading : ""}
            {counted(known.gpus.length, "gpu")}, {counted(known.moments, "sample")}
            {known.approximate ? texts.clustersAreApproximateAbove8192 : ""}.
          </p>
        )}
      </section>
      <div className={styles["pair-of-parts"]}>
        <TimelinePanel diagnosis={diagnosis} clusters={known} numbers={numbers} metrics={all} />
        <Bivariate numbers={numbers} metrics={metrics} />
      </div>
      <Comparison diagnosis={diagnosis} />
    </>
  );
}
