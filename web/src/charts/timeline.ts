/** A timeline on uPlot: a band and its median behind, chosen lines before, marks across. */

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { formatDay, formatTimeOfDay } from "@/base/clock";
import { moved, zoomed } from "@/charts/span";
import type { Span } from "@/charts/span";
import { chartsTexts as texts } from "@/texts";

/** Null is no value: the line has a gap there. */
export type Values = readonly (number | null)[];

export interface Band {
  time_ms: readonly number[];
  low: Values;
  p10: Values;
  median: Values;
  p90: Values;
  high: Values;
}

export interface Line {
  label: string;
  colour: string;
  time_ms: readonly number[];
  value: Values;
}

export interface Mark {
  timeMs: number;
  colour: string;
  text: string;
}

export interface Shade {
  fromMs: number;
  toMs: number;
  colour: string;
  text: string;
}

export interface TimelineData {
  label: string;
  unit: string;
  range: readonly [number, number] | null;
  band: Band;
  lines: readonly Line[];
  marks: readonly Mark[];
  /** Moments lit from another view, as ticks on the time axis. */
  lit: readonly number[];
  shades: readonly Shade[];
  /** The span that the other parts are filtered by; what lies outside it is veiled. */
  window: Span | null;
}

export interface TimelineStyle {
  text: string;
  grid: string;
  band: string;
  faint: string;
  median: string;
  lit: string;
  veil: string;
}

export interface TimelineEvents {
  /** A span was brushed; null gives it up. */
  brush: (span: Span | null) => void;
  /** Another span is to be seen: zoomed or moved; null is all there is. */
  view: (span: Span | null) => void;
  /** What lies under the cursor, in words; empty when it has left. */
  tell: (text: string) => void;
}

export interface Timeline {
  plot: uPlot;
  /** Other values of the same lines. */
  update: (data: TimelineData) => void;
  /** See this span; null sees everything. */
  show: (span: Span | null) => void;
  destroy: () => void;
}

/** All series on one time axis, as uPlot takes them. */
export function joined(data: TimelineData): uPlot.AlignedData {
  const { band } = data;
  const seconds = (times: readonly number[]) => times.map((time) => time / 1000);
  const columns = [band.low, band.p10, band.median, band.p90, band.high];
  // The server gives lines at the band's moments; where it could not, they are joined.
  if (data.lines.every((line) => sameTimes(line.time_ms, band.time_ms)))
    return [
      seconds(band.time_ms),
      ...[...columns, ...data.lines.map((line) => line.value)].map(bridged),
    ] as uPlot.AlignedData;
  const tables = [
    [seconds(band.time_ms), ...columns],
    ...data.lines.map((line) => [seconds(line.time_ms), line.value]),
  ] as uPlot.AlignedData[];
  return uPlot.join(tables);
}

const SHORT_GAP = 3;

/**
 * Short runs without a value become `undefined`, which uPlot draws across: a metric that is sampled less often has no
 * gap.
 */
export function bridged(values: Values): (number | null | undefined)[] {
  if (!values.includes(null)) return values as (number | null)[];
  const found: (number | null | undefined)[] = [...values];
  let begin = 0;
  for (let i = 0; i <= values.length; i++) {
    if (i < values.length && values[i] === null) continue;
    if (i - begin <= SHORT_GAP && begin > 0 && i < values.length) found.fill(undefined, begin, i);
    begin = i + 1;
  }
  return found;
}

function sameTimes(a: readonly number[], b: readonly number[]): boolean {
  return a === b || (a.length === b.length && a[0] === b[0] && a[a.length - 1] === b[b.length - 1]);
}

const FONT = "11px system-ui, sans-serif";
const WHEEL_STEP = 1.25;

