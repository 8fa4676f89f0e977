import { useEffect, useState } from "react";
import { useTheme } from "@/base/theme";
import { clearCanvas, useCanvas } from "@/base/ui/canvas";
import { kindColour, makePalette } from "@/charts/marey/kinds";
import { formatNs } from "@/charts/marey/window";
import type { MemoryKind, RankMemory } from "@/charts/replay/memory";
import { drawMemory, MEMORY_KINDS, memoryHeight, momentUnder } from "@/charts/replay/memory";
import { formatBytes } from "@/features/traces/words";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/traces/whatif/WhatIf.module.css";
import { whatIfTexts as texts } from "@/texts";

/** What fills the memory of the ranks over a step: as predicted, with the recorded total as a line. */
export function MemoryView({
  before,
  after,
}: {
  before: readonly RankMemory[];
  after: readonly RankMemory[];
}) {
  const theme = useTheme((state) => state.theme);
  const [canvas, width] = useCanvas(600, 200);
  const [said, setSaid] = useState("");
  const height = memoryHeight(after.length);
  const colours: Record<MemoryKind, string> = {
    "left over": kindColour(theme, "idle"),
    optimizer: kindColour(theme, "copy"),
    gradients: kindColour(theme, "collective"),
    activations: kindColour(theme, "compute"),
    buffers: kindColour(theme, "send"),
  };
  useEffect(() => {
    const context = clearCanvas(canvas.current, width, height);
    if (!context) return;
    const words = { rank: texts.rank, bytes: formatBytes };
    drawMemory(context, { before, after, width, palette: makePalette(theme), colours, words });
  });
  const read = (event: React.PointerEvent) => {
    const box = event.currentTarget.getBoundingClientRect();
    const point = [event.clientX - box.left, event.clientY - box.top] as const;
    const found = momentUnder({ before, after, width }, ...point);
    if (!found) return setSaid("");
    const { one, moment } = found;
    const parts = MEMORY_KINDS.filter((kind) => (one.levels[kind]?.[moment] ?? 0) > 0).map(
      (kind) => `${texts.memoryKinds[kind]} ${formatBytes(one.levels[kind]?.[moment] ?? 0)}`,
    );
    setSaid(
      texts.memoryAt(one.rank, formatNs((one.times_ms[moment] ?? 0) * 1e6), parts.join(", ")),
    );
  };
  return (
    <figure className={styles["pair"]} data-testid="what-if-memory">
      <canvas
        ref={canvas}
        style={{ width: "100%", height }}
        role="img"
        aria-label={texts.memoryLabel(
          after.map(({ rank, peak_bytes }) => `${texts.rank(rank)} ${formatBytes(peak_bytes)}`),
        )}
        onPointerMove={read}
        onPointerLeave={() => setSaid("")}
      />
      <figcaption className={ui["muted"]}>
        <span className={styles["kinds"]}>
          {MEMORY_KINDS.filter((kind) =>
            after.some((one) => one.levels[kind]?.some((bytes) => bytes > 0)),
          ).map((kind) => (
            <span key={kind}>
              <i style={{ background: colours[kind] }} /> {texts.memoryKinds[kind]}
            </span>
          ))}
        </span>
        {said || texts.memoryExplained}
      </figcaption>
    </figure>
  );
}
