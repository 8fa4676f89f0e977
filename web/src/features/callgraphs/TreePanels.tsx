import { useCallback, useMemo, useState } from "react";
import { continuousScheme } from "@/base/colour";
import { formatAmount } from "@/base/times";
import { useTheme } from "@/base/theme";
import type { IcicleLayout } from "@/charts/calltree/icicle";
import { drawIcicle, layoutIcicle, rowAt } from "@/charts/calltree/icicle";
import type { CallTree } from "@/charts/calltree/tree";
import { buildTree, nameOf, pathOf, rowsOfPaths, valueOf } from "@/charts/calltree/tree";
import type { PointsFrame } from "@/charts/points";
import { drawPoints, pointsFrame } from "@/charts/points";
import { chartFont, Drawing, token } from "@/features/callgraphs/Drawing";
import type { PageState } from "@/features/callgraphs/address";
import type { Tree } from "@/features/callgraphs/queries";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/callgraphs/CallGraphs.module.css";
import { callGraphTexts as texts } from "@/texts";

type Set = (change: Partial<PageState>) => void;

/** The server's columns as the tree that charts draw. */
export function treeOf(document: Tree): CallTree {
  const { inclusive, exclusive, calls, imbalance } = document;
  return buildTree({
    names: document.names,
    depth: document.depth,
    name: document.name,
    count: document.count,
    hidden: document.hidden,
    hiddenInclusive: document.hidden_inclusive,
    values: { inclusive, exclusive, calls, imbalance },
    profiles: document.profiles.length,
    unit: document.unit,
    total: document.total,
  });
}

/** The united tree: width is inclusive time, colour how unevenly the profiles spend it. */
export function IciclePanel({ tree, state, set }: { tree: CallTree; state: PageState; set: Set }) {
  const { theme } = useTheme();
  const [root, setRoot] = useState(-1);
  const [hovered, setHovered] = useState(-1);
  const selected = useMemo(() => new Set(rowsOfPaths(tree, [state.path])), [tree, state.path]);
  const top = root < tree.size ? root : -1;
  const placed = useMemo<{ layout: IcicleLayout | null }>(() => ({ layout: null }), []);
  const draw = useCallback(
    (context: CanvasRenderingContext2D, width: number) => {
      placed.layout = layoutIcicle(tree, top, width);
      drawIcicle(
        context,
        tree,
        placed.layout,
        {
          ramp: continuousScheme(null, theme),
          ground: token("--panel"),
          text: token("--text"),
          dark: "#10202c",
          selected: token("--selected"),
          font: chartFont(),
        },
        { shade: (row) => shade(tree, row), selected, hovered },
      );
    },
    [tree, top, theme, selected, hovered, placed],
  );
  const find = (x: number, y: number) => (placed.layout ? rowAt(placed.layout, x, y) : -1);
  const height = useMemo(() => layoutIcicle(tree, top, 1000).height, [tree, top]);
  const key = (name: string) => {
    const bars = placed.layout?.bars ?? [];
    const at = bars.findIndex((bar) => bar.row === hovered);
    if (name === "ArrowDown" || name === "ArrowRight")
      setHovered(bars[Math.min(at + 1, bars.length - 1)]?.row ?? -1);
    else if (name === "ArrowUp" || name === "ArrowLeft")
      setHovered(bars[Math.max(at - 1, 0)]?.row ?? -1);
    else if (name === "Enter" && hovered >= 0) set({ path: pathOf(tree, hovered), module: "" });
    else return false;
    return true;
  };
  return (
    <section className={styles["panel"]} aria-label={texts.icicle}>
      <div className={pageStyles["page-line"]}>
        <h2>{texts.icicle}</h2>
        <span className={pageStyles["spring"]} />
        {top >= 0 && (
          <button type="button" className={ui["button"]} onClick={() => setRoot(-1)}>
            {texts.wholeTree}
          </button>
        )}
      </div>
      <div className={styles["rows"]}>
        <Drawing
          height={Math.max(20, height)}
          draw={draw}
          label={texts.icicleHelp}
          testId="icicle"
          onPoint={(x, y) => setHovered(find(x, y))}
          onPress={(x, y) => {
            const row = find(x, y);
            if (row >= 0) set({ path: pathOf(tree, row), module: "" });
          }}
          onDouble={(x, y) => setRoot(find(x, y))}
          onKey={key}
        />
      </div>
      <p className={`${ui["muted"]} ${styles["described"]}`} role="status">
        {hovered >= 0 && hovered < tree.size
          ? `${nameOf(tree, hovered)}: ${texts.inclusive} ${formatAmount(
              valueOf(tree, "inclusive", hovered),
              tree.unit,
            )}, ${texts.exclusive} ${formatAmount(valueOf(tree, "exclusive", hovered), tree.unit)}`
          : texts.icicleLegend}
      </p>
    </section>
  );
}

/** Imbalance up to one; of a single profile the share of its own time. */
function shade(tree: CallTree, row: number): number {
  const imbalance = valueOf(tree, "imbalance", row);
  if (Number.isFinite(imbalance)) return Math.min(1, imbalance);
  return valueOf(tree, "exclusive", row) / Math.max(valueOf(tree, "inclusive", row), 1e-9);
}

/** Every call site by what it took with and without what it calls. */
export function ScatterPanel({ tree, state, set }: { tree: CallTree; state: PageState; set: Set }) {
  const selected = useMemo(() => new Set(rowsOfPaths(tree, [state.path])), [tree, state.path]);
  const points = useMemo(
    () =>
      Array.from({ length: tree.size }, (_, row) => ({
        x: valueOf(tree, "inclusive", row),
        y: valueOf(tree, "exclusive", row),
      })),
    [tree],
  );
  const placed = useMemo<{ frame: PointsFrame | null }>(() => ({ frame: null }), []);
  const draw = useCallback(
    (context: CanvasRenderingContext2D, width: number) => {
      placed.frame = pointsFrame(points, width, 230);
      const accent = token("--accent");
      drawPoints(
        context,
        placed.frame,
        points,
        {
          x: texts.inclusive,
          y: texts.exclusive,
          tick: (value) => formatAmount(value, tree.unit),
        },
        {
          text: token("--muted"),
          line: token("--line"),
          selected: token("--selected"),
          font: chartFont(),
          colour: () => accent,
          chosen: (row) => selected.has(row),
          radius: 3,
        },
      );
    },
    [points, selected, tree, placed],
  );
  const press = (x: number, y: number) => {
    const row = nearest(placed.frame, points, x, y);
    if (row >= 0) set({ path: pathOf(tree, row), module: "" });
  };
  return (
    <section className={styles["panel"]} aria-label={texts.scatter}>
      <h2>{texts.scatter}</h2>
      <Drawing height={230} draw={draw} label={texts.scatter} testId="scatter" onPress={press} />
    </section>
  );
}

function nearest(
  frame: PointsFrame | null,
  points: readonly { x: number; y: number }[],
  x: number,
  y: number,
): number {
  let [found, best] = [-1, 12 ** 2];
  points.forEach((point, row) => {
    if (!frame) return;
    const distance = (frame.x(point.x) - x) ** 2 + (frame.y(point.y) - y) ** 2;
    if (distance < best) [found, best] = [row, distance];
  });
  return found;
}
