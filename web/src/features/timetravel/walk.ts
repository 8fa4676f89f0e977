/** Moving through the past: how far a step goes, where the next mark is, what a strip shows. */

import { timetravelTexts as texts } from "@/texts";
export type Direction = 1 | -1;

export interface Span {
  fromMs: number;
  toMs: number;
}

/** A moment worth jumping to. */
export interface Mark {
  timeMs: number;
  kind: string;
  text: string;
}

/** Marks that fall into the same few pixels. */
export interface MarkGroup {
  timeMs: number;
  count: number;
  kind: string;
  text: string;
}

/** Cluster time that passes in a second of playing. */
export const SPEEDS = [
  { value: "60", label: texts.n1MinS },
  { value: "300", label: texts.n5MinS },
  { value: "900", label: texts.n15MinS },
  { value: "3600", label: "1 h/s" },
] as const;

export const SPANS = [
  { value: "3600", label: "1 h" },
  { value: "21600", label: "6 h" },
  { value: "86400", label: "24 h" },
  { value: "604800", label: texts.n7Days },
  { value: "0", label: "all" },
] as const;

export function clamp(timeMs: number, span: Span): number {
  return Math.min(Math.max(timeMs, span.fromMs), span.toMs);
}

// Pictures that a strip has while it is dragged: one every few pixels.
const DRAGGED_PICTURES = 240;

/** Seconds of history between two pictures of a drag over a span. */
export function dragStep(span: Span): number {
  return Math.max(1, Math.round((span.toMs - span.fromMs) / 1000 / DRAGGED_PICTURES));
}

/** Where playing has come to after so much of the reader's time, and whether that is the end. */
export function advance(
  atMs: number,
  direction: Direction,
  speed: number,
  elapsedMs: number,
  span: Span,
): { atMs: number; ended: boolean } {
  const next = atMs + direction * speed * elapsedMs;
  return {
    atMs: clamp(next, span),
    ended: direction > 0 ? next >= span.toMs : next <= span.fromMs,
  };
}

/** The nearest mark on one side, or null. */
export function nextMark(marks: readonly Mark[], atMs: number, direction: Direction): Mark | null {
  let best: Mark | null = null;
  for (const mark of marks) {
    const distance = (mark.timeMs - atMs) * direction;
    if (distance > 0 && (best === null || distance < (best.timeMs - atMs) * direction)) best = mark;
  }
  return best;
}

/** Marks by place on a strip of so many columns; the first of each column is the one to jump to. */
export function groupMarks(marks: readonly Mark[], span: Span, columns: number): MarkGroup[] {
  const groups = new Map<number, MarkGroup>();
  const width = Math.max(1, span.toMs - span.fromMs);
  for (const mark of [...marks].sort((a, b) => a.timeMs - b.timeMs)) {
    if (mark.timeMs < span.fromMs || mark.timeMs > span.toMs) continue;
    const column = Math.min(
      columns - 1,
      Math.floor(((mark.timeMs - span.fromMs) / width) * columns),
    );
    const group = groups.get(column);
    if (group) group.count++;
    else groups.set(column, { timeMs: mark.timeMs, count: 1, kind: mark.kind, text: mark.text });
  }
  return [...groups.values()];
}

/** How a key moves along the strip, in milliseconds; null for a key that does not. */
export function keyStep(key: string, span: Span): number | null {
  const width = span.toMs - span.fromMs;
  const steps: Record<string, number> = {
    ArrowLeft: -15_000,
    ArrowDown: -15_000,
    ArrowRight: 15_000,
    ArrowUp: 15_000,
    PageDown: -600_000,
    PageUp: 600_000,
    Home: -width,
    End: width,
  };
  return steps[key] ?? null;
}

/** The area under a line of shares (0 to 1), as an SVG path; gaps stay empty. */
export function areaPath(
  points: readonly { timeMs: number; share: number | null }[],
  span: Span,
  width: number,
  height: number,
): string {
  const x = (timeMs: number) =>
    (((timeMs - span.fromMs) / Math.max(1, span.toMs - span.fromMs)) * width).toFixed(1);
  const y = (share: number) => (height * (1 - share)).toFixed(1);
  const parts: string[] = [];
  let run: { timeMs: number; share: number }[] = [];
  const close = () => {
    if (run.length > 0) {
      const line = run.map((point) => `L${x(point.timeMs)} ${y(point.share)}`).join("");
      parts.push(
        `M${x(run[0].timeMs)} ${height}${line}L${x(run[run.length - 1].timeMs)} ${height}Z`,
      );
    }
    run = [];
  };
  for (const point of points) {
    if (point.share === null || point.timeMs < span.fromMs || point.timeMs > span.toMs) close();
    else run.push({ timeMs: point.timeMs, share: point.share });
  }
  close();
  return parts.join("");
}

/** A time as a field of a form takes it, in the reader's zone. */
export function toField(timeMs: number): string {
  const local = new Date(timeMs - new Date(timeMs).getTimezoneOffset() * 60_000);
  return local.toISOString().slice(0, 19);
}

/** The time that a field holds, or null. */
export function fromField(text: string): number | null {
  const timeMs = new Date(text).getTime();
  return Number.isFinite(timeMs) ? timeMs : null;
}
