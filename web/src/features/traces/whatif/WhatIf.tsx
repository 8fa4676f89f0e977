import { useEffect, useMemo, useState } from "react";
import { IconButton } from "@/base/ui/controls";
import { Permitted } from "@/base/ui/Permitted";
import { formatNs } from "@/charts/marey/window";
import type { Change } from "@/features/traces/whatif/changes";
import { parseChanges, printChange, printChanges } from "@/features/traces/whatif/changes";
import { Controls } from "@/features/traces/whatif/Controls";
import { Kept } from "@/features/traces/whatif/Kept";
import { MemoryView } from "@/features/traces/whatif/MemoryView";
import { PairView } from "@/features/traces/whatif/PairView";
import type { PlainStep, Prediction, Replay } from "@/features/traces/whatif/queries";
import { useKeep, usePrediction, useReplay, useTimeline } from "@/features/traces/whatif/queries";
import { Strategies } from "@/features/traces/whatif/Strategies";
import { formatBytes } from "@/features/traces/words";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/traces/whatif/WhatIf.module.css";
import { whatIfTexts as texts } from "@/texts";

/** What was said of runs while this page was open. */
const PLAIN_STEPS = new Map<string, PlainStep>();

/** A slider that moves asks once it rests. */
const REST_MS = 180;

interface WhatIfProps {
  run: string;
  /** The changes as they stand in the address. */
  text: string;
  onChange: (text: string) => void;
  onClose: () => void;
}

/** Beside the picture: what the step would take if something were changed. */
export function WhatIf({ run, text, onChange, onClose }: WhatIfProps) {
  const [plain, setPlain] = useState<PlainStep>(() => PLAIN_STEPS.get(run) ?? null);
  const replay = useReplay(run, useRested(plain));
  const know = (ms: PlainStep) => {
    PLAIN_STEPS.set(run, ms);
    setPlain(ms);
  };
  return (
    <aside className={styles["panel"]} aria-label={texts.whatIf} data-testid="what-if">
      <header className={styles["head"]}>
        <h2>{texts.whatIf}</h2>
        <IconButton icon="close" label={texts.close} onClick={onClose} />
      </header>
      {replay.isPending && <p role="status">{texts.replaying}</p>}
      {replay.isError && (
        <div role="alert" data-testid="what-if-refused">
          <p>{texts.cannotReplay}</p>
          <p>{replay.error.message}</p>
        </div>
      )}
      {replay.data && (
        <Answered
          run={run}
          replay={replay.data}
          plain={plain}
          text={text}
          onChange={onChange}
          onPlain={know}
        />
      )}
    </aside>
  );
}

function Answered({
  run,
  replay,
  plain,
  text,
  onChange,
  onPlain,
}: Omit<WhatIfProps, "onClose"> & {
  replay: Replay;
  plain: PlainStep;
  onPlain: (ms: PlainStep) => void;
}) {
  const [changes, setChanges] = useState<Change[]>(() => parseChanges(text));
  const rested = useRested(changes);
  const asked = useMemo(() => rested.map(printChange), [rested]);
  const prediction = usePrediction(run, asked, { plain: useRested(plain) });
  const timeline = useTimeline(run, asked, !prediction.isError);
  // A link or a strategy sets the changes from outside.
  useEffect(() => {
    setChanges((now) => (printChanges(now) === text ? now : parseChanges(text)));
  }, [text]);
  const change = (next: Change[]) => {
    setChanges(next);
    onChange(printChanges(next));
  };
  return (
    <>
      <Number
        replay={replay}
        prediction={prediction.isError ? undefined : prediction.data}
        busy={prediction.isFetching || rested !== changes}
      />
      {prediction.isError && (
        <p role="alert" className={styles["refused"]} data-testid="what-if-refused">
          {prediction.error.message}
        </p>
      )}
      <label className={ui["field"]} title={texts.plainStepExplained}>
        <span>{texts.plainStep}</span>
        <input
          type="number"
          min={0}
          value={plain ?? ""}
          placeholder={texts.notKnown}
          data-testid="what-if-plain"
          onChange={({ target }) => onPlain(target.valueAsNumber > 0 ? target.valueAsNumber : null)}
        />
      </label>
      {changes.length > 0 && (
        <p className={styles["line"]}>
          <code data-testid="what-if-changes">{changes.map(printChange).join(" ")}</code>
          <button className={ui["link"]} type="button" onClick={() => change([])}>
            {texts.reset}
          </button>
        </p>
      )}
      {timeline.data && !prediction.isError && <PairView timeline={timeline.data} />}
      {prediction.data && !prediction.isError && changes.length > 0 && (
        <Facts
          key={prediction.data.changes.join(";")}
          run={run}
          plain={plain}
          prediction={prediction.data}
          replay={replay}
        />
      )}
      <Memory
        before={replay.memory}
        after={prediction.data && !prediction.isError ? prediction.data.memory : replay.memory}
      />
      <Kept run={run} onTry={(next) => change(parseChanges(next.join(";")))} />
      <Permitted to="contribute">
        <Strategies
          run={run}
          plain={plain}
          words={replay.words}
          chosen={printChanges(changes)}
          onTry={(next) => change(parseChanges(next.join(";")))}
        />
      </Permitted>
      <h3>{texts.changes}</h3>
      <Controls
        words={replay.words}
        strategy={replay.strategy}
        changes={changes}
        onChange={change}
      />
    </>
  );
}

