import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { navigate } from "@/base/router";
import { inCluster } from "@/api/chosen";
import { IconButton, Select, Toggle } from "@/base/ui/controls";
import type { FlowMetric, ShownFlow, ShownNode } from "@/charts/flow/visible";
import { measureNode, searchNodes, showFlow, listOpened } from "@/charts/flow/visible";
import { formatNs } from "@/charts/marey/window";
import type { Flow, RunDetail } from "@/features/traces/documents";
import { Attributes, slowestRank } from "@/features/traces/flow/Attributes";
import { FlowLegend } from "@/features/traces/flow/FlowLegend";
import { FlowPicture } from "@/features/traces/flow/FlowPicture";
import { useLayout } from "@/features/traces/flow/useLayout";
import { useFlow } from "@/features/traces/queries";
import { Gone } from "@/features/traces/run/Run";
import { RunFrame } from "@/features/traces/RunFrame";
import { RunHead } from "@/features/traces/RunHead";
import {
  clauseValue,
  firstNumber,
  listNames,
  quoteValue,
  withClause,
} from "@/features/traces/selection";
import { formatBytes, shorten, stepLabel } from "@/features/traces/words";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import mareyStyles from "@/features/traces/marey/Marey.module.css";
import styles from "@/features/traces/flow/Flow.module.css";
import { tracesTexts as texts } from "@/texts";

const METRICS: { value: FlowMetric; label: string }[] = [
  { value: "time", label: texts.time },
  { value: "wait", label: texts.waiting },
  { value: "blame", label: texts.blame },
  { value: "spread", label: texts.spreadOverRanks },
  { value: "memory", label: texts.memory },
];

/** The model as a graph, in the order in which it is executed. */
export function FlowPage() {
  return (
    <RunFrame
      className={mareyStyles["page"]}
      show={(id, detail, search) => <Loaded key={id} detail={detail} search={search} />}
    />
  );
}

function Loaded({ detail, search }: { detail: RunDetail; search: URLSearchParams }) {
  const where = search.get("where") ?? "";
  const asked = Number(search.get("step") ?? firstNumber(where, "step") ?? NaN);
  const step = Number.isInteger(asked) ? asked : detail.first_step;
  const flow = useFlow(detail.run.id, step, "");
  if (flow.isError) return <Gone message={flow.error.message} run={detail.run.id} />;
  if (!flow.data)
    return (
      <p className={pageStyles["page-notice"]} role="status">
        {texts.loading}
      </p>
    );
  if (flow.data.nodes.length === 0) return <Gone message={texts.noFlow} />;
  return <View detail={detail} document={flow.data} where={where} />;
}

