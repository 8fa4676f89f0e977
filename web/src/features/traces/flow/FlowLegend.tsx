/** What shapes, colours, cells and lines of the execution flow mean. */

import { continuousScheme, interpolate } from "@/base/colour";
import { useTheme } from "@/base/theme";
import styles from "@/features/traces/flow/Flow.module.css";
import { tracesTexts as texts } from "@/texts";

const SHAPES = [
  [texts.operator, 2],
  [texts.moduleNode, 5],
  [texts.communication, 7],
] as const;

const LINES = [
  [texts.edgeCommunication, "", "var(--accent)"],
  [texts.edgeTensor, "", "var(--muted)"],
  [texts.edgeBackward, "2 3", "var(--muted)"],
  [texts.edgeOrder, "6 5", "var(--muted)"],
] as const;

const CELLS = [
  ["4", true, texts.shardedExact],
  ["4", false, texts.shardedInferred],
  ["?", false, texts.shardedUnknown],
] as const;

export function FlowLegend({ most }: { most: string }) {
  const theme = useTheme((state) => state.theme);
  const ramp = Array.from({ length: 9 }, (_, i) => {
    const [red, green, blue] = interpolate(continuousScheme("marey", theme), i / 8);
    return `rgb(${red} ${green} ${blue})`;
  });
  return (
    <div className={styles["legend"]} data-testid="flow-legend">
      <span>
        0 <i style={{ background: `linear-gradient(to right, ${ramp.join(", ")})` }} /> {most}
      </span>
      {SHAPES.map(([label, corner]) => (
        <span key={label}>
          <svg width="26" height="14" aria-hidden="true">
            <rect x="0.5" y="0.5" width="25" height="13" rx={corner} {...OUTLINE} />
          </svg>
          {label}
        </span>
      ))}
      <span>
        <b>×3</b> {texts.equalCopies}
      </span>
      <span>{texts.slicesPerDimension}</span>
      {CELLS.map(([text, solid, label]) => (
        <span key={label}>
          <svg width="16" height="12" aria-hidden="true">
            <rect
              x="0.5"
              y="0.5"
              width="15"
              height="11"
              stroke="var(--text)"
              fill={solid ? "var(--text)" : "none"}
            />
            <text
              x="8"
              y="9.5"
              fontSize="9"
              fontWeight="bold"
              textAnchor="middle"
              fill={solid ? "var(--panel)" : "var(--text)"}
            >
              {text}
            </text>
          </svg>
          {label}
        </span>
      ))}
      {LINES.map(([label, dash, colour]) => (
        <span key={label}>
          <svg width="26" height="8" aria-hidden="true">
            <path d="M0 4H26" stroke={colour} strokeWidth="1.5" strokeDasharray={dash} />
          </svg>
          {label}
        </span>
      ))}
    </div>
  );
}

const OUTLINE = { fill: "none", stroke: "var(--muted)" };
