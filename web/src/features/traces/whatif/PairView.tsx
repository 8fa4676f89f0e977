import { useEffect, useState } from "react";
import { useTheme } from "@/base/theme";
import { clearCanvas, useCanvas } from "@/base/ui/canvas";
import { kindColour, makePalette } from "@/charts/marey/kinds";
import { formatNs } from "@/charts/marey/window";
import { drawPair, pairHeight, pieceAt } from "@/charts/replay/pair";
import type { Timeline } from "@/features/traces/whatif/queries";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/traces/whatif/WhatIf.module.css";
import { whatIfTexts as texts } from "@/texts";

/** The recorded and the predicted step, one above the other on every rank. */
export function PairView({ timeline }: { timeline: Timeline }) {
  const theme = useTheme((state) => state.theme);
  const [canvas, width] = useCanvas(600, 200);
  const [said, setSaid] = useState("");
  const height = pairHeight(timeline.ranks.length);
  useEffect(() => {
    const context = clearCanvas(canvas.current, width, height);
    if (!context) return;
    drawPair(context, {
      ...timeline,
      width,
      palette: makePalette(theme),
      colours: {
        compute: kindColour(theme, "compute"),
        transfer: kindColour(theme, "collective"),
      },
      words: {
        rank: texts.rank,
        transfers: texts.transfers,
        before: texts.recorded,
        after: texts.predicted,
      },
    });
  }, [canvas, timeline, width, height, theme]);
  const read = (event: React.PointerEvent) => {
    const box = event.currentTarget.getBoundingClientRect();
    const found = pieceAt(
      { ...timeline, width },
      event.clientX - box.left,
      event.clientY - box.top,
    );
    const { piece } = found ?? {};
    setSaid(
      piece
        ? texts.piece(
            found?.changed ? texts.predicted : texts.recorded,
            piece.what,
            formatNs((piece.end_ms - piece.start_ms) * 1e6),
          )
        : "",
    );
  };
  return (
    <figure className={styles["pair"]} data-testid="what-if-picture">
      <canvas
        ref={canvas}
        style={{ width: "100%", height }}
        role="img"
        aria-label={texts.pairLabel(
          formatNs(timeline.before.step_ms * 1e6),
          formatNs(timeline.after.step_ms * 1e6),
          timeline.ranks.length,
        )}
        onPointerMove={read}
        onPointerLeave={() => setSaid("")}
      />
      <figcaption className={ui["muted"]}>{said || texts.pairExplained}</figcaption>
    </figure>
  );
}
