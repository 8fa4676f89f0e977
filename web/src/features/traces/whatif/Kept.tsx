import { formatTime } from "@/base/format";
import { IconButton } from "@/base/ui/controls";
import { formatNs } from "@/charts/marey/window";
import type { KeptPrediction } from "@/features/traces/whatif/queries";
import { useForget, useKept } from "@/features/traces/whatif/queries";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/traces/whatif/WhatIf.module.css";
import { whatIfTexts as texts } from "@/texts";

const time = (ms: number): string => formatNs(ms * 1e6);
const percent = (share: number): string => (100 * Math.abs(share)).toFixed(1);

/** Predictions that were kept, with what was measured since: how far this panel can be trusted. */
export function Kept({ run, onTry }: { run: string; onTry: (changes: readonly string[]) => void }) {
  const { data } = useKept();
  if (!data || data.predictions.length === 0) return null;
  const mine = data.predictions.filter((one) => one.run === run || one.measured_run === run);
  return (
    <details className={styles["group"]} data-testid="kept-predictions">
      <summary>
        {texts.keptPredictions}
        <span className={styles["count"]}>{mine.length}</span>
      </summary>
      <p className={ui["muted"]}>
        {data.mean_error === null || data.inside_interval === null
          ? texts.noneMeasured(data.predictions.length)
          : texts.measuredSoFar(
              data.measured,
              percent(data.mean_error),
              Math.round(100 * data.inside_interval),
            )}
      </p>
      <ol className={styles["proposals"]}>
        {mine.map((one) => (
          <Prediction key={one.id} one={one} run={run} onTry={onTry} />
        ))}
      </ol>
    </details>
  );
}

function Prediction({
  one,
  run,
  onTry,
}: {
  one: KeptPrediction;
  run: string;
  onTry: (changes: readonly string[]) => void;
}) {
  const forget = useForget();
  return (
    <li>
      <div className={styles["line"]}>
        {one.run === run ? (
          <button className={ui["link"]} type="button" onClick={() => onTry(one.changes)}>
            <code>{one.changes.join(" ")}</code>
          </button>
        ) : (
          <code>{one.changes.join(" ")}</code>
        )}
        {one.may_change && (
          <IconButton icon="close" label={texts.forget} onClick={() => forget.mutate(one.id)} />
        )}
      </div>
      <p className={ui["muted"]}>
        {texts.keptAs(
          formatTime(one.made_ms),
          time(one.predicted_ms),
          time(one.low_ms),
          time(one.high_ms),
        )}{" "}
        {one.measured_ms === null || one.error === null
          ? texts.notMeasured
          : texts.measured(
              time(one.measured_ms),
              `${one.error > 0 ? "+" : "−"}${percent(one.error)}`,
              one.inside === true,
            )}{" "}
        {one.run !== run && texts.measuredByThisRun}
      </p>
      {forget.isError && <p role="alert">{forget.error.message}</p>}
    </li>
  );
}
