import { prepareCanvas } from "@/charts/canvas";
import type { PointerEvent } from "react";
import { useEffect, useMemo, useRef, useState } from "react";
import type { Metric } from "@/base/attributes";
import { formatCount } from "@/base/format";
import { useTheme } from "@/base/theme";
import { Select, Slider, Toggle } from "@/base/ui/controls";
import type { Box, ScatterScales } from "@/charts/scatter";
import { drawScatter, inside, scatterScales } from "@/charts/scatter";
import type { ColourNumbers } from "@/features/diagnostics/colours";
import { cssOf, numberColour } from "@/features/diagnostics/colours";
import type { Outliers, Pair } from "@/features/diagnostics/documents";
import { useOutliers, usePairs } from "@/features/diagnostics/queries";
import { change, NO_BRUSH, usePicked } from "@/features/diagnostics/store";
import { token } from "@/features/diagnostics/painting";
import { useWidth } from "@/features/diagnostics/useCanvas";
import { counted } from "@/features/diagnostics/words";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/diagnostics/panels/Bivariate.module.css";
import partStyles from "@/features/diagnostics/parts.module.css";
import { diagnosticsTexts as texts } from "@/texts";

const HEIGHT = 300;

/** Two metrics against each other; brushing lights times on the timeline and GPUs in the multiples. */
export function Bivariate({
  numbers,
  metrics,
}: {
  numbers: ColourNumbers;
  metrics: readonly Metric[];
}) {
  const {
    x,
    y,
    significance,
    robust,
    window: span,
  } = usePicked("x", "y", "significance", "robust", "window");
  const outliers = useOutliers(span);
  const options = metrics.map((one) => ({ value: one.id, label: one.label }));
  if (metrics.length < 2)
    return (
      <section className={partStyles["part"]} aria-label={texts.scatterPlot}>
        <p className={partStyles["hint"]}>{texts.aScatterPlotNeedsTwoMetrics}</p>
      </section>
    );
  return (
    <section
      className={partStyles["part"]}
      aria-label={texts.scatterPlot}
      data-testid="bivariate-part"
    >
      <header>
        <h3>{texts.scatterPlot}</h3>
        {outliers.data && (
          <span className={ui["muted"]} data-testid="outlier-count">
            {texts.samplesAreOutliers(
              formatCount(outliers.data.outlier_count),
              formatCount(outliers.data.samples),
              outliers.data.limit.toFixed(2),
            )}
          </span>
        )}
      </header>
      <div className={partStyles["controls"]}>
        <Select
          label={texts.xAxis}
          value={x}
          options={options}
          onChange={(value) => change({ x: value, ...NO_BRUSH })}
        />
        <Select
          label={texts.yAxis}
          value={y}
          options={options}
          onChange={(value) => change({ y: value, ...NO_BRUSH })}
        />
        <Slider
          label={texts.significance(significance.toPrecision(1))}
          value={Math.round(-Math.log10(significance) * 4) / 4}
          min={0.5}
          max={8}
          step={0.25}
          onChange={(value) => change({ significance: Number((10 ** -value).toPrecision(3)) })}
        />
        <Toggle
          label={texts.robustEstimate}
          checked={robust}
          onChange={(value) => change({ robust: value })}
        />
      </div>
      {x === y && <p className={partStyles["hint"]}>{texts.chooseTwoDifferentMetrics}</p>}
      {outliers.isError && <p className={partStyles["hint"]}>{outliers.error.message}</p>}
      {outliers.data && <Scatter data={outliers.data} numbers={numbers} />}
      <PairMatrix metrics={metrics} />
    </section>
  );
}

