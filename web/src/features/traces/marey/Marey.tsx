import { useCallback, useMemo, useState } from "react";
import { navigate } from "@/base/router";
import { inCluster } from "@/api/chosen";
import { traceAddress } from "@/base/addresses";
import { formatValue } from "@/base/format";
import { useTheme } from "@/base/theme";
import { Choice, IconButton, Popover, Select, Toggle } from "@/base/ui/controls";
import { Icon } from "@/base/ui/Icon";
import { PageLink } from "@/base/ui/PageLink";
import { kindColour, KINDS } from "@/charts/marey/kinds";
import { formatNs } from "@/charts/marey/window";
import type { RunDetail, ViewRow, ViewRows } from "@/features/traces/documents";
import { KIND_WORDS } from "@/features/traces/marey/kindWords";
import { makeRows } from "@/charts/marey/ranks";
import type { DescribedBands } from "@/charts/marey/decode";
import { useMemoryLines, useStage } from "@/features/traces/marey/useStage";
import { VisibleTable } from "@/features/traces/marey/VisibleTable";
import { useRows } from "@/features/traces/queries";
import { Gone } from "@/features/traces/run/Run";
import { RunFrame } from "@/features/traces/RunFrame";
import { RunHead } from "@/features/traces/RunHead";
import { saveFile } from "@/features/traces/saving";
import { firstNumber, parseClauses } from "@/features/traces/selection";
import { WhatIf } from "@/features/traces/whatif/WhatIf";
import { formatBytes, shorten, stepLabel } from "@/features/traces/words";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/traces/marey/Marey.module.css";
import { tracesTexts as texts, whatIfTexts } from "@/texts";

const ORDERS = [
  { value: "stage", label: texts.orderStage },
  { value: "host", label: texts.orderHost },
  { value: "lateness", label: texts.orderLateness },
  { value: "cluster", label: texts.orderCluster },
] as const;
/** Fewer ranks than this are shown one by one. */
const GROUPED_FROM = 24;

/** A step of a run: every rank a row, every operator a band through the rows. */
export function Marey() {
  return (
    <RunFrame
      className={styles["page"]}
      show={(id, detail, search) => <Loaded key={id} detail={detail} search={search} />}
    />
  );
}

function Loaded({ detail, search }: { detail: RunDetail; search: URLSearchParams }) {
  const where = search.get("where") ?? "";
  const asked = Number(search.get("step") ?? firstNumber(where, "step") ?? NaN);
  const step = Number.isInteger(asked) ? asked : detail.first_step;
  const order = search.get("order") ?? "stage";
  const last = Number(search.get("through") ?? NaN);
  const through = step !== null && Number.isInteger(last) && last > step ? last : null;
  const rows = useRows(detail.run.id, step, through, order);
  if (rows.isError) return <Gone message={rows.error.message} run={detail.run.id} />;
  if (!rows.data) return <p role="status">{texts.loading}</p>;
  if (rows.data.end_ns - rows.data.start_ns <= 1) return <Untimed detail={detail} />;
  return <View detail={detail} rows={rows.data} order={order} where={where} search={search} />;
}

/** What stands in place of the view where nothing has a time: a graph or a strategy alone. */
function Untimed({ detail }: { detail: RunDetail }) {
  return (
    <section className={styles["top"]}>
      <RunHead detail={detail} view="marey" />
      <div className={pageStyles["page-notice"]} role="status" data-testid="untimed">
        <p>{texts.noTimes}</p>
        <PageLink className={ui["button"]} href={traceAddress("flow", detail.run.id)}>
          {texts.executionFlow}
        </PageLink>
      </div>
    </section>
  );
}

