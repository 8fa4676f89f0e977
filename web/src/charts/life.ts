/** A life as a strip: its phases, what happened on it, and progress above. */

import { sparklinePath } from "@/base/sparkline";

export interface LifeSpan {
  phase: string;
  from: number;
  to: number;
  text: string;
}

export interface LifeEvent {
  time: number;
  kind: string;
  text: string;
}

export interface Life {
  spans: readonly LifeSpan[];
  events: readonly LifeEvent[];
  progress: readonly { time: number; value: number | null }[];
}

export const PHASE_COLOURS: Readonly<Record<string, string>> = {
  waiting: "var(--line-strong)",
  initialisation: "#8ea3c8",
  training: "var(--good)",
  evaluation: "#56b4e9",
  checkpoint: "#cc79a7",
  pause: "var(--warn)",
  stall: "var(--alert)",
};
const EVENT_COLOURS: Readonly<Record<string, string>> = {
  xid: "var(--alert)",
  throttle: "var(--warn)",
  node_down: "var(--alert)",
  node_drain: "var(--warn)",
};
const WIDTH = 1000;
const HEIGHT = 46;
const MOST_EVENTS = 200;

/** From a time to its place on the strip; waiting, often much longer than the run, gets a fifth at most. */
export function lifeScale(spans: readonly LifeSpan[]): (time: number) => number {
  const [begin, end] = [spans[0].from, spans[spans.length - 1].to];
  const start = spans[0].phase === "waiting" ? spans[0].to : begin;
  const waited = ((start - begin) / Math.max(1, end - begin)) * WIDTH;
  const waiting = start <= begin ? 0 : spans.length === 1 ? WIDTH : Math.min(WIDTH / 5, waited);
  return (time) => {
    if (time <= start)
      return start > begin ? (Math.max(0, time - begin) / (start - begin)) * waiting : 0;
    return waiting + Math.min(1, (time - start) / Math.max(1, end - start)) * (WIDTH - waiting);
  };
}

/** Narrower than this a phase cannot be told from its neighbours. */
const COLUMN = 4;

/** Spans as they are drawn: those too narrow to be told apart become one, of the phase that takes most of it. */
export function mergeNarrow(
  spans: readonly LifeSpan[],
  place: (time: number) => number,
): LifeSpan[] {
  const merged: LifeSpan[] = [];
  let narrow: LifeSpan[] = [];
  const finish = () => {
    if (narrow.length > 0) merged.push(dominant(narrow));
    narrow = [];
  };
  for (const span of spans) {
    if (place(span.to) - place(span.from) >= COLUMN) {
      finish();
      merged.push(span);
      continue;
    }
    narrow.push(span);
    if (place(span.to) - place(narrow[0].from) >= COLUMN) finish();
  }
  finish();
  return merged;
}

/** One span over several, with the phase and the text of what they mostly are. */
function dominant(spans: readonly LifeSpan[]): LifeSpan {
  const length = (span: LifeSpan) => span.to - span.from;
  const total = (phase: string) =>
    spans.reduce((sum, span) => sum + (span.phase === phase ? length(span) : 0), 0);
  const [most] = [...spans].sort(
    (a, b) => total(b.phase) - total(a.phase) || length(b) - length(a),
  );
  return { ...most, from: spans[0].from, to: spans[spans.length - 1].to };
}

/** Draw into an SVG element, over whatever it held. */
export function drawLife(svg: SVGSVGElement, { spans, events, progress }: Life): void {
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  if (spans.length === 0) return;
  const place = lifeScale(spans);
  for (const span of mergeNarrow(spans, place))
    add(
      svg,
      place(span.from),
      24,
      Math.max(0.8, place(span.to) - place(span.from)),
      14,
      PHASE_COLOURS[span.phase] ?? "var(--muted)",
      span.text,
    );
  if (progress.length > 1) {
    const [first, last] = [place(progress[0].time), place(progress[progress.length - 1].time)];
    const line = element(svg, "path");
    line.setAttribute("class", "progress-line");
    line.setAttribute("transform", `translate(${first} 2)`);
    line.setAttribute(
      "d",
      sparklinePath(
        progress.map((one) => one.value),
        last - first,
        18,
      ),
    );
  }
  for (const event of events.slice(0, MOST_EVENTS))
    add(
      svg,
      place(event.time) - 1,
      20,
      2.4,
      22,
      EVENT_COLOURS[event.kind] ?? "var(--text)",
      event.text,
    );
}

function add(
  svg: SVGSVGElement,
  x: number,
  y: number,
  width: number,
  height: number,
  fill: string,
  text: string,
): void {
  const rect = element(svg, "rect");
  for (const [name, value] of Object.entries({ x, y, width, height }))
    rect.setAttribute(name, value.toFixed(2));
  rect.style.fill = fill;
  const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
  title.textContent = text;
  rect.append(title);
}

function element(svg: SVGSVGElement, name: "rect" | "path"): SVGElement {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  svg.append(made);
  return made;
}