/** The value once it has not changed for a moment. */
function useRested<T>(value: T): T {
  const [rested, setRested] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setRested(value), REST_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return rested;
}

const time = (ms: number): string => formatNs(ms * 1e6);

/** The one figure: the step now, the step then, and how sure that is. */
function Number({
  replay,
  prediction,
  busy,
}: {
  replay: Replay;
  prediction: Prediction | undefined;
  busy: boolean;
}) {
  const changed = prediction && prediction.changes.length > 0;
  return (
    <div className={styles["number"]} role="status" aria-busy={busy} data-testid="what-if-number">
      {!changed && (
        <>
          <b>{time(replay.plain_step_ms ?? replay.recorded_step_ms)}</b>
          <span>{replay.plain_step_ms === null ? texts.perStep : texts.perPlainStep}</span>
          <p className={ui["muted"]}>
            {texts.reproduced(replay.strategy, (100 * Math.abs(replay.error)).toFixed(1))}
          </p>
        </>
      )}
      {changed && (
        <>
          <b>{time(prediction.predicted_ms)}</b>
          <span>{texts.insteadOf(time(prediction.base_ms))}</span>
          <b data-better={prediction.speedup >= 1 ? "" : undefined}>
            {texts.gain(Math.round((1 - 1 / prediction.speedup) * 1000) / 10)}
          </b>
          <p className={ui["muted"]}>
            {texts.inEightOfTen(time(prediction.low_ms), time(prediction.high_ms))}
            {prediction.samples !== 1 && ` ${texts.samples(prediction.samples)}`}
          </p>
        </>
      )}
    </div>
  );
}

/** What fills the memory of the ranks, where the trace says. */
function Memory({ before, after }: { before: Replay["memory"]; after: Replay["memory"] }) {
  if (!before) return null;
  return (
    <details className={styles["group"]} open>
      <summary>{texts.memory}</summary>
      {after ? <MemoryView before={before} after={after} /> : <p>{texts.memoryNotKnown}</p>}
    </details>
  );
}

/** What the number rests on, and how the changes are made. */
function Facts({
  run,
  plain,
  prediction,
  replay,
}: {
  run: string;
  plain: PlainStep;
  prediction: Prediction;
  replay: Replay;
}) {
  const keep = useKeep(run, plain);
  const peaks = (of: Record<string, number> | null) =>
    of === null ? null : Math.max(0, ...Object.values(of));
  const [now, then] = [peaks(replay.peak_bytes), peaks(prediction.peak_bytes)];
  return (
    <details className={styles["group"]} open>
      <summary>{texts.howAndWhy}</summary>
      <ul className={styles["how"]}>
        {prediction.how.map((how) => (
          <li key={how}>
            <code>{how}</code>
          </li>
        ))}
      </ul>
      {prediction.extrapolated.length > 0 && (
        <p role="note">{texts.extrapolated(prediction.extrapolated.join("; "))}</p>
      )}
      {now !== null && then !== null && (
        <p>{texts.peakMemory(formatBytes(now), formatBytes(then))}</p>
      )}
      <PathTable before={replay.critical_path} after={prediction.critical_path} />
      <Permitted to="contribute">
        <p>
          <button
            className={ui["button"]}
            type="button"
            disabled={keep.isPending || keep.isSuccess}
            onClick={() => keep.mutate(prediction.changes)}
          >
            {keep.isSuccess ? texts.kept : texts.keep}
          </button>{" "}
          <span className={ui["muted"]}>{texts.keepExplained}</span>
        </p>
      </Permitted>
      {keep.isError && <p role="alert">{keep.error.message}</p>}
    </details>
  );
}

type Path = Replay["critical_path"];

/** What the step's end waits for, before and after. */
function PathTable({ before, after }: { before: Path; after: Path }) {
  const name = (part: Path[number]) =>
    part.rank === null ? part.what : `${texts.rank(part.rank)}: ${part.what}`;
  const sides = [before, after].map((path) => new Map(path.map((part) => [name(part), part.ms])));
  const names = [...new Set([...sides[0].keys(), ...sides[1].keys()])]
    .sort((a, b) => most(b) - most(a))
    .slice(0, 10);
  function most(key: string): number {
    return Math.max(sides[0].get(key) ?? 0, sides[1].get(key) ?? 0);
  }
  return (
    <table className={styles["path"]} data-testid="what-if-path">
      <caption>{texts.criticalPath}</caption>
      <thead>
        <tr>
          <th scope="col">{texts.work}</th>
          <th scope="col">{texts.recorded}</th>
          <th scope="col">{texts.predicted}</th>
          <th scope="col">{texts.difference}</th>
        </tr>
      </thead>
      <tbody>
        {names.map((key) => {
          const [a, b] = sides.map((side) => side.get(key) ?? 0);
          return (
            <tr key={key}>
              <th scope="row">{key}</th>
              <td>{time(a)}</td>
              <td>{time(b)}</td>
              <td>{`${b > a ? "+" : b < a ? "−" : ""}${time(Math.abs(b - a))}`}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
