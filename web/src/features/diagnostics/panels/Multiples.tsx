import { prepareCanvas } from "@/charts/canvas";
import type { KeyboardEvent, MouseEvent } from "react";
import { useEffect, useMemo, useRef, useState } from "react";
import { ramp } from "@/base/colour";
import { formatValue } from "@/base/format";
import type { RuleBoard } from "@/base/verdicts/queries";
import { slotColour } from "@/base/verdicts/slots";
import { useTheme } from "@/base/theme";
import { cellAt, cellSize, drawMultiples, headingAt, layoutMultiples } from "@/charts/multiples";
import type { Multiple, PlotKind, RuleSlot } from "@/charts/multiples";
import type { ColourNumbers } from "@/features/diagnostics/colours";
import { numberColour } from "@/features/diagnostics/colours";
import type { Clusters } from "@/features/diagnostics/documents";
import { byNode, labelOf, ordered } from "@/charts/gpuOrder";
import { choose, useChosen, usePicked } from "@/features/diagnostics/store";
import { token } from "@/features/diagnostics/painting";
import { useWidth } from "@/features/diagnostics/useCanvas";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/diagnostics/panels/Multiples.module.css";
import { diagnosticsTexts as texts } from "@/texts";

const STRIPS_FROM = 256;
/** From this size on strips open into plots: there is room for them, and one scrolls. */
const PLOTS_FROM_ZOOM = 1.75;

