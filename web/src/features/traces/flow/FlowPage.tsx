import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { navigate, useSearch } from "@/base/router";
import { inCluster } from "@/api/chosen";
import { traceAddress } from "@/base/addresses";
import { useTheme } from "@/base/theme";
import { IconButton, Select, Toggle } from "@/base/ui/controls";
import { PageHead } from "@/base/ui/PageHead";
import type { FlowCamera } from "@/charts/flow/draw";
import { drawFlow, drawMinimap, fitCamera, minimapScale, nodeAt } from "@/charts/flow/draw";
import type { FlowLayout } from "@/charts/flow/layout";
import type { FlowMetric, ShownFlow, ShownNode } from "@/charts/flow/visible";
import { measureNode, searchNodes, showFlow, listOpened } from "@/charts/flow/visible";
import { makePalette } from "@/charts/marey/kinds";
import { formatNs } from "@/charts/marey/window";
import type { Flow, RunDetail } from "@/features/traces/documents";
import { Attributes, slowestRank } from "@/features/traces/flow/Attributes";
import { useLayout } from "@/features/traces/flow/useLayout";
import { useFlow, useRun } from "@/features/traces/queries";
import { Gone, Unready } from "@/features/traces/run/Run";
import { RunHead } from "@/features/traces/RunHead";
import {
  clauseValue,
  firstNumber,
  listNames,
  quoteValue,
  withClause,
} from "@/features/traces/selection";
import { shorten } from "@/features/traces/words";
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
  const search = new URLSearchParams(useSearch());
  const id = search.get("id") ?? "";
  const detail = useRun(id);
  const message = detail.isError ? detail.error.message : id === "" ? texts.noRunChosen : "";
  const ready = detail.data && detail.data.run.state === "ready" && !detail.isError;
  return (
    <div className={mareyStyles["page"]}>
      <PageHead />
      {message && <Gone message={message} />}
      {!message && detail.data && !ready && <Unready run={detail.data.run} />}
      {!message && !detail.data && (
        <p className={pageStyles["page-notice"]} role="status">
          {texts.loading}
        </p>
      )}
      {ready && <Loaded key={id} detail={detail.data} search={search} />}
    </div>
  );
}

