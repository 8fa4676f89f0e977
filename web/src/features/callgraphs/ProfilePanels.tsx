import { useCallback, useMemo } from "react";
import { categoryColours } from "@/base/colour";
import { formatAmount, formatMetric } from "@/base/times";
import { drawBars } from "@/charts/bars";
import type { PointsFrame } from "@/charts/points";
import { drawPoints, insideLasso, pointsFrame } from "@/charts/points";
import { profileLabel } from "@/charts/sankey/figures";
import { chartFont, Drawing, token } from "@/features/callgraphs/Drawing";
import type { PageState } from "@/features/callgraphs/address";
import { shortRanges } from "@/features/callgraphs/address";
import type { ProfileMap, Sankey, Selection } from "@/features/callgraphs/queries";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/callgraphs/CallGraphs.module.css";
import { callGraphTexts as texts } from "@/texts";

const BINS = 20;
type Set = (change: Partial<PageState>) => void;

/** How the profiles spread over what was selected. */
export function HistogramPanel({
  sankey,
  selection,
  state,
}: {
  sankey: Sankey;
  selection: Selection | undefined;
  state: PageState;
}) {
  const bins = useMemo(
    () => (state.path.length > 0 ? ofSelection(selection, state) : ofModule(sankey, state)),
    [sankey, selection, state],
  );
  const draw = useCallback(
    (context: CanvasRenderingContext2D, width: number) => {
      if (!bins) return;
      drawBars(
        context,
        bins.counts,
        { width, height: 150 },
        {
          bar: token("--accent"),
          faded: token("--line-strong"),
          mark: token("--selected"),
          text: token("--muted"),
          font: chartFont(),
        },
        { marked: bins.marked, range: null },
      );
    },
    [bins],
  );
  const time = (value: number | null) => formatAmount(value, sankey.unit);
  return (
    <section className={styles["panel"]} aria-label={texts.histogram}>
      <h2>{texts.histogram}</h2>
      {bins === null ? (
        <p className={ui["muted"]}>{texts.selectSomething}</p>
      ) : (
        <>
          <p className={styles["described"]} data-testid="histogram-title">
            {bins.title}
          </p>
          <Drawing height={150} draw={draw} label={texts.histogram} testId="histogram" />
          <div className={styles["ends"]}>
            <span>{time(bins.low)}</span>
            <span>{texts.inclusiveByProfile}</span>
            <span>{time(bins.high)}</span>
          </div>
          <p className={ui["muted"]}>
            {texts.box(time(bins.q1), time(bins.median), time(bins.q3), bins.imbalance)}
          </p>
        </>
      )}
    </section>
  );
}

interface Bins {
  title: string;
  counts: number[];
  marked: number | null;
  low: number | null;
  high: number | null;
  q1: number | null;
  median: number | null;
  q3: number | null;
  imbalance: string;
}

function ofModule(sankey: Sankey, state: PageState): Bins | null {
  const node = sankey.nodes.find(({ name }) => name === state.module);
  if (!node) return null;
  const { histogram, q1, median, q3, imbalance } = node.inclusive;
  return {
    title: node.name,
    counts: histogram.counts,
    marked: histogram.target_bin,
    low: histogram.low,
    high: histogram.high,
    q1,
    median,
    q3,
    imbalance: formatMetric("imbalance", imbalance, ""),
  };
}

function ofSelection(selection: Selection | undefined, state: PageState): Bins | null {
  if (!selection) return null;
  const { by_profile: values, min, max, q1, median, q3, imbalance } = selection.inclusive;
  const [low, high] = [min ?? 0, max ?? 0];
  const counts = new Array<number>(BINS).fill(0);
  const bin = (value: number) =>
    Math.min(BINS - 1, Math.floor(((value - low) / (high - low || 1)) * BINS));
  for (const value of values) if (value !== null) counts[bin(value)] += 1;
  const target = state.target ? values[Number(state.target)] : null;
  return {
    title: state.path.join(" › "),
    counts,
    marked: target === null || target === undefined ? null : bin(target),
    low,
    high,
    q1,
    median,
    q3,
    imbalance: formatMetric("imbalance", imbalance ?? NaN, ""),
  };
}

/** The profiles as a map: near ones spend their time alike. Drawing round some looks at these alone. */
export function MapPanel({ map, state, set }: { map: ProfileMap; state: PageState; set: Set }) {
  const points = map.profiles;
  const placed = useMemo<{ frame: PointsFrame | null }>(() => ({ frame: null }), []);
  const draw = useCallback(
    (context: CanvasRenderingContext2D, width: number) => {
      placed.frame = pointsFrame(points, width, 230);
      const colours = categoryColours(map.clusters, "okabe_ito");
      drawPoints(
        context,
        placed.frame,
        points,
        { x: texts.mapX, y: texts.mapY, tick: (value) => String(Number(value.toPrecision(2))) },
        {
          text: token("--muted"),
          line: token("--line"),
          selected: token("--selected"),
          font: chartFont(),
          colour: (i) => `rgb(${colours[points[i].cluster % colours.length].join(" ")})`,
          chosen: (i) => String(points[i].profile) === state.target && !state.profiles,
          radius: 5,
        },
      );
    },
    [points, map.clusters, state.target, state.profiles, placed],
  );
  const lasso = (line: { x: number; y: number }[]) => {
    const { frame } = placed;
    if (!frame) return;
    const inside = points.filter((point) =>
      insideLasso(line, { x: frame.x(point.x), y: frame.y(point.y) }),
    );
    if (inside.length > 0)
      set({ profiles: shortRanges(inside.map((point) => point.profile)), target: "" });
  };
  return (
    <section className={styles["panel"]} aria-label={texts.map}>
      <div className={pageStyles["page-line"]}>
        <h2>{texts.map}</h2>
        <span className={pageStyles["spring"]} />
        {state.profiles && (
          <button
            type="button"
            className={ui["button"]}
            data-testid="all-profiles"
            onClick={() => set({ profiles: "", target: "" })}
          >
            {texts.allProfiles}
          </button>
        )}
      </div>
      <Drawing height={230} draw={draw} label={texts.mapHelp} testId="map" onLasso={lasso} />
      <p className={ui["muted"]}>
        {state.profiles ? texts.onlyProfiles(state.profiles) : texts.clusters(map.clusters)}
      </p>
      <details>
        <summary>{texts.asTable}</summary>
        <div className={styles["rows"]}>
          {points.map((point) => (
            <button
              key={point.profile}
              type="button"
              className={ui["link"]}
              onClick={() => set({ profiles: String(point.profile), target: "" })}
            >
              {texts.inCluster(profileLabel(point), point.cluster + 1)}
            </button>
          ))}
        </div>
      </details>
    </section>
  );
}
