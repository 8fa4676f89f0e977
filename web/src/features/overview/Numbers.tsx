import { useEffect, useState } from "react";
import { useQuery } from "@tanstack/react-query";
import type { Document } from "@/api/documents";
import { getJson } from "@/api/client";
import { formatCount } from "@/base/format";
import { useLive } from "@/base/live/session";
import { IconButton, Sparkline } from "@/base/ui/controls";
import { useShared } from "@/features/overview/context";
import type { Numbers as Values } from "@/features/overview/numbers";
import { NumberHistory } from "@/features/overview/numbers";
import { useOverview } from "@/features/overview/store";
import { ViewPicker } from "@/features/overview/views/ViewPicker";
import styles from "@/features/overview/Numbers.module.css";
import { overviewTexts as texts } from "@/texts";

type SummaryRow = Document<"SummaryRow">;

const SHOWN: { key: keyof Values; label: string; unit: string; kind: string }[] = [
  { key: "gpus", label: "GPUs", unit: "", kind: "" },
  { key: "allocated", label: "allocated", unit: "", kind: "allocated" },
  { key: "idle", label: "idle", unit: "", kind: "idle" },
  { key: "wholeHosts", label: texts.wholeHostsIdle, unit: "", kind: "idle" },
  { key: "broken", label: texts.outOfService, unit: "", kind: "broken" },
  { key: "waitingWorkloads", label: texts.workloadsWaiting, unit: "", kind: "waiting" },
  { key: "waitingGpus", label: texts.gpusRequested, unit: "", kind: "waiting" },
  { key: "meanUtil", label: texts.meanUtilization, unit: "%", kind: "" },
];
const KEPT = 120;

/** The numbers beside the picture, in the current filter, each with its recent history. */
export function Numbers() {
  const numbers = useOverview((state) => state.numbers);
  const filter = useOverview((state) => state.view.filter);
  const filterKey = JSON.stringify(filter);
  const history = useHistory(filterKey, numbers);
  return (
    <section
      className={styles["numbers"]}
      aria-label={filter.length > 0 ? texts.totalsWithinTheFilter : texts.clusterTotals}
    >
      <ViewPicker />
      {SHOWN.map(({ key, label, unit, kind }) => (
        <div
          key={key}
          className={styles["number"]}
          data-testid={`number-${key}`}
          data-value={numbers?.[key] ?? ""}
        >
          <strong>{shown(numbers?.[key] ?? null, unit)}</strong>
          <span data-kind={kind}>{label}</span>
          <Sparkline
            values={history.line(key)}
            label={texts.recentHistoryOf(label)}
            {...(key === "meanUtil" ? { range: [0, 100] as const } : {})}
          />
        </div>
      ))}
      {filter.length > 0 && <span className={styles["badge"]}>{texts.filtered}</span>}
    </section>
  );
}

/** Zoom, fit and pack anew, over the canvas. */
export function ZoomButtons() {
  const { engine } = useShared();
  return (
    <div className={styles["zoom-buttons"]} role="group" aria-label={texts.zoom}>
      <IconButton
        icon="minus"
        label={texts.zoomOut}
        onClick={() => engine.current?.stage.zoomAt(1 / 1.5)}
      />
      <IconButton
        icon="plus"
        label={texts.zoomIn}
        onClick={() => engine.current?.stage.zoomAt(1.5)}
      />
      <IconButton icon="fit" label={texts.fitToView} onClick={() => engine.current?.stage.fit()} />
      <IconButton icon="pack" label={texts.repack} onClick={() => engine.current?.repack()} />
    </div>
  );
}

function shown(value: number | null, unit: string): string {
  if (value === null) return "–";
  return unit === "%" ? `${value.toFixed(0)}\u2009%` : formatCount(value);
}

/** Seeded from the server's summary where there is no filter; then it grows with every tick. */
function useHistory(filterKey: string, numbers: Values | null): NumberHistory {
  const [history, setHistory] = useState(() => new NumberHistory(KEPT));
  const past = useQuery({
    queryKey: ["summary"],
    queryFn: () => getJson<Document<"SummaryTable">>("/summary", { points: 90 }),
    staleTime: Infinity,
  });
  useEffect(() => {
    const fresh = new NumberHistory(KEPT);
    if (filterKey === "[]" && past.data) fresh.seed(past.data.rows.map(numbersOf));
    setHistory(fresh);
  }, [filterKey, past.data]);
  // The small lines are of now; a picture of the past leaves them as they are.
  const live = useLive((state) => state.at === null);
  useEffect(() => {
    if (numbers && live) history.add(numbers);
  }, [history, numbers, live]);
  return history;
}

function numbersOf(row: SummaryRow): Values {
  return {
    gpus: row.gpus,
    allocated: row.allocated,
    idle: row.idle,
    broken: row.broken,
    wholeHosts: null,
    waitingWorkloads: row.waiting,
    waitingGpus: row.waiting_gpus,
    meanUtil: row.util,
  };
}