/** A plot per GPU, in boxes per node; click, Ctrl-click, Shift-click and a click on a node's name select. */
export function Multiples({
  clusters,
  numbers,
  board,
}: {
  clusters: Clusters;
  numbers: ColourNumbers;
  board: RuleBoard;
}) {
  const { plot, order, shared, nodes, zoom, selected } = usePicked(
    "plot",
    "order",
    "shared",
    "nodes",
    "zoom",
    "selected",
  );
  const theme = useTheme((state) => state.theme);
  const [ref, width] = useWidth();
  const canvas = useRef<HTMLCanvasElement | null>(null);
  const [focus, setFocus] = useState(-1);
  const anchor = useRef(-1);
  const kind: PlotKind =
    plot === "auto"
      ? clusters.gpus.length > STRIPS_FROM && !nodes && zoom < PLOTS_FROM_ZOOM
        ? "strip"
        : clusters.method === "histogram"
          ? "histogram"
          : "timeline"
      : plot;
  const slots = useSlots(board);
  const litGpus = useLitGpus(board);
  const members = useMemo(() => {
    const listed = new Map<string, string[]>();
    for (const gpu of clusters.gpus)
      listed.set(gpu.host, [...(listed.get(gpu.host) ?? []), gpu.gpu]);
    return listed;
  }, [clusters]);
  const layout = useMemo(() => {
    const rows = ordered(nodes ? byNode(clusters.gpus) : clusters.gpus, order);
    const colour = new Map(
      clusters.clusters.map((cluster) => [cluster.id, numbers.get(cluster.gpus[0]) ?? 0]),
    );
    const boxed = !nodes && order !== "difference";
    const multiples = rows.map((row): Multiple => ({
      id: row.gpu,
      group: boxed ? row.host : "",
      label: labelOf(row, order, boxed),
      counts: row.counts,
      line: row.line,
      colour: numberColour(colour.get(row.cluster) ?? 0),
      slots: slots(nodes ? (members.get(row.gpu) ?? []) : [row.gpu]),
    }));
    return layoutMultiples(
      multiples,
      Math.max(120, width),
      cellSize(rows.length, kind, zoom),
      kind,
    );
  }, [clusters, numbers, nodes, order, width, kind, zoom, slots, members]);
  const chosen = useMemo(() => {
    const set = new Set(selected);
    return nodes
      ? new Set(
          [...members].filter(([, gpus]) => gpus.some((gpu) => set.has(gpu))).map(([host]) => host),
        )
      : set;
  }, [selected, nodes, members]);
  const lit = useMemo(
    () =>
      litGpus && nodes
        ? new Set(
            [...members]
              .filter(([, gpus]) => gpus.some((gpu) => litGpus.has(gpu)))
              .map(([host]) => host),
          )
        : litGpus,
    [litGpus, nodes, members],
  );
  useEffect(() => {
    if (!canvas.current || width === 0) return;
    const context = prepareCanvas(canvas.current, width, Math.max(20, layout.height + 2));
    if (!context) return;
    const colours = {
      ground: token("--raised"),
      line: token("--line"),
      text: token("--muted"),
      selected: token("--selected"),
    };
    drawMultiples(context, layout, {
      kind,
      limits: clusters.limits,
      shared,
      selected: chosen,
      lit,
      focus,
      ramp: ramp(null, false, theme),
      colours,
    });
    canvas.current.dataset["drawn"] = clusters.metric;
  }, [layout, width, kind, clusters, shared, chosen, lit, focus, theme]);

  const marked = useMemo(
    () => layout.cells.filter((cell) => cell.multiple.slots.some((slot) => slot !== null)).length,
    [layout],
  );
  const gpusOf = (id: string) => (nodes ? (members.get(id) ?? []) : [id]);
  const pick = (at: number, event: { shiftKey: boolean; ctrlKey: boolean; metaKey: boolean }) => {
    if (at < 0) return;
    const adding = event.ctrlKey || event.metaKey;
    const [first, last] =
      event.shiftKey && anchor.current >= 0
        ? [Math.min(anchor.current, at), Math.max(anchor.current, at)]
        : [at, at];
    choose(
      layout.cells.slice(first, last + 1).flatMap((cell) => gpusOf(cell.multiple.id)),
      adding,
    );
    if (!event.shiftKey) anchor.current = at;
    setFocus(at);
  };
  const click = (event: MouseEvent<HTMLCanvasElement>) => {
    const [x, y] = [event.nativeEvent.offsetX, event.nativeEvent.offsetY];
    const node = headingAt(layout, x, y);
    if (node !== null) choose(members.get(node) ?? [], event.ctrlKey || event.metaKey);
    else pick(cellAt(layout, x, y), event);
  };
  const key = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 8, ArrowUp: -8 }[event.key];
    if (step !== undefined) setFocus(Math.max(0, Math.min(layout.cells.length - 1, focus + step)));
    else if (event.key === "Enter" || event.key === " ") pick(focus, event);
    else if (event.key === "Escape") choose([], false);
    else return;
    event.preventDefault();
  };
  const focused = layout.cells[focus]?.multiple.id;
  const row = clusters.gpus.find((gpu) => gpu.gpu === focused);
  return (
    <div ref={ref} className={styles["multiples"]}>
      <canvas
        ref={canvas}
        data-testid="multiples"
        data-plot={kind}
        data-count={layout.cells.length}
        data-marked={marked}
        tabIndex={0}
        role="application"
        aria-label={texts.smallPlotsOfArrowKeysMove(layout.cells.length, clusters.label)}
        onClick={click}
        onKeyDown={key}
        onMouseMove={(event) =>
          setFocus(cellAt(layout, event.nativeEvent.offsetX, event.nativeEvent.offsetY))
        }
        onMouseLeave={() => setFocus(-1)}
      />
      <p className={`${ui["muted"]} ${styles["under"]}`} aria-live="polite">
        {row
          ? texts.plotOfGpu(
              row.gpu,
              row.global_rank ?? "–",
              formatValue(row.median, clusters.unit),
              row.difference.toFixed(2),
            )
          : (focused ??
            texts.plotsOf(
              clusters.label,
              kind === "histogram" ? texts.distribution : texts.overTimeLower,
              formatValue(clusters.limits[0]),
              formatValue(clusters.limits[1], clusters.unit),
              kind === "histogram" ? texts.squareRootHeights : "",
            ))}
      </p>
    </div>
  );
}

/** For some GPUs each rule's slot; null where the rule is not met. */
function useSlots(board: RuleBoard) {
  const theme = useTheme((state) => state.theme);
  return useMemo(() => {
    const rules = board.slots.map((field) =>
      field === null ? undefined : board.verdicts.get(field),
    );
    return (gpus: readonly string[]): (RuleSlot | null)[] =>
      rules.map((verdict, i) => {
        const now = verdict !== undefined && gpus.some((gpu) => verdict.now.gpus.has(gpu));
        const met =
          now || (verdict !== undefined && gpus.some((gpu) => verdict.life.gpus.has(gpu)));
        return met ? { colour: slotColour(i, theme), now } : null;
      });
  }, [board.slots, board.verdicts, theme]);
}

/** GPUs that the rule under the cursor is about. */
function useLitGpus(board: RuleBoard): ReadonlySet<string> | null {
  const field = useChosen((chosen) => chosen.litRule);
  return useMemo(() => {
    const verdict = field === null ? undefined : board.verdicts.get(field);
    return verdict ? new Set([...verdict.now.gpus, ...verdict.life.gpus]) : null;
  }, [field, board.verdicts]);
}