function Loaded({ detail, search }: { detail: RunDetail; search: URLSearchParams }) {
  const where = search.get("where") ?? "";
  const asked = Number(search.get("step") ?? firstNumber(where, "step") ?? NaN);
  const step = Number.isInteger(asked) ? asked : detail.first_step;
  const flow = useFlow(detail.run.id, step, "");
  if (flow.isError) return <Gone message={flow.error.message} />;
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
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const [unstacked, setUnstacked] = useState<ReadonlySet<number>>(new Set());
  const [byBatch, setByBatch] = useState(() => hasFewBatches(flow));
  const [quiet, setQuiet] = useState(false);
  const [metric, setMetric] = useState<FlowMetric>("time");
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
  const at = useMemo(() => findSelected(made?.flow ?? null, where), [made, where]);
  const chosen = selected >= 0 && selected < (made?.flow.nodes.length ?? 0) ? selected : at;
  useEffect(() => setSelected(-1), [made]);
  const go = (next: string) =>
    navigate(inCluster(traceAddress("flow", detail.run.id, { step: flow.step, where: next })), {
      replace: true,
    });
  const choose = (index: number) => {
    setSelected(index);
    const node = made?.flow.nodes[index];
    if (!node) return;
    const first = node.members[0];
    let next = withClause(where, "name", node.opens ? null : quoteValue(first.name));
    next = withClause(next, "operator", node.opens ? null : String(first.operator));
    next = withClause(next, "module", node.opens ? quoteValue(node.label) : null);
    go(withClause(next, "rank", slowestRank(node)));
  };
  const toggle = (index: number) => {
    const node = made?.flow.nodes[index];
    if (node?.opens) setOpen(new Set([...open, ...listOpened(node)]));
    else if (node && node.copies > 1)
      setUnstacked(new Set([...unstacked, ...node.members.map(({ stack }) => stack)]));
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
              label: `${one.step} (${formatNs(one.dur_ns)})`,
            }))}
            onChange={(step) =>
              navigate(inCluster(traceAddress("flow", detail.run.id, { step, where })), {
                replace: true,
              })
            }
          />
          <Select
            label={texts.colourBy}
            value={metric}
            options={METRICS}
            onChange={(value) => setMetric(value as FlowMetric)}
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
          <Toggle label={texts.lanesByMicroBatch} checked={byBatch} onChange={setByBatch} />
          <Toggle label={texts.longEdges} checked={quiet} onChange={setQuiet} />
          <button
            className={ui["button"]}
            type="button"
            disabled={open.size === 0 && unstacked.size === 0}
            onClick={() => {
              setOpen(new Set());
              setUnstacked(new Set());
            }}
          >
            {texts.closeAll}
          </button>
        </div>
      </section>
      <main className={styles["main"]}>
        {made ? (
          <Picture
            {...made}
            metric={metric}
            selected={chosen}
            found={found}
            showQuiet={quiet}
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

const MOST_LANES = 40;

/** Whether a lane per micro-batch is a picture that can be read. */
function hasFewBatches({ nodes }: Flow): boolean {
  const lanes = new Set(nodes.map((node) => `${node.stage} ${node.micro_batch}`));
  return nodes.some((node) => node.micro_batch > 0) && lanes.size <= MOST_LANES;
}

/** The node on the screen that a selection means: its operator, its name or its module. */
function findSelected(flow: ShownFlow | null, where: string): number {
  if (!flow || !where) return -1;
  const operator = firstNumber(where, "operator");
  const names = new Set(listNames(clauseValue(where, "name")));
  const [module] = listNames(clauseValue(where, "module"));
  const matches = [
    ...(operator === null
      ? []
      : [(node: ShownNode) => node.members.some((one) => one.operator === operator)]),
    ...(names.size === 0
      ? []
      : [(node: ShownNode) => node.members.some((one) => names.has(one.name))]),
    ...(module === undefined
      ? []
      : [(node: ShownNode) => node.members.some((one) => one.module.startsWith(module))]),
  ];
  for (const match of matches) {
    const found = flow.nodes.findIndex(match);
    if (found >= 0) return found;
  }
  return -1;
}

interface PictureProps {
  flow: ShownFlow;
  layout: FlowLayout;
  metric: FlowMetric;
  selected: number;
  found: readonly number[];
  showQuiet: boolean;
  onChoose: (node: number) => void;
  onToggle: (node: number) => void;
}

const MINIMAP = { width: 180, height: 90 };

/** The graph on a canvas, with a small one of the whole in the corner. */
function Picture(props: PictureProps) {
  const { flow, layout, selected, onChoose, onToggle } = props;
  const theme = useTheme((state) => state.theme);
  const host = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState({ width: 800, height: 500 });
  const [camera, setCamera] = useState<FlowCamera>(() => fitCamera(layout, 800, 500));
  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const measure = () => setSize({ width: element.clientWidth, height: element.clientHeight });
    const watch = new ResizeObserver(measure);
    watch.observe(element);
    measure();
    return () => watch.disconnect();
  }, []);
  useEffect(
    () => setCamera(fitCamera(layout, size.width, size.height)),
    [layout, size.width, size.height],
  );
  useEffect(() => {
    if (selected < 0) return;
    setCamera((now) => centre(now, layout, selected, size));
  }, [selected, layout, size]);
  useDrawing(host, props, camera, size, theme);
  const move = useMove(host, setCamera);
  const onKey = (event: React.KeyboardEvent) => {
    const by = 80 / camera.scale;
    const steps: Record<string, () => void> = {
      ArrowLeft: () => setCamera({ ...camera, x: camera.x - by }),
      ArrowRight: () => setCamera({ ...camera, x: camera.x + by }),
      ArrowUp: () => setCamera({ ...camera, y: camera.y - by }),
      ArrowDown: () => setCamera({ ...camera, y: camera.y + by }),
      "+": () => setCamera(zoomCamera(camera, 1.25, size.width / 2, size.height / 2)),
      "-": () => setCamera(zoomCamera(camera, 0.8, size.width / 2, size.height / 2)),
      "0": () => setCamera(fitCamera(layout, size.width, size.height)),
      n: () => onChoose((selected + 1) % flow.nodes.length),
      p: () => onChoose((selected - 1 + flow.nodes.length) % flow.nodes.length),
      Enter: () => selected >= 0 && onToggle(selected),
    };
    if (event.ctrlKey || event.metaKey || !(event.key in steps)) return;
    event.preventDefault();
    steps[event.key]();
  };
  const nodeOf = (event: React.MouseEvent) => {
    const box = event.currentTarget.getBoundingClientRect();
    return nodeAt(layout, camera, event.clientX - box.left, event.clientY - box.top);
  };
  return (
    <div
      ref={host}
      className={styles["view"]}
      role="application"
      tabIndex={0}
      aria-label={texts.flowLabel(flow.nodes.length)}
      data-testid="flow"
      data-nodes={flow.nodes.length}
      onKeyDown={onKey}
      onDoubleClick={(event) => {
        const node = nodeOf(event);
        if (node >= 0) onToggle(node);
      }}
      {...move((event) => {
        const node = nodeOf(event);
        if (node >= 0) onChoose(node);
      })}
    >
      <canvas aria-hidden="true" />
      <canvas
        aria-hidden="true"
        className={styles["minimap"]}
        onPointerDown={(event) => {
          event.stopPropagation();
          const box = event.currentTarget.getBoundingClientRect();
          const scale = minimapScale(layout, MINIMAP);
          setCamera({
            ...camera,
            x: (event.clientX - box.left) / scale - size.width / camera.scale / 2,
            y: (event.clientY - box.top) / scale - size.height / camera.scale / 2,
          });
        }}
      />
    </div>
  );
}