function View({
  detail,
  document: flow,
  where,
}: {
  detail: RunDetail;
  document: Flow;
  where: string;
}) {
  const go = useCallback((change: Record<string, readonly string[]>) => {
    const query = new URLSearchParams(location.search);
    for (const [key, values] of Object.entries(change)) {
      query.delete(key);
      for (const value of values) if (value) query.append(key, value);
    }
    navigate(inCluster(`/traces/flow?${query.toString()}`), { replace: true });
  }, []);
  const look = useLook(flow, go);
  const { open, unstacked, byBatch, quiet, metric } = look;
  const [text, setText] = useState("");
  const [selected, setSelected] = useState(-1);
  const shown = useMemo(
    () =>
      showFlow(flow.nodes, flow.edges, flow.stacks, {
        open,
        unstacked,
        lanesByMicroBatch: byBatch,
      }),
    [flow, open, unstacked, byBatch],
  );
  const made = useLayout(shown);
  const found = useMemo(() => searchNodes(made?.flow.nodes ?? [], text), [made, text]);
  const rank = firstNumber(where, "rank");
  const stage = detail.ranks.find((one) => one.rank === rank)?.stage ?? null;
  const at = useMemo(
    () => (made ? findSelected(flow, made.flow, where, stage) : -1),
    [flow, made, where, stage],
  );
  const chosen = selected >= 0 && selected < (made?.flow.nodes.length ?? 0) ? selected : at;
  useEffect(() => setSelected(-1), [made]);
  const choose = (index: number) => {
    setSelected(index);
    const node = made?.flow.nodes[index];
    if (!node) return;
    const first = node.members[0];
    let next = withClause(where, "name", node.opens ? null : quoteValue(first.name));
    next = withClause(next, "operator", node.opens ? null : String(first.operator));
    next = withClause(next, "module", node.opens ? quoteValue(node.label) : null);
    go({ where: [withClause(next, "rank", slowestRank(node))] });
  };
  const toggle = (index: number) => {
    const node = made?.flow.nodes[index];
    if (node) look.toggle(node);
  };
  return (
    <>
      <section className={mareyStyles["top"]} aria-label={shorten(detail.run.name, 70)}>
        <RunHead detail={detail} view="flow" step={flow.step} where={where} />
        <div className={mareyStyles["tools"]}>
          <Select
            label={texts.step}
            value={String(flow.step)}
            options={detail.steps.map((one) => ({
              value: String(one.step),
              label: stepLabel(one),
            }))}
            onChange={(step) => go({ step: [step] })}
          />
          <Select
            label={texts.colourBy}
            value={metric}
            options={METRICS}
            onChange={(value) => look.setMetric(value as FlowMetric)}
          />
          <div className={styles["found"]}>
            <label className={ui["field"]}>
              <span>{texts.search}</span>
              <input type="text" value={text} onChange={(event) => setText(event.target.value)} />
            </label>
            <IconButton
              icon="right"
              label={texts.nextFound}
              disabled={found.length === 0}
              onClick={() => choose(found[(found.indexOf(chosen) + 1) % found.length])}
            />
            <span role="status">{text && texts.foundCount(found.length)}</span>
          </div>
          <Toggle label={texts.lanesByMicroBatch} checked={byBatch} onChange={look.setByBatch} />
          <Toggle label={texts.longEdges} checked={quiet} onChange={look.setQuiet} />
          <button
            className={ui["button"]}
            type="button"
            disabled={open.size === 0 && unstacked.size === 0}
            onClick={look.close}
          >
            {texts.closeAll}
          </button>
        </div>
        <FlowLegend most={formatMost(shown.nodes, metric)} />
      </section>
      <main className={styles["main"]}>
        {made ? (
          <FlowPicture
            {...made}
            metric={metric}
            selected={chosen}
            found={found}
            showQuiet={quiet}
            name={`${detail.run.name}-flow-${flow.step}`}
            onChoose={choose}
            onToggle={toggle}
          />
        ) : (
          <p role="status">{texts.arranging}</p>
        )}
        <aside className={styles["side"]} aria-label={texts.attributes} tabIndex={0}>
          {made && chosen >= 0 ? (
            <Attributes
              node={made.flow.nodes[chosen]}
              run={detail.run.id}
              step={flow.step}
              where={where}
              onToggle={() => toggle(chosen)}
            />
          ) : (
            <p className={ui["muted"]}>{texts.flowHint(shown.nodes.length, flow.nodes.length)}</p>
          )}
          {flow.notes.slice(0, 8).map((note, i) => (
            <p key={i} className={ui["muted"]}>
              {shorten(note, 300)}
            </p>
          ))}
        </aside>
      </main>
    </>
  );
}

/** The largest value that colours a node, in words. */
function formatMost(nodes: readonly ShownNode[], metric: FlowMetric): string {
  const most = nodes.reduce((most, node) => Math.max(most, measureNode(node, metric)), 0);
  if (metric === "memory") return formatBytes(most);
  return formatNs(most * (metric === "blame" ? 1e9 : 1e6));
}