/** Everything but the drawing: what is shown, chosen and told. */
function View({
  detail,
  rows,
  order,
  where,
  search,
}: {
  detail: RunDetail;
  rows: ViewRows;
  order: string;
  where: string;
  search: URLSearchParams;
}) {
  const run = detail.run.id;
  const { step } = rows;
  const grouped = (search.get("grouped") ?? (rows.rows.length >= GROUPED_FROM ? "1" : "0")) === "1";
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const panel = search.get("panel") === "what-if";
  const [table, setTable] = useState(false);
  const [memory, setMemory] = useState(false);
  const clockErrorNs = rows.clock_error_us * 1e3;
  // The rank that the link asks for: it keeps its own row while one looks around.
  const [asked] = useState(() => firstNumber(where, "rank"));
  const made = useMemo(
    () => makeRows(rows.rows, { order, grouped, open, clockErrorNs, asked }, ROW_WORDS),
    [rows, order, grouped, open, clockErrorNs, asked],
  );
  const go = useCallback((change: Record<string, string | number | null>) => {
    const query = new URLSearchParams(location.search);
    for (const [key, value] of Object.entries(change))
      if (value === null || value === "") query.delete(key);
      else query.set(key, String(value));
    navigate(inCluster(`/traces/marey?${query.toString()}`), { replace: true });
  }, []);
  const view = useStage({ run, order, made, rows, where, go, setOpen });
  useMemoryLines(view.stage, run, rows, made, memory);
  const lastStep = rows.steps[rows.steps.length - 1];
  const save = (kind: "png" | "svg") => {
    const name = `${detail.run.name}-step-${step}.${kind}`;
    if (!view.stage) return;
    if (kind === "svg") saveFile(view.stage.svg(name), "image/svg+xml", name);
    else view.stage.compose().toBlob((blob) => blob && saveFile(blob, "image/png", name));
  };
  return (
    <>
      <section className={styles["top"]} aria-label={shorten(detail.run.name, 70)}>
        <RunHead detail={detail} view="marey" step={step} where={where} />
        <div className={styles["tools"]}>
          <Select
            label={texts.step}
            value={String(step)}
            options={detail.steps.map((one) => ({
              value: String(one.step),
              label: stepLabel(one),
            }))}
            onChange={(value) => go({ step: value, through: null, from: null, to: null })}
          />
          {detail.steps.length > 1 && (
            <Select
              label={texts.throughStep}
              value={String(lastStep)}
              options={listLastSteps(detail, step)}
              onChange={(value) =>
                go({ through: Number(value) > step ? value : null, from: null, to: null })
              }
            />
          )}
          <Select
            label={texts.order}
            value={order}
            options={[...ORDERS]}
            onChange={(value) => go({ order: value })}
          />
          <Choice
            label={texts.rowsShown}
            value={grouped ? "1" : "0"}
            options={[
              { value: "1", label: texts.alikeTogether },
              { value: "0", label: texts.everyRank },
            ]}
            onChange={(value) => go({ grouped: value })}
          />
          {(view.stage?.largestBatch ?? -1) >= 0 && (
            <Select
              label={texts.followed}
              value={String(view.stage?.followed ?? -1)}
              options={listBatches(view.stage?.largestBatch ?? -1)}
              onChange={(value) => view.follow(Number(value))}
            />
          )}
          <Toggle label={texts.memoryLine} checked={memory} onChange={setMemory} />
          <Toggle label={texts.table} checked={table} onChange={setTable} />
          <Toggle
            label={whatIfTexts.whatIf}
            checked={panel}
            onChange={(open) => go({ panel: open ? "what-if" : null })}
          />
          <span className={pageStyles["spring"]} />
          <IconButton icon="minus" label={texts.zoomOut} onClick={() => view.stage?.zoom(1.6)} />
          <IconButton icon="plus" label={texts.zoomIn} onClick={() => view.stage?.zoom(0.6)} />
          <IconButton
            icon="fit"
            label={texts.wholeStep}
            onClick={() => view.stage?.setWindow(view.stage.limits, true)}
          />
          <IconButton icon="back" label={texts.back} onClick={() => view.stage?.back()} />
          <button className={ui["button"]} type="button" onClick={() => save("png")}>
            <Icon name="download" /> {texts.png}
          </button>
          <button className={ui["button"]} type="button" onClick={() => save("svg")}>
            <Icon name="download" /> {texts.svg}
          </button>
          <Popover
            label={texts.keyboard}
            align="end"
            trigger={
              <button className={ui["button"]} type="button">
                {texts.keyboard}
              </button>
            }
          >
            <Keys />
          </Popover>
        </div>
        <Legend />
      </section>
      <div className={styles["body"]} data-panel={panel || undefined}>
        <main className={styles["main"]}>
          <div
            ref={view.host}
            className={styles["view"]}
            role="application"
            tabIndex={0}
            aria-label={texts.mareyLabel(rows.steps, rows.rows.length)}
            aria-describedby="marey-said"
            data-testid="marey"
            data-rows={made.length}
            data-loaded={view.stage?.isLoaded ?? false}
            onKeyDown={view.onKey}
            {...view.pointer}
          >
            <canvas aria-hidden="true" />
            <canvas aria-hidden="true" />
          </div>
          <div id="marey-said" className={styles["said"]} role="status" data-testid="marey-said">
            <Said view={view} where={where} rows={rows} go={go} />
          </div>
          {table && (
            <div className={styles["table"]} tabIndex={0} role="region" aria-label={texts.table}>
              <VisibleTable stage={view.stage} turn={view.turn} onChoose={view.choose} />
            </div>
          )}
        </main>
        {panel && (
          <WhatIf
            run={run}
            text={search.get("if") ?? ""}
            onChange={(text) => go({ if: text })}
            onClose={() => go({ panel: null, if: null })}
          />
        )}
      </div>
    </>
  );
}

/** The step that the axis of time ends with: this one, or a later one. */
function listLastSteps(detail: RunDetail, step: number): { value: string; label: string }[] {
  return detail.steps
    .filter((one) => one.step >= step)
    .map((one) => ({
      value: String(one.step),
      label: one.step === step ? texts.thisStepOnly : String(one.step),
    }));
}

