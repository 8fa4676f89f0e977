import type { KeyboardEvent, PointerEvent } from "react";
import { useEffect, useMemo, useRef, useState } from "react";
import { formatTime } from "@/base/format";
import type { LiveSession } from "@/base/live/session";
import { useLive } from "@/base/live/session";
import { IconButton, Select } from "@/base/ui/controls";
import { useFullness, useHistorySpan, useMarks } from "@/features/timetravel/marks";
import type { Direction, Mark, Span } from "@/features/timetravel/walk";
import {
  advance,
  areaPath,
  clamp,
  dragStep,
  fromField,
  groupMarks,
  keyStep,
  nextMark,
  SPANS,
  SPEEDS,
  toField,
} from "@/features/timetravel/walk";
import pageStyles from "@/base/ui/page.module.css";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/timetravel/TimeTravel.module.css";
import { timetravelTexts as texts } from "@/texts";

const COLUMNS = 300;
const HEIGHT = 34;
// Between two pictures of a play: more than eight a second is more than anybody sees.
const FRAME_MS = 120;

/** The strip under the canvas: any past moment, played forward and backward, jumped to by what happened. */
export function TimeTravel({ session, onClose }: { session: LiveSession; onClose: () => void }) {
  const { at, travelling, travelProblem } = useLive();
  const [seconds, setSeconds] = useState("86400");
  const history = useHistorySpan(true);
  const span = useSpan(history.data ?? null, Number(seconds), at);
  const marks = useMarks(span).data ?? [];
  const [playing, setPlaying] = useState<Direction | 0>(0);
  const [speed, setSpeed] = useState("300");
  usePlay(session, span, playing, Number(speed), () => setPlaying(0));
  const go = (timeMs: number | null, stepS = 0) => {
    setPlaying(0);
    void session.travel(timeMs, stepS);
  };
  const close = () => {
    go(null);
    onClose();
  };
  if (history.isError) return <Bar close={close} problem={history.error.message} />;
  if (!span) return <Bar close={close} problem={history.isPending ? "" : texts.noHistoryYet} />;
  const here = at ?? span.toMs;
  const before = nextMark(marks, here, -1);
  const after = at === null ? null : nextMark(marks, here, 1);
  const play = (direction: Direction) => setPlaying(playing === direction ? 0 : direction);
  return (
    <section className={styles["time-travel"]} aria-label={texts.timeTravel} data-testid="timeline">
      <div className={styles["time-controls"]}>
        <IconButton
          icon="left"
          label={before ? texts.previousEvent(before.text) : texts.noEarlierEvents}
          disabled={!before}
          onClick={() => before && go(before.timeMs)}
          data-testid="mark-before"
        />
        <IconButton
          icon={playing === -1 ? "pause" : "back"}
          label={playing === -1 ? texts.pause : texts.playBackward}
          pressed={playing === -1}
          onClick={() => play(-1)}
          data-testid="play-back"
        />
        <IconButton
          icon={playing === 1 ? "pause" : "play"}
          label={playing === 1 ? texts.pause : texts.playForward}
          pressed={playing === 1}
          disabled={at === null}
          onClick={() => play(1)}
          data-testid="play-forward"
        />
        <IconButton
          icon="right"
          label={after ? texts.nextEvent(after.text) : texts.noLaterEvents}
          disabled={!after}
          onClick={() => after && go(after.timeMs)}
          data-testid="mark-after"
        />
        <Select label={texts.speed} hideLabel value={speed} options={SPEEDS} onChange={setSpeed} />
      </div>
      <Strip span={span} at={at} marks={marks} onGo={go} />
      <div className={styles["time-controls"]}>
        <Select
          label={texts.span}
          hideLabel
          value={seconds}
          options={SPANS}
          onChange={setSeconds}
        />
        <label className={ui["visually-hidden"]} htmlFor="travel-time">
          {texts.time}
        </label>
        <input
          id="travel-time"
          type="datetime-local"
          step={15}
          value={toField(here)}
          min={history.data?.first_ms ? toField(history.data.first_ms) : undefined}
          max={toField(history.data?.time_ms ?? span.toMs)}
          onChange={(event) => {
            const timeMs = fromField(event.target.value);
            if (timeMs !== null) go(timeMs);
          }}
        />
        <button
          type="button"
          className={ui["button"]}
          aria-pressed={at === null}
          onClick={() => go(null)}
          data-testid="go-live"
        >
          {texts.live}
        </button>
        <IconButton icon="close" label={texts.closeTimeTravelAndReturnTo} onClick={close} />
      </div>
      <p className={styles["time-said"]} data-testid="time-said" role="status">
        {travelProblem || (travelling ? texts.loadingThatMoment : "")}
      </p>
    </section>
  );
}

function Bar({ close, problem }: { close: () => void; problem: string }) {
  return (
    <section className={styles["time-travel"]} aria-label={texts.timeTravel} data-testid="timeline">
      <p role="status">{problem || texts.loadingTheRangeOfHistory}</p>
      <span className={pageStyles["spring"]} />
      <IconButton icon="close" label={texts.closeTimeTravel} onClick={close} />
    </section>
  );
}

