/** The execution flow on a canvas that is moved and zoomed, with a small one of the whole in the corner. */

import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useTheme } from "@/base/theme";
import { IconButton } from "@/base/ui/controls";
import { Icon } from "@/base/ui/Icon";
import type { FlowCamera, FlowDrawing } from "@/charts/flow/draw";
import { drawFlow, drawMinimap, fitCamera, minimapScale, nodeAt } from "@/charts/flow/draw";
import type { FlowLayout } from "@/charts/flow/layout";
import { makeFlowSvg } from "@/charts/flow/svg";
import type { FlowMetric, ShownFlow, ShownNode } from "@/charts/flow/visible";
import { measureNode } from "@/charts/flow/visible";
import { makePalette, shortenKernel } from "@/charts/marey/kinds";
import { formatNs } from "@/charts/marey/window";
import { slowestRank } from "@/features/traces/flow/Attributes";
import { saveFile } from "@/features/traces/saving";
import { shorten } from "@/features/traces/words";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/traces/flow/Flow.module.css";
import { tracesTexts as texts } from "@/texts";

export interface PictureProps {
  flow: ShownFlow;
  layout: FlowLayout;
  metric: FlowMetric;
  selected: number;
  found: readonly number[];
  showQuiet: boolean;
  /** What it is called where it is saved. */
  name: string;
  onChoose: (node: number) => void;
  onToggle: (node: number) => void;
}

const MINIMAP = { width: 180, height: 90 };

/** The graph on a canvas, with a small one of the whole in the corner. */
export function FlowPicture(props: PictureProps) {
  const { flow, layout, selected, onChoose, onToggle } = props;
  const theme = useTheme((state) => state.theme);
  const host = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState({ width: 800, height: 500 });
  const [camera, setCamera] = useState<FlowCamera>(() => fitCamera(layout, 800, 500));
  const [hovered, setHovered] = useState<Hovered | null>(null);
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
  const drawing = useDrawing(host, props, camera, size, theme);
  const zoom = (factor: number) =>
    setCamera((now) => zoomCamera(now, factor, size.width / 2, size.height / 2));
  const fit = () => setCamera(fitCamera(layout, size.width, size.height));
  const move = useMove(host, setCamera);
  const onKey = (event: React.KeyboardEvent) => {
    const by = 80 / camera.scale;
    const steps: Record<string, () => void> = {
      ArrowLeft: () => setCamera({ ...camera, x: camera.x - by }),
      ArrowRight: () => setCamera({ ...camera, x: camera.x + by }),
      ArrowUp: () => setCamera({ ...camera, y: camera.y - by }),
      ArrowDown: () => setCamera({ ...camera, y: camera.y + by }),
      "+": () => zoom(1.25),
      "-": () => zoom(0.8),
      "0": fit,
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
  const handlers = move((event) => {
    const node = nodeOf(event);
    if (node >= 0) onChoose(node);
  });
  const hover = (event: React.PointerEvent) => {
    handlers.onPointerMove(event);
    const node = event.buttons > 0 ? -1 : nodeOf(event);
    if (node < 0) return setHovered(null);
    const box = event.currentTarget.getBoundingClientRect();
    setHovered({ node, x: event.clientX - box.left, y: event.clientY - box.top });
  };
  return (
    <div className={styles["frame"]}>
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
        {...handlers}
        onPointerMove={hover}
        onPointerLeave={() => setHovered(null)}
      >
        <canvas aria-hidden="true" />
        <canvas
          aria-hidden="true"
          className={styles["minimap"]}
          onPointerDown={(event) => {
            event.stopPropagation();
            const box = event.currentTarget.getBoundingClientRect();
            const [across, down] = minimapScale(layout, MINIMAP);
            setCamera({
              ...camera,
              x: (event.clientX - box.left) / across - size.width / camera.scale / 2,
              y: (event.clientY - box.top) / down - size.height / camera.scale / 2,
            });
          }}
        />
        {hovered && hovered.node < flow.nodes.length && (
          <Hint node={flow.nodes[hovered.node]} at={hovered} width={size.width} />
        )}
      </div>
      <div className={styles["buttons"]}>
        <IconButton icon="minus" label={texts.zoomOut} onClick={() => zoom(0.8)} />
        <IconButton icon="plus" label={texts.zoomIn} onClick={() => zoom(1.25)} />
        <IconButton icon="fit" label={texts.wholeFlow} onClick={fit} />
        <button
          className={ui["button"]}
          type="button"
          onClick={() =>
            host.current
              ?.querySelector("canvas")
              ?.toBlob((blob) => blob && saveFile(blob, "image/png", `${props.name}.png`))
          }
        >
          <Icon name="download" /> {texts.png}
        </button>
        <button
          className={ui["button"]}
          type="button"
          onClick={() =>
            saveFile(makeFlowSvg(drawing, props.name), "image/svg+xml", `${props.name}.svg`)
          }
        >
          <Icon name="download" /> {texts.svg}
        </button>
      </div>
    </div>
  );
}

interface Hovered {
  node: number;
  x: number;
  y: number;
}

const HINT_PX = 280;

/** What a node is, beside the pointer. */
function Hint({ node, at, width }: { node: ShownNode; at: Hovered; width: number }) {
  const sum = (value: (one: ShownNode["members"][number]) => number) =>
    node.members.reduce((total, one) => total + (value(one) || 0), 0);
  const wait = measureNode(node, "wait");
  return (
    <div
      className={styles["hint"]}
      style={{ left: Math.min(at.x + 14, Math.max(0, width - HINT_PX)), top: at.y + 14 }}
    >
      <b>
        {shorten(node.label, 90)}
        {node.copies > 1 && ` ×${node.copies}`}
      </b>
      <span>
        {texts.flowNodeRanks(
          formatNs(sum((one) => one.min_ms) * 1e6),
          formatNs(sum((one) => one.max_ms) * 1e6),
          slowestRank(node),
        )}
      </span>
      {wait > 0 && <span>{texts.flowNodeWaits(formatNs(wait * 1e6))}</span>}
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
): FlowDrawing {
  const values = useMemo(
    () => Float64Array.from(flow.nodes, (node) => measureNode(node, metric)),
    [flow, metric],
  );
  const drawing = useMemo<FlowDrawing>(
    () => ({
      ...{ flow, layout, camera, width, height, theme, values, selected, showQuiet },
      palette: makePalette(theme),
      most: values.reduce((most, value) => Math.max(most, value), 0),
      found: new Set(found),
      laneLabel: (lane: number) => laneLabel(flow, lane),
      nodeLabel: (node: number) => shortenKernel(flow.nodes[node].label),
    }),
    [flow, layout, camera, width, height, theme, values, selected, found, showQuiet],
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
    drawFlow(context, drawing);
    drawMinimap(corner, drawing, MINIMAP);
  }, [host, drawing, width, height]);
  return drawing;
}

function laneLabel({ lanes }: ShownFlow, lane: number): string {
  const { stage, microBatch } = lanes[lane] ?? { stage: 0, microBatch: -1 };
  if (microBatch < 0) return texts.stageRow(stage);
  return lanes[lane - 1]?.stage === stage
    ? texts.microBatch(microBatch)
    : `${texts.stageRow(stage)} · ${texts.microBatch(microBatch)}`;
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
