import { useCallback, useMemo, useState } from "react";
import { continuousScheme } from "@/base/colour";
import { formatAmount, formatMetric } from "@/base/times";
import { useTheme } from "@/base/theme";
import { drawSankey } from "@/charts/sankey/draw";
import { figuresOf, flowsOf, nodesOf } from "@/charts/sankey/figures";
import type { SankeyLayout } from "@/charts/sankey/layout";
import { layoutSankey, nodeAt } from "@/charts/sankey/layout";
import { chartFont, Drawing, token } from "@/features/callgraphs/Drawing";
import type { PageState } from "@/features/callgraphs/address";
import type { Sankey } from "@/features/callgraphs/queries";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/callgraphs/CallGraphs.module.css";
import { callGraphTexts as texts } from "@/texts";

const HEIGHT = 430;
const SPLITS = ["reveal", "callers", "callees"] as const;

type Set = (change: Partial<PageState>) => void;

/** Modules as supernodes, the time that flows between them, and the spread over the profiles. */
export function SankeyPanel({
  sankey,
  state,
  set,
}: {
  sankey: Sankey;
  state: PageState;
  set: Set;
}) {
  const { theme } = useTheme();
  const [hovered, setHovered] = useState(-1);
  const figures = useMemo(() => figuresOf(sankey), [sankey]);
  const selected = sankey.nodes.findIndex((node) => node.name === state.module);
  const placed = useMemo<{ layout: SankeyLayout | null }>(() => ({ layout: null }), []);
  const draw = useCallback(
    (context: CanvasRenderingContext2D, width: number) => {
      const size = { width: width - 4, height: HEIGHT - 8, labels: Math.min(180, width * 0.3) };
      placed.layout = layoutSankey(nodesOf(sankey.nodes), flowsOf(sankey.flows), size);
      context.translate(2, 4);
      drawSankey(
        context,
        placed.layout,
        figures,
        {
          ramp: continuousScheme(null, theme),
          text: token("--text"),
          muted: token("--muted"),
          ground: token("--panel"),
          line: token("--line-strong"),
          flow: token("--accent"),
          target: token("--selected"),
          selected: token("--alert"),
          font: chartFont(),
        },
        { selected, hovered },
      );
    },
    [sankey, figures, theme, selected, hovered, placed],
  );
  const find = (x: number, y: number) => (placed.layout ? nodeAt(placed.layout, x - 2, y - 4) : -1);
  const select = (at: number) => set({ module: sankey.nodes[at]?.name ?? "", path: [] });
  const key = (name: string) => {
    const moves: Record<string, number> = { ArrowDown: 1, ArrowUp: -1 };
    const count = sankey.nodes.length;
    if (name in moves) setHovered((hovered + moves[name] + count) % count);
    else if (name === "Enter") select(hovered);
    else return false;
    return true;
  };
  const shown = sankey.nodes[hovered] ?? sankey.nodes[selected];
  const time = (value: number) => formatAmount(value, sankey.unit);
  return (
    <section className={styles["panel"]} aria-label={texts.sankey}>
      <div className={pageStyles["page-line"]}>
        <h2>{texts.sankey}</h2>
        <span className={pageStyles["spring"]} />
        {SPLITS.map((how) => (
          <button
            key={how}
            type="button"
            className={ui["button"]}
            disabled={selected < 0}
            aria-pressed={state[how].includes(state.module)}
            onClick={() => set({ [how]: [...state[how], state.module], module: "" })}
          >
            {texts.splits[how]}
          </button>
        ))}
        <button
          type="button"
          className={ui["button"]}
          disabled={SPLITS.every((how) => state[how].length === 0)}
          onClick={() => set({ reveal: [], callers: [], callees: [] })}
        >
          {texts.undoSplits}
        </button>
      </div>
      <Drawing
        height={HEIGHT}
        draw={draw}
        label={texts.sankeyHelp}
        testId="sankey"
        onPoint={(x, y) => setHovered(find(x, y))}
        onPress={(x, y) => select(find(x, y))}
        onKey={key}
      />
      <p className={`${ui["muted"]} ${styles["described"]}`} role="status">
        {shown
          ? texts.supernode(
              shown.name,
              shown.call_sites,
              time(shown.inclusive.mean),
              time(shown.inclusive.min),
              time(shown.inclusive.max),
            )
          : texts.sankeyLegend}
        {sankey.folded > 0 && !shown ? ` ${texts.folded(sankey.folded)}` : ""}
      </p>
      <details>
        <summary>{texts.asTable}</summary>
        <div className={styles["rows"]}>
          <table className={pageStyles["page-table"]} data-testid="supernodes">
            <thead>
              <tr>
                <th>{texts.module}</th>
                <th className={pageStyles["figure"]}>{texts.callSites}</th>
                <th className={pageStyles["figure"]}>{texts.inclusive}</th>
                <th className={pageStyles["figure"]}>{texts.exclusive}</th>
                <th className={pageStyles["figure"]}>{texts.imbalance}</th>
              </tr>
            </thead>
            <tbody>
              {sankey.nodes.map((node, at) => (
                <tr key={node.name}>
                  <td>
                    <button type="button" className={ui["link"]} onClick={() => select(at)}>
                      {node.name}
                    </button>
                  </td>
                  <td className={pageStyles["figure"]}>{node.call_sites}</td>
                  <td className={pageStyles["figure"]}>{time(node.inclusive.mean)}</td>
                  <td className={pageStyles["figure"]}>{time(node.exclusive.mean)}</td>
                  <td className={pageStyles["figure"]}>
                    {formatMetric("imbalance", node.inclusive.imbalance, "")}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </section>
  );
}
