import { useCallback, useMemo } from "react";
import { categoryColours } from "@/base/colour";
import { formatAmount } from "@/base/times";
import { drawLines } from "@/charts/lines";
import { chartFont, Drawing, token } from "@/features/callgraphs/Drawing";
import type { PageState } from "@/features/callgraphs/address";
import type { Scaling } from "@/features/callgraphs/queries";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/callgraphs/CallGraphs.module.css";
import { callGraphTexts as texts } from "@/texts";

type Trend = Scaling["nodes"][number];
const MOST_LINES = 6;
const HEIGHT = 240;

/** How call sites scale with a parameter: their times on logarithmic axes, and the fitted powers. */
export function ScalingPanel({
  scaling,
  state,
  set,
}: {
  scaling: Scaling;
  state: PageState;
  set: (change: Partial<PageState>) => void;
}) {
  const { parameter, parameters, values, nodes, unit } = scaling;
  const drawn = useMemo(() => chooseDrawn(nodes, state.path), [nodes, state.path]);
  const draw = useCallback(
    (context: CanvasRenderingContext2D, width: number) => {
      const colours = lineColours(drawn.length);
      const lines = drawn.map(({ means }, n) => ({ x: values, y: means, colour: colours[n] }));
      drawLines(
        context,
        lines,
        { width, height: HEIGHT },
        {
          x: parameter ?? "",
          y: texts.meanInclusive(unit === "ns" ? "" : unit),
          logarithmic: true,
          marks: values,
          formatY: (value) => formatAmount(value, unit === "ns" ? unit : ""),
        },
        { text: token("--muted"), line: token("--line"), font: chartFont() },
      );
    },
    [drawn, values, parameter, unit],
  );
  return (
    <section className={styles["panel"]} aria-label={texts.scaling} data-testid="scaling">
      <div className={pageStyles["page-line"]}>
        <h2>{texts.scaling}</h2>
        {parameters.length > 1 && (
          <label className={ui["field"]}>
            <span>{texts.parameter}</span>
            <select
              value={parameter ?? ""}
              onChange={(event) => set({ parameter: event.target.value })}
            >
              {parameters.map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </label>
        )}
      </div>
      {scaling.reason !== null || parameter === null ? (
        <p className={ui["muted"]} role="status">
          {scaling.reason}
        </p>
      ) : (
        <>
          <p className={ui["muted"]}>{texts.scalingHelp(parameter, values.length)}</p>
          <Drawing height={HEIGHT} draw={draw} label={texts.scaling} testId="scaling-lines" />
          <Trends trends={nodes} drawn={drawn} set={set} />
        </>
      )}
    </section>
  );
}

function Trends({
  trends,
  drawn,
  set,
}: {
  trends: Trend[];
  drawn: Trend[];
  set: (change: Partial<PageState>) => void;
}) {
  const colours = lineColours(drawn.length);
  return (
    <div className={`${pageStyles["page-scroll"]} ${styles["rows"]}`}>
      <table className={pageStyles["page-table"]} data-testid="trends">
        <thead>
          <tr>
            <th>{texts.callSite}</th>
            <th>{texts.trend}</th>
            <th className={pageStyles["figure"]}>{texts.exponent}</th>
            <th className={pageStyles["figure"]}>{texts.interval}</th>
          </tr>
        </thead>
        <tbody>
          {trends.map((one) => (
            <tr key={one.path.join("\u0000")}>
              <td>
                {drawn.includes(one) && (
                  <span aria-hidden="true" style={{ color: colours[drawn.indexOf(one)] }}>
                    {"━ "}
                  </span>
                )}
                <button
                  type="button"
                  className={ui["link"]}
                  title={one.path.join(" › ")}
                  onClick={() => set({ path: one.path, module: "" })}
                >
                  {one.path.slice(-2).join(" › ")}
                </button>
              </td>
              <td>{texts.trends[one.trend]}</td>
              <td className={pageStyles["figure"]}>{powerText(one.exponent)}</td>
              <td className={pageStyles["figure"]}>{intervalText(one)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The call sites with most time, and the selected one. */
function chooseDrawn(nodes: Trend[], path: string[]): Trend[] {
  const most = nodes.slice(0, MOST_LINES);
  const selected = nodes.find((one) => path.length > 0 && isPath(one.path, path));
  return selected && !most.includes(selected) ? [...most.slice(0, -1), selected] : most;
}

function isPath(path: readonly string[], other: readonly string[]): boolean {
  return path.length === other.length && path.every((name, n) => name === other[n]);
}

function lineColours(count: number): string[] {
  return categoryColours(count, "okabe_ito").map((rgb) => `rgb(${rgb.join(" ")})`);
}

function intervalText({ interval: [low, high] }: Trend): string {
  return low === null || high === null ? "–" : `${powerText(low)} to ${powerText(high)}`;
}

/** Two digits; what rounds to zero has no sign. */
function powerText(value: number | null): string {
  return value === null ? "–" : (Math.abs(value) < 0.005 ? 0 : value).toFixed(2);
}