function Scatter({ data, numbers }: { data: Outliers; numbers: ColourNumbers }) {
  const { selected, brushed } = usePicked("selected", "brushed");
  const theme = useTheme((state) => state.theme);
  const [ref, width] = useWidth();
  const canvas = useRef<HTMLCanvasElement | null>(null);
  const [box, setBox] = useState<[number, number, number, number] | null>(null);
  const scales = useMemo(
    () => scatterScales(data.limits, Math.max(160, width), HEIGHT),
    [data, width],
  );
  useEffect(() => {
    if (!canvas.current || width === 0) return;
    const context = prepareCanvas(canvas.current, width, HEIGHT);
    if (!context) return;
    const chosen = new Set(selected);
    const many = data.samples > data.points.x.length;
    const label = (one: { label: string; unit: string }) =>
      `${one.label}${one.unit ? ` (${one.unit})` : ""}`;
    drawScatter(
      context,
      { ...data, density: many ? data.density : null },
      scales,
      { x: label(data.x), y: label(data.y) },
      {
        colourOf: (gpu) => cssOf(numberColour(numbers.get(data.gpus[gpu]?.gpu) ?? 0)),
        faded: (gpu) => chosen.size > 0 && !chosen.has(data.gpus[gpu]?.gpu),
        colours: {
          line: token("--line"),
          text: token("--muted"),
          density: token("--muted"),
          outlier: token("--alert"),
        },
      },
    );
  }, [data, width, scales, selected, numbers, theme]);
  const at = (event: PointerEvent): [number, number] => [
    event.nativeEvent.offsetX,
    event.nativeEvent.offsetY,
  ];
  const shown = box ?? (brushed && placeBox(brushed.box, scales));
  const finish = () => {
    if (!box) return;
    const [x0, y0, x1, y1] = box;
    setBox(null);
    if (Math.abs(x1 - x0) < 4 && Math.abs(y1 - y0) < 4) {
      change({ ...NO_BRUSH, selected: [] });
      return;
    }
    const values = {
      x: sorted(scales.valueX(x0), scales.valueX(x1)),
      y: sorted(scales.valueY(y0), scales.valueY(y1)),
    };
    // Outliers in the box; where it holds none, the plain samples in it.
    const outside = inside(data.outliers, values);
    const [points, found] =
      outside.length > 0 ? [data.outliers, outside] : [data.points, inside(data.points, values)];
    const gpus = [...new Set(found.map((i) => data.gpus[points.gpu[i]].gpu))];
    change({
      lit: [...new Set(found.map((i) => points.time_ms[i]))].sort((a, b) => a - b),
      selected: gpus,
      brushed: {
        box: values,
        count: found.length,
        gpus: gpus.length,
        outliers: outside.length > 0,
      },
    });
  };
  return (
    <div ref={ref} className={styles["scatter"]}>
      <canvas
        ref={canvas}
        data-testid="scatter"
        role="img"
        aria-label={texts.scatterOf(data.x.label, data.y.label, data.outlier_count)}
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          setBox([...at(event), ...at(event)]);
        }}
        onPointerMove={(event) => box && setBox([box[0], box[1], ...at(event)])}
        onPointerUp={finish}
      />
      {shown && (
        <i
          className={styles["brush"]}
          data-testid="brush"
          style={{
            left: Math.min(shown[0], shown[2]),
            top: Math.min(shown[1], shown[3]),
            width: Math.abs(shown[2] - shown[0]),
            height: Math.abs(shown[3] - shown[1]),
          }}
        />
      )}
      {brushed && (
        <p className={styles["brushed"]} role="status" data-testid="brushed">
          {texts.inTheBrush(
            brushed.outliers ? counted(brushed.count, "outlier") : counted(brushed.count, "sample"),
            counted(brushed.gpus, "gpu"),
          )}{" "}
          <button
            type="button"
            className={ui["link"]}
            onClick={() => change({ ...NO_BRUSH, selected: [] })}
          >
            {texts.clearBrush}
          </button>
        </p>
      )}
      <button
        type="button"
        className={ui["link"]}
        onClick={() =>
          change({
            brushed: null,
            lit: [...new Set(data.outliers.time_ms)].sort((a, b) => a - b),
            selected: data.gpus.filter((one) => one.outliers > 0).map((one) => one.gpu),
          })
        }
      >
        {texts.selectAllOutliers}
      </button>
    </div>
  );
}

