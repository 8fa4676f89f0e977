import { useMemo } from "react";
import type { MareyStage } from "@/charts/marey/stage";
import { formatNs } from "@/charts/marey/window";
import { DataTable } from "@/features/traces/DataTable";
import { kindWord } from "@/features/traces/marey/kindWords";
import type { DescribedBands } from "@/charts/marey/decode";
import pageStyles from "@/base/ui/page.module.css";
import { tracesTexts as texts } from "@/texts";

interface Line {
  rank: number;
  step: number;
  name: string;
  kind: string;
  start_ns: number;
  dur_ns: number;
  module: string;
  micro_batch: number | null;
  row: number;
  interval: number;
}

/** Everything that stands in the window, as a table. */
export function VisibleTable({
  stage,
  turn,
  onChoose,
}: {
  stage: MareyStage | null;
  /** Changes with each frame that shows something else. */
  turn: number;
  onChoose: (row: number, interval: number) => void;
}) {
  const bands = (stage?.bands ?? null) as DescribedBands | null;
  const lines = useMemo(
    () => (stage && bands && turn >= 0 ? listLines(stage, bands) : []),
    [stage, bands, turn],
  );
  if (lines.length === 0)
    return (
      <p className={pageStyles["page-notice"]} role="status">
        {texts.zoomForTable}
      </p>
    );
  return (
    <DataTable
      name={texts.visibleOperators}
      rows={lines}
      first="dur_ns"
      columns={[
        { key: "rank", label: texts.rank },
        ...(stage && stage.steps.length > 1 ? [{ key: "step" as const, label: texts.step }] : []),
        { key: "name", label: texts.name, text: true },
        { key: "kind", label: texts.kind, text: true },
        { key: "start_ns", label: texts.start, show: (row) => formatNs(row.start_ns) },
        { key: "dur_ns", label: texts.duration, show: (row) => formatNs(row.dur_ns) },
        { key: "module", label: texts.module, text: true },
        { key: "micro_batch", label: texts.microBatchColumn },
      ]}
      onChoose={(line) => onChoose(line.row, line.interval)}
    />
  );
}

function listLines(stage: MareyStage, bands: DescribedBands): Line[] {
  const { intervals } = bands;
  const lines: Line[] = [];
  for (let r = 0; r + 1 < intervals.begin.length; r++) {
    // What stands on a stream's row stands on its rank's too.
    if (stage.layout.rows[intervals.firstRow + r]?.kind === "stream") continue;
    for (let i = intervals.begin[r]; i < intervals.begin[r + 1]; i++) {
      if (intervals.endNs[i] < stage.window.fromNs || intervals.startNs[i] > stage.window.toNs)
        continue;
      lines.push({
        rank: bands.rank(i),
        step: bands.step(i),
        name: bands.nameOf(i),
        kind: kindWord(intervals.kind[i]),
        start_ns: intervals.startNs[i],
        dur_ns: intervals.endNs[i] - intervals.startNs[i],
        module: bands.module(i),
        micro_batch: bands.microBatch[i] < 0 ? null : bands.microBatch[i],
        row: intervals.firstRow + r,
        interval: i,
      });
    }
  }
  return lines;
}