/** The span that the strip shows: up to now, or around a moment that lies before that. */
function useSpan(
  history: { first_ms: number | null; time_ms: number } | null,
  seconds: number,
  at: number | null,
): Span | null {
  const first = history?.first_ms ?? null;
  const now = history?.time_ms ?? null;
  // While the strip stays, so does its span; a moment outside of it moves it.
  const [kept, setKept] = useState<Span | null>(null);
  useEffect(() => {
    if (first === null || now === null) return;
    const width =
      seconds > 0
        ? Math.min(seconds * 1000, Math.max(60_000, now - first))
        : Math.max(60_000, now - first);
    setKept((before) => {
      const inside = at === null || (before !== null && at >= before.fromMs && at <= before.toMs);
      if (
        before &&
        inside &&
        Math.abs(before.toMs - before.fromMs - width) < 1 &&
        (at !== null || now - before.toMs < 60_000)
      )
        return before;
      const fromMs =
        at === null ? now - width : Math.max(first, Math.min(now - width, at - width / 2));
      return { fromMs, toMs: fromMs + width };
    });
  }, [first, now, seconds, at]);
  return kept;
}

/** Moves on while playing; each picture is waited for, so a slow server is played slower, not skipped. */
function usePlay(
  session: LiveSession,
  span: Span | null,
  direction: Direction | 0,
  speed: number,
  onEnd: () => void,
): void {
  const end = useRef(onEnd);
  useEffect(() => {
    end.current = onEnd;
  });
  useEffect(() => {
    if (direction === 0 || !span) return;
    let stopped = false;
    const play = async () => {
      let last = performance.now();
      while (!stopped) {
        await new Promise((resolve) => setTimeout(resolve, FRAME_MS));
        const now = performance.now();
        const from = useLive.getState().at ?? span.toMs;
        const { atMs, ended } = advance(from, direction, speed, Math.min(1000, now - last), span);
        last = now;
        if (stopped) return;
        await session.travel(ended && direction > 0 ? null : atMs);
        if (ended) return end.current();
      }
    };
    void play();
    return () => {
      stopped = true;
    };
  }, [session, span, direction, speed]);
}

function Strip({
  span,
  at,
  marks,
  onGo,
}: {
  span: Span;
  at: number | null;
  marks: readonly Mark[];
  onGo: (timeMs: number | null, stepS?: number) => void;
}) {
  const fullness = useFullness(span);
  const path = useMemo(
    () => areaPath(fullness.data ?? [], span, 1000, HEIGHT),
    [fullness.data, span],
  );
  const groups = useMemo(() => groupMarks(marks, span, COLUMNS), [marks, span]);
  const here = at ?? span.toMs;
  const share = (timeMs: number) => (timeMs - span.fromMs) / Math.max(1, span.toMs - span.fromMs);
  const dragged = useRef(false);
  const timeAt = (event: PointerEvent<HTMLDivElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    const place = (event.clientX - box.left) / Math.max(1, box.width);
    return Math.round(clamp(span.fromMs + place * (span.toMs - span.fromMs), span));
  };
  const pressed = (event: KeyboardEvent<HTMLDivElement>) => {
    const step = keyStep(event.key, span);
    if (step === null) return;
    event.preventDefault();
    onGo(clamp(here + step, span));
  };
  return (
    <div
      className={styles["time-strip"]}
      role="slider"
      tabIndex={0}
      aria-label={texts.timeShown}
      aria-valuemin={span.fromMs}
      aria-valuemax={span.toMs}
      aria-valuenow={Math.round(here)}
      aria-valuetext={at === null ? texts.liveLower : formatTime(at)}
      data-testid="strip"
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        onGo(timeAt(event));
      }}
      onPointerMove={(event) => {
        if (event.buttons !== 1) return;
        dragged.current = true;
        onGo(timeAt(event), dragStep(span));
      }}
      onPointerUp={(event) => {
        if (dragged.current) onGo(timeAt(event));
        dragged.current = false;
      }}
      onKeyDown={pressed}
    >
      <svg viewBox={`0 0 1000 ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
        <path className={styles["fullness"]} d={path} />
      </svg>
      {groups.map((group) => (
        <i
          key={group.timeMs}
          className={styles["time-mark"]}
          data-kind={group.kind === "finding" ? "finding" : "event"}
          style={{ left: `${100 * share(group.timeMs)}%` }}
          title={`${formatTime(group.timeMs)} · ${group.text}${group.count > 1 ? texts.andMore(group.count - 1) : ""}`}
        />
      ))}
      <i
        className={styles["time-handle"]}
        style={{ left: `${100 * Math.max(0, Math.min(1, share(here)))}%` }}
      />
      <span className={styles["time-from"]}>{formatTime(span.fromMs)}</span>
      <span className={styles["time-legend"]}>{texts.gpusAllocated0100}</span>
      <span className={styles["time-to"]}>{formatTime(span.toMs)}</span>
    </div>
  );
}