const MOST_BATCHES = 1024;

/** The micro-batches that can be followed, after "all". */
function listBatches(largest: number): { value: string; label: string }[] {
  const count = Math.min(MOST_BATCHES, largest + 1);
  const numbers = Array.from({ length: count }, (_, batch) => String(batch));
  return [
    { value: "-1", label: texts.followNone },
    ...numbers.map((value) => ({ value, label: value })),
  ];
}

const ROW_WORDS = {
  stage: texts.stageRow,
  host: (host: string) => host || texts.unknownHost,
  like: texts.likeRank,
  rank: texts.rankRow,
  missing: texts.missingRank,
  stream: texts.streamRow,
  aside: (row: ViewRow) =>
    [
      row.flops ? formatValue(row.flops, "FLOP/s") : "",
      row.peak_memory_bytes ? formatBytes(row.peak_memory_bytes) : "",
    ]
      .filter(Boolean)
      .join(" · "),
};

/** What the pointer or the keyboard is at, in words. */
function Said({
  view,
  where,
  rows,
  go,
}: {
  view: ReturnType<typeof useStage>;
  where: string;
  rows: ViewRows;
  go: (change: Record<string, string | number | null>) => void;
}) {
  const { stage, error } = view;
  if (error) return <span role="alert">{error}</span>;
  if (!stage) return null;
  const bands = stage.bands as DescribedBands | null;
  const at = stage.selectedInterval();
  const row = stage.layout.rows[stage.focusRow];
  const member = rows.rows.find((one) => one.rank === row?.rank);
  const span = stage.window.toNs - stage.window.fromNs;
  const asked = firstNumber(where, "rank");
  const problem =
    parseClauses(where) === null
      ? texts.selectionUnread
      : asked !== null && !rows.rows.some((one) => one.rank === asked)
        ? texts.rankNotHere(asked)
        : "";
  return (
    <>
      {bands && at >= 0 && row && (
        <b data-testid="marey-selected">
          {texts.intervalSaid(
            row.label,
            shorten(bands.nameOf(at), 80),
            formatNs(bands.intervals.endNs[at] - bands.intervals.startNs[at]),
            formatNs(bands.intervals.startNs[at]),
          )}
          {bands.module(at) && ` · ${shorten(bands.module(at), 80)}`}
          {bands.microBatch[at] >= 0 && ` · ${texts.microBatch(bands.microBatch[at])}`}
          {bands.confidence(at) < 1 &&
            ` · ${texts.matchedByRepair(Math.round(bands.confidence(at) * 100))}`}
        </b>
      )}
      {bands && at >= 0 && bands.microBatch[at] >= 0 && (
        <FollowButton view={view} batch={bands.microBatch[at]} />
      )}
      {row && at < 0 && <b>{row.label}</b>}
      {member && (
        <span>
          {texts.rowSaid(
            member.host ?? "",
            formatNs((member.lateness_us ?? 0) * 1e3),
            Math.round((member.busy ?? 0) * 100),
          )}
        </span>
      )}
      <span className={ui["muted"]}>
        {texts.windowSaid(
          formatNs(stage.window.fromNs),
          formatNs(stage.window.toNs),
          formatNs(span),
        )}{" "}
        {texts.clockSaid(formatNs(rows.clock_error_us * 1e3))}
        {bands && bands.leftOut > 0 && ` ${texts.leftOut(bands.leftOut)}`}
        {stage.loading > 0 && ` ${texts.loading}`}
      </span>
      {where && (
        <span>
          {problem && <b>{problem} </b>}
          <code data-testid="marey-where">{shorten(where, 200)}</code>{" "}
          <button className={ui["link"]} type="button" onClick={() => go({ where: null })}>
            {texts.clear}
          </button>
        </span>
      )}
    </>
  );
}

/** Follow the micro-batch of what is selected, or stop. */
function FollowButton({ view, batch }: { view: ReturnType<typeof useStage>; batch: number }) {
  const follows = view.stage?.followed === batch;
  return (
    <button className={ui["link"]} type="button" onClick={() => view.follow(follows ? -1 : batch)}>
      {follows ? texts.stopFollowing : texts.followBatch(batch)}
    </button>
  );
}

function Legend() {
  const theme = useTheme((state) => state.theme);
  return (
    <div className={styles["legend"]}>
      {KINDS.slice(1).map((kind) => (
        <span key={kind} data-kind={kind}>
          <i style={{ background: kindColour(theme, kind) }} />
          {KIND_WORDS[kind]}
        </span>
      ))}
      <span>{texts.greySlant}</span>
    </div>
  );
}

function Keys() {
  return (
    <dl className={styles["keys"]}>
      {texts.keys.map(([key, what]) => (
        <div key={key} style={{ display: "contents" }}>
          <dt>{key}</dt>
          <dd>{what}</dd>
        </div>
      ))}
    </dl>
  );
}