/** The corners of a box of values on the screen. */
function placeBox({ x, y }: Box, scales: ScatterScales): [number, number, number, number] {
  return [scales.x(x[0]), scales.y(y[0]), scales.x(x[1]), scales.y(y[1])];
}

function sorted(a: number, b: number): [number, number] {
  return a < b ? [a, b] : [b, a];
}

/** Correlation of every pair, the strongest and strangest first. */
function PairMatrix({ metrics }: { metrics: readonly Metric[] }) {
  const [open, setOpen] = useState(false);
  const pairs = usePairs(open);
  return (
    <details
      className={styles["pairs"]}
      data-testid="pairs"
      onToggle={(event) => setOpen(event.currentTarget.open)}
    >
      <summary>{texts.allPairsOfMetrics}</summary>
      {pairs.isError && (
        <p className={partStyles["hint"]} role="alert">
          {pairs.error.message}
        </p>
      )}
      {open && pairs.isPending && (
        <p className={ui["muted"]} role="status">
          {texts.computingAllPairs}
        </p>
      )}
      {pairs.data && pairs.data.pairs.length === 0 && (
        <p className={ui["muted"]}>{texts.noTwoMetricsVaryInThis}</p>
      )}
      {pairs.data && pairs.data.pairs.length > 0 && (
        <PairTable pairs={pairs.data.pairs} metrics={metrics} />
      )}
    </details>
  );
}

function PairTable({ pairs, metrics }: { pairs: readonly Pair[]; metrics: readonly Metric[] }) {
  const { x, y } = usePicked("x", "y");
  const label = (id: string) => metrics.find((one) => one.id === id)?.label ?? id;
  // Pairs come strongest and strangest first: so do the metrics that they are of.
  const named = [...new Set(pairs.flatMap((pair) => [pair.x, pair.y]))];
  const of = new Map(pairs.map((pair) => [`${pair.x} ${pair.y}`, pair]));
  const at = (a: string, b: string): Pair | undefined => of.get(`${a} ${b}`) ?? of.get(`${b} ${a}`);
  const cell = (row: string, column: string) => {
    const pair = at(row, column);
    if (!pair) return null;
    const chosen = (pair.x === x && pair.y === y) || (pair.x === y && pair.y === x);
    const ground = `rgb(${pair.correlation >= 0 ? "230 85 13" : "49 130 189"} / ${Math.abs(pair.correlation)})`;
    return (
      <button
        type="button"
        aria-pressed={chosen}
        aria-label={pairText(pair, label)}
        title={pairText(pair, label)}
        style={{ background: ground }}
        onClick={() => change({ x: pair.x, y: pair.y, ...NO_BRUSH })}
      >
        {pair.strange > STRANGE ? "•" : ""}
      </button>
    );
  };
  return (
    <div className={styles["pairs-body"]}>
      <table>
        <tbody>
          {named.map((row, i) => (
            <tr key={row}>
              <th scope="row">
                {label(row)} <small>{i + 1}</small>
              </th>
              {named.slice(0, i).map((column) => (
                <td key={column}>{cell(row, column)}</td>
              ))}
            </tr>
          ))}
          <tr>
            <td />
            {named.slice(0, -1).map((column, i) => (
              <th key={column} scope="col" title={label(column)}>
                <small>{i + 1}</small>
              </th>
            ))}
          </tr>
        </tbody>
      </table>
      <p className={ui["muted"]}>{texts.legendOfPairs(STRANGE * 100)}</p>
      <ol>
        {pairs.map((pair) => (
          <li key={`${pair.x} ${pair.y}`}>
            <button
              type="button"
              className={ui["link"]}
              onClick={() => change({ x: pair.x, y: pair.y, ...NO_BRUSH })}
            >
              {pairText(pair, label)}
            </button>
          </li>
        ))}
      </ol>
    </div>
  );
}

/** From this share of strange samples on a pair is marked. */
const STRANGE = 0.1;

function pairText(pair: Pair, label: (id: string) => string): string {
  return texts.pairOfMetrics(
    label(pair.x),
    label(pair.y),
    pair.correlation.toFixed(2),
    (pair.strange * 100).toFixed(1),
  );
}
