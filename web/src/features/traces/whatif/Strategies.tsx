import { useState } from "react";
import { formatNs } from "@/charts/marey/window";
import type { PlainStep, Strategy, Word } from "@/features/traces/whatif/queries";
import { useSearch } from "@/features/traces/whatif/queries";
import { formatBytes } from "@/features/traces/words";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/traces/whatif/WhatIf.module.css";
import { whatIfTexts as texts } from "@/texts";

const BUDGET_S = 20;
const GIGABYTE = 1e9;

/** The optimizer: what is worth changing, best first, each to be tried in the picture. */
export function Strategies({
  run,
  plain,
  words,
  chosen,
  onTry,
}: {
  run: string;
  plain: PlainStep;
  words: readonly Word[];
  chosen: string;
  onTry: (changes: readonly string[]) => void;
}) {
  const [memory, setMemory] = useState("");
  const [bold, setBold] = useState(false);
  const search = useSearch(run, plain);
  const always = words.filter((word) => word.searched === "always").map(({ word }) => word);
  const more = words.filter((word) => word.searched === "on request").map(({ word }) => word);
  const begin = () =>
    search.start.mutate({
      memory_bytes: Number(memory) > 0 ? Number(memory) * GIGABYTE : null,
      allowed: bold ? [...always, ...more] : always,
      budget_s: BUDGET_S,
    });
  const { task } = search;
  return (
    <section className={styles["strategies"]} aria-label={texts.strategies}>
      <h3>{texts.strategies}</h3>
      <p className={ui["muted"]}>{texts.strategiesExplained}</p>
      <div className={styles["line"]}>
        <label className={ui["field"]}>
          <span>{texts.memoryLimit}</span>
          <input
            type="number"
            min={0}
            value={memory}
            placeholder={texts.noLimit}
            onChange={(event) => setMemory(event.target.value)}
          />
        </label>
        {search.running ? (
          <button className={ui["button"]} type="button" onClick={() => search.stop.mutate()}>
            {texts.cancel}
          </button>
        ) : (
          <button className={ui["button"]} type="button" onClick={begin}>
            {texts.findStrategies}
          </button>
        )}
      </div>
      <label className={ui["toggle"]} title={more.join(", ")}>
        <input type="checkbox" checked={bold} onChange={(event) => setBold(event.target.checked)} />
        {texts.alsoTraining}
      </label>
      {search.running && (
        <progress
          value={task?.done ?? 0}
          max={task?.total ?? BUDGET_S}
          aria-label={texts.searching}
        />
      )}
      {task?.state === "cancelled" && <p role="status">{texts.cancelled}</p>}
      {(search.error || task?.state === "failed") && (
        <p role="alert">{search.error?.message ?? task?.error}</p>
      )}
      {task?.result && (
        <div data-testid="strategies">
          <p role="status">
            {texts.tried(task.result.tried)}
            {task.result.excluded_by_memory > 0 &&
              ` ${texts.excludedByMemory(task.result.excluded_by_memory)}`}
            {!task.result.finished && ` ${texts.notFinished}`}
          </p>
          {task.result.proposals.length === 0 && <p role="status">{texts.nothingWorthChanging}</p>}
          <ol className={styles["proposals"]}>
            {task.result.proposals.map((one) => (
              <Proposal
                key={one.changes.join(";")}
                strategy={one}
                pressed={one.changes.join(";") === chosen}
                onTry={() => onTry(one.changes)}
              />
            ))}
          </ol>
        </div>
      )}
    </section>
  );
}

function Proposal({
  strategy,
  pressed,
  onTry,
}: {
  strategy: Strategy;
  pressed: boolean;
  onTry: () => void;
}) {
  const time = (ms: number) => formatNs(ms * 1e6);
  return (
    <li>
      <button type="button" aria-pressed={pressed} onClick={onTry}>
        <b>{texts.gain(Math.round(strategy.gain * 1000) / 10)}</b>{" "}
        <code>{strategy.changes.join(" ")}</code>
      </button>
      <p className={ui["muted"]}>
        {texts.interval(time(strategy.predicted_ms), time(strategy.low_ms), time(strategy.high_ms))}
        {strategy.peak_bytes !== null && ` ${texts.peak(formatBytes(strategy.peak_bytes))}`}
      </p>
      <ul>
        {strategy.how.map((how) => (
          <li key={how}>
            <code>{how}</code>
          </li>
        ))}
      </ul>
    </li>
  );
}