function centre(
  camera: FlowCamera,
  { x, y }: FlowLayout,
  node: number,
  { width, height }: { width: number; height: number },
): FlowCamera {
  const [left, top] = [(x[node] - camera.x) * camera.scale, (y[node] - camera.y) * camera.scale];
  if (left > 60 && left < width - 60 && top > 30 && top < height - 30) return camera;
  return {
    ...camera,
    x: x[node] - width / camera.scale / 2,
    y: y[node] - height / camera.scale / 2,
  };
}

function zoomCamera(camera: FlowCamera, factor: number, x: number, y: number): FlowCamera {
  const scale = Math.min(3, Math.max(0.03, camera.scale * factor));
  return {
    scale,
    x: camera.x + x / camera.scale - x / scale,
    y: camera.y + y / camera.scale - y / scale,
  };
}

function useDrawing(
  host: React.RefObject<HTMLDivElement | null>,
  { flow, layout, metric, selected, found, showQuiet }: PictureProps,
  camera: FlowCamera,
  { width, height }: { width: number; height: number },
  theme: "dark" | "light",
): void {
  const values = useMemo(
    () => Float64Array.from(flow.nodes, (node) => measureNode(node, metric)),
    [flow, metric],
  );
  useEffect(() => {
    const [large, small] = host.current?.querySelectorAll("canvas") ?? [];
    const [context, corner] = [large?.getContext("2d"), small?.getContext("2d")];
    if (!context || !corner) return;
    const ratio = devicePixelRatio || 1;
    for (const [canvas, w, h] of [
      [large, width, height],
      [small, MINIMAP.width, MINIMAP.height],
    ] as const) {
      canvas.width = w * ratio;
      canvas.height = h * ratio;
      canvas.getContext("2d")?.setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const drawing = {
      ...{ flow, layout, camera, width, height, theme, values, selected, showQuiet },
      palette: makePalette(theme),
      most: values.reduce((most, value) => Math.max(most, value), 0),
      found: new Set(found),
      laneLabel: (lane: number) => {
        const { stage, microBatch } = flow.lanes[lane] ?? { stage: 0, microBatch: -1 };
        if (microBatch < 0) return texts.stageRow(stage);
        const first = flow.lanes[lane - 1]?.stage !== stage;
        return first
          ? `${texts.stageRow(stage)} · ${texts.microBatch(microBatch)}`
          : texts.microBatch(microBatch);
      },
      nodeLabel: (node: number) => flow.nodes[node].label,
    };
    drawFlow(context, drawing);
    drawMinimap(corner, drawing, MINIMAP);
  }, [host, flow, layout, camera, width, height, theme, values, selected, found, showQuiet]);
}

/** Drag moves the plane, the wheel zooms it, a click without a drag is handed on. */
function useMove(
  host: React.RefObject<HTMLDivElement | null>,
  setCamera: (change: (camera: FlowCamera) => FlowCamera) => void,
) {
  const drag = useRef<{ x: number; y: number; moved: boolean } | null>(null);
  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const turn = (event: WheelEvent) => {
      event.preventDefault();
      const box = element.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      setCamera((camera) => zoomCamera(camera, Math.exp(-event.deltaY / 500), x, y));
    };
    element.addEventListener("wheel", turn, { passive: false });
    return () => element.removeEventListener("wheel", turn);
  }, [host, setCamera]);
  return useCallback(
    (onClick: (event: React.PointerEvent) => void) => ({
      onPointerDown: (event: React.PointerEvent) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        drag.current = { x: event.clientX, y: event.clientY, moved: false };
      },
      onPointerMove: (event: React.PointerEvent) => {
        const from = drag.current;
        if (!from) return;
        const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
        if (!from.moved && Math.abs(dx) + Math.abs(dy) < 4) return;
        drag.current = { x: event.clientX, y: event.clientY, moved: true };
        setCamera((camera) => ({
          ...camera,
          x: camera.x - dx / camera.scale,
          y: camera.y - dy / camera.scale,
        }));
      },
      onPointerUp: (event: React.PointerEvent) => {
        if (drag.current && !drag.current.moved) onClick(event);
        drag.current = null;
      },
    }),
    [setCamera],
  );
}