/** Draw into an element; the same lines take new values by `update`. */
export function drawTimeline(
  element: HTMLElement,
  first: TimelineData,
  style: TimelineStyle,
  size: { width: number; height: number },
  events: TimelineEvents,
): Timeline {
  let data = first;
  let shown: Span | null = null;
  const hidden = { stroke: "transparent", width: 0, points: { show: false } };
  const axis = {
    stroke: style.text,
    grid: { stroke: style.grid, width: 1 },
    ticks: { stroke: style.grid, width: 1 },
    font: FONT,
  };
  const line = (label: string, stroke: string, width: number) => ({
    label,
    stroke,
    width,
    points: { show: false },
  });
  const options: uPlot.Options = {
    ...size,
    legend: { show: false },
    cursor: {
      points: { show: false },
      drag: { x: true, y: false, setScale: false },
      // The crosshair is shared; brushes are not: one chart tells the page, the page tells all.
      sync: {
        key: "marey-timelines",
        filters: { pub: (type) => type === "mousemove" || type === "mouseleave", sub: () => true },
      },
      bind: {
        mousedown: (_plot, _target, handle) => (event) => (event.shiftKey ? null : handle(event)),
        dblclick: () => () => (events.brush(null), events.view(null), null),
      },
    },
    scales: {
      x: { time: true, auto: false, ...spanOf(data.band) },
      y: data.range ? { range: [data.range[0], data.range[1]] } : {},
    },
    axes: [
      { ...axis, values: (_plot, splits) => clockTexts(splits) },
      {
        ...axis,
        size: 56,
        label: `${data.label}${data.unit ? ` (${data.unit})` : ""}`,
        labelSize: 16,
        labelFont: FONT,
      },
    ],
    bands: [
      { series: [5, 1], fill: style.faint },
      { series: [4, 2], fill: style.band },
    ],
    series: [
      {},
      hidden,
      hidden,
      line("median", style.median, 1.4),
      hidden,
      hidden,
      ...data.lines.map((one) => line(one.label, one.colour, 1.2)),
    ],
    hooks: {
      setSelect: [
        (plot) => {
          if (plot.select.width >= 3)
            events.brush([
              plot.posToVal(plot.select.left, "x") * 1000,
              plot.posToVal(plot.select.left + plot.select.width, "x") * 1000,
            ]);
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
      setCursor: [
        (plot) =>
          events.tell(
            plot.cursor.left === undefined || plot.cursor.left < 0
              ? ""
              : describeCursor(plot, data),
          ),
      ],
      drawClear: [(plot) => shade(plot, data.shades)],
      draw: [(plot) => mark(plot, data, style), (plot) => veil(plot, data.window, style.veil)],
    },
  };
  const plot = new uPlot(options, joined(data), element);
  const now = (): Span => [(plot.scales["x"].min ?? 0) * 1000, (plot.scales["x"].max ?? 1) * 1000];
  const drop = listen(plot, now, events);
  const show = (span: Span | null) => {
    shown = span;
    const [min, max] = span ? [span[0] / 1000, span[1] / 1000] : Object.values(spanOf(data.band));
    plot.setScale("x", { min, max });
  };
  return {
    plot,
    update: (next) => {
      data = next;
      plot.setData(joined(next), false);
      show(shown);
    },
    show,
    destroy: () => {
      drop();
      plot.destroy();
    },
  };
}

function spanOf(band: Band): { min: number; max: number } {
  const [first, last] = [band.time_ms[0] ?? 0, band.time_ms[band.time_ms.length - 1] ?? 1];
  return { min: first / 1000, max: Math.max(last, first + 1) / 1000 };
}

/** Ctrl-wheel (and a pinch) zooms about the cursor, Shift-wheel and Shift-drag move. */
function listen(plot: uPlot, now: () => Span, events: TimelineEvents): () => void {
  const { over } = plot;
  const wheel = (event: WheelEvent) => {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey && event.deltaX === 0) return;
    event.preventDefault();
    const share = event.offsetX / Math.max(1, over.clientWidth);
    const amount = event.deltaY || event.deltaX;
    if (event.ctrlKey || event.metaKey)
      events.view(zoomed(now(), amount > 0 ? WHEEL_STEP : 1 / WHEEL_STEP, share));
    else events.view(moved(now(), Math.sign(event.deltaX || event.deltaY) * 0.1));
  };
  let from: { x: number; span: Span } | null = null;
  const down = (event: PointerEvent) => {
    if (!event.shiftKey) return;
    from = { x: event.clientX, span: now() };
    over.setPointerCapture(event.pointerId);
  };
  const drag = (event: PointerEvent) => {
    if (from)
      events.view(moved(from.span, (from.x - event.clientX) / Math.max(1, over.clientWidth)));
  };
  const up = () => (from = null);
  over.addEventListener("wheel", wheel, { passive: false });
  over.addEventListener("pointerdown", down);
  over.addEventListener("pointermove", drag);
  over.addEventListener("pointerup", up);
  return () => {
    over.removeEventListener("wheel", wheel);
    over.removeEventListener("pointerdown", down);
    over.removeEventListener("pointermove", drag);
    over.removeEventListener("pointerup", up);
  };
}

const NEAR_PX = 5;
const MOST_NAMED = 4;

/** Time, median and range under the cursor, the nearest lines, and what happened there. */
function describeCursor(plot: uPlot, data: TimelineData): string {
  const { idx, left = 0, top = 0 } = plot.cursor;
  if (idx === null || idx === undefined) return "";
  const second = plot.data[0][idx];
  const value = (series: number) => plot.data[series]?.[idx] ?? null;
  const number = (of: number | null) =>
    of === null ? "–" : `${Number(of.toPrecision(4))}${data.unit ? `\u2009${data.unit}` : ""}`;
  const parts = [
    texts.readout(
      formatTimeOfDay(second * 1000, true),
      number(value(3)),
      number(value(1)),
      number(value(5)),
    ),
  ];
  const near = data.lines
    .map((line, i) => ({ line, of: value(6 + i) }))
    .filter(({ of }) => of !== null && Math.abs(plot.valToPos(of, "y") - top) <= 3 * NEAR_PX)
    .slice(0, MOST_NAMED);
  parts.push(...near.map(({ line, of }) => `${line.label} ${number(of)}`));
  const at = (time: number) => plot.valToPos(time / 1000, "x");
  parts.push(
    ...data.marks
      .filter((one) => Math.abs(at(one.timeMs) - left) <= NEAR_PX)
      .slice(0, MOST_NAMED)
      .map((one) => one.text),
  );
  parts.push(
    ...data.shades
      .filter((one) => at(one.fromMs) <= left && left <= at(one.toMs))
      .slice(0, 2)
      .map((one) => one.text),
  );
  return parts.join(" · ");
}

/** The time of day in the reader's zone; the day where it changes, seconds where they matter. */
function clockTexts(seconds: readonly number[]): string[] {
  const fine = seconds.length > 1 && seconds[1] - seconds[0] < 60;
  const days = seconds.length > 1 && seconds[1] - seconds[0] >= 86_400;
  return seconds.map((second, i) => {
    const time = new Date(second * 1000);
    const day = formatDay(second * 1000);
    const clock = formatTimeOfDay(second * 1000, fine);
    const changed = i === 0 || new Date(seconds[i - 1] * 1000).getDate() !== time.getDate();
    return days ? day : changed ? `${clock}\n${day}` : clock;
  });
}

function shade(plot: uPlot, shades: readonly Shade[]): void {
  const { ctx, bbox } = plot;
  ctx.save();
  for (const one of shades) {
    const from = Math.max(bbox.left, plot.valToPos(one.fromMs / 1000, "x", true));
    const to = Math.min(bbox.left + bbox.width, plot.valToPos(one.toMs / 1000, "x", true));
    if (to <= from) continue;
    ctx.fillStyle = one.colour;
    ctx.fillRect(from, bbox.top, to - from, 4 * devicePixelRatio);
  }
  ctx.restore();
}

function mark(plot: uPlot, data: TimelineData, style: TimelineStyle): void {
  const { ctx, bbox } = plot;
  const pixel = devicePixelRatio;
  ctx.save();
  ctx.lineWidth = pixel;
  ctx.setLineDash([3 * pixel, 3 * pixel]);
  for (const one of data.marks) {
    const x = plot.valToPos(one.timeMs / 1000, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = one.colour;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.setLineDash([]);
  ctx.fillStyle = style.lit;
  for (const time of data.lit) {
    const x = plot.valToPos(time / 1000, "x", true);
    if (x >= bbox.left && x <= bbox.left + bbox.width)
      ctx.fillRect(x - pixel, bbox.top + bbox.height - 8 * pixel, 2 * pixel, 8 * pixel);
  }
  ctx.restore();
}

/** What the filter leaves out stands behind a veil. */
function veil(plot: uPlot, window: Span | null, colour: string): void {
  if (!window) return;
  const { ctx, bbox } = plot;
  const place = (time: number) =>
    Math.max(bbox.left, Math.min(bbox.left + bbox.width, plot.valToPos(time / 1000, "x", true)));
  const [from, to] = [place(window[0]), place(window[1])];
  ctx.save();
  ctx.fillStyle = colour;
  ctx.fillRect(bbox.left, bbox.top, from - bbox.left, bbox.height);
  ctx.fillRect(to, bbox.top, bbox.left + bbox.width - to, bbox.height);
  ctx.restore();
}