/** Opened namespaces and stacks that an address keeps; more of them stay open, but are not in the link. */
const MOST_KEPT = 60;

/** How the flow is looked at: what is open, the lanes, the colour. The address keeps it for whoever gets the link. */
function useLook(flow: Flow, go: (change: Record<string, readonly string[]>) => void) {
  const [first] = useState(() => new URLSearchParams(location.search));
  const [open, setOpen] = useState<ReadonlySet<string>>(() => new Set(first.getAll("open")));
  const [unstacked, setUnstacked] = useState<ReadonlySet<number>>(
    () => new Set(first.getAll("stack").map(Number)),
  );
  const [byBatch, setByBatch] = useState(() =>
    first.has("lanes") ? first.get("lanes") === "1" : hasFewBatches(flow),
  );
  const [quiet, setQuiet] = useState(first.get("long") === "1");
  const [metric, setMetric] = useState<FlowMetric>(
    () => METRICS.find(({ value }) => value === first.get("colour"))?.value ?? "time",
  );
  const touched = useRef(false);
  useEffect(() => {
    if (!touched.current) {
      touched.current = true;
      return;
    }
    go({
      open: [...open].slice(0, MOST_KEPT),
      stack: [...unstacked].slice(0, MOST_KEPT).map(String),
      lanes: byBatch === hasFewBatches(flow) ? [] : [byBatch ? "1" : "0"],
      long: quiet ? ["1"] : [],
      colour: metric === "time" ? [] : [metric],
    });
  }, [flow, open, unstacked, byBatch, quiet, metric, go]);
  const toggle = (node: ShownNode) => {
    if (node.opens) setOpen(new Set([...open, ...listOpened(node)]));
    else if (node.copies > 1)
      setUnstacked(new Set([...unstacked, ...node.members.map(({ stack }) => stack)]));
  };
  const close = () => {
    setOpen(new Set());
    setUnstacked(new Set());
  };
  return {
    ...{ open, unstacked, byBatch, quiet, metric },
    setByBatch,
    setQuiet,
    setMetric,
    toggle,
    close,
  };
}

const MOST_LANES = 40;

/** Whether a lane per micro-batch is a picture that can be read. */
function hasFewBatches({ nodes }: Flow): boolean {
  const lanes = new Set(nodes.map((node) => `${node.stage} ${node.micro_batch}`));
  return nodes.some((node) => node.micro_batch > 0) && lanes.size <= MOST_LANES;
}

/**
 * The node on the screen that a selection means: that of its operator, its name or its module, first in the stage of
 * its rank; of several the one that is to blame for most, then the one that takes longest.
 */
function findSelected(
  document: Flow,
  flow: ShownFlow,
  where: string,
  stage: number | null,
): number {
  if (!where) return -1;
  const operator = firstNumber(where, "operator");
  const names = new Set(listNames(clauseValue(where, "name")));
  const [module] = listNames(clauseValue(where, "module"));
  const matches: ((one: Flow["nodes"][number]) => boolean)[] = [];
  if (operator !== null) matches.push((one) => one.operator === operator);
  if (names.size > 0) matches.push((one) => names.has(one.name));
  if (module !== undefined) matches.push((one) => one.module.startsWith(module));
  const weigh = (node: number) => [
    measureNode(flow.nodes[node], "blame"),
    measureNode(flow.nodes[node], "time"),
  ];
  for (const match of matches) {
    const all = document.nodes.filter(match);
    const near = all.filter((one) => one.stage === stage);
    const places = new Set(
      (near.length > 0 ? near : all).map(({ id }) => flow.places.get(id) ?? -1),
    );
    places.delete(-1);
    if (places.size === 0) continue;
    return [...places].reduce((a, b) => {
      const [[blameA, timeA], [blameB, timeB]] = [weigh(a), weigh(b)];
      return blameB > blameA || (blameB === blameA && timeB > timeA) ? b : a;
    });
  }
  return -1;
}
