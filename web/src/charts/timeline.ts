/** A timeline on uPlot: a band and its median behind, chosen lines before, marks across. */

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export interface Band {
  time_ms: readonly number[];
  low: readonly (number | null)[];
  p10: readonly (number | null)[];
  median: readonly (number | null)[];
  p90: readonly (number | null)[];
  high: readonly (number | null)[];
}

export interface Line {
  label: string;
  colour: string;
  time_ms: readonly number[];
  value: readonly (number | null)[];
}

export interface Mark {
  timeMs: number;
  colour: string;
}

export interface Shade {
  fromMs: number;
  toMs: number;
  colour: string;
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
}

export interface TimelineStyle {
  text: string;
  grid: string;
  band: string;
  faint: string;
  median: string;
  lit: string;
}

export interface Timeline {
  plot: uPlot;
  destroy: () => void;
}

type Column = (number | null | undefined)[];

/** All series on one time axis, as uPlot takes them. */
export function joined(data: TimelineData): uPlot.AlignedData {
  const seconds = (times: readonly number[]) => times.map((time) => time / 1000);
  const band = [seconds(data.band.time_ms), data.band.low, data.band.p10, data.band.median, data.band.p90, data.band.high].map((column) => [...column]);
  const tables = [band, ...data.lines.map((one) => [seconds(one.time_ms), [...one.value]])] as uPlot.AlignedData[];
  return tables.length > 1 ? uPlot.join(tables) : tables[0];
}

/** Draw into an element; `onRange` hears of a brushed span, null when it is given up. */
export function drawTimeline(element: HTMLElement, data: TimelineData, style: TimelineStyle, size: { width: number; height: number }, onRange: (range: [number, number] | null) => void): Timeline {
  const hidden = { stroke: "transparent", width: 0, points: { show: false }, spanGaps: true };
  const axis = { stroke: style.text, grid: { stroke: style.grid, width: 1 }, ticks: { stroke: style.grid, width: 1 }, font: "11px system-ui, sans-serif" };
  const options: uPlot.Options = {
    ...size,
    legend: { show: false },
    cursor: { drag: { x: true, y: false, setScale: false }, sync: { key: "marey-diagnostics" }, bind: { dblclick: () => () => (onRange(null), null) } },
    scales: { x: { time: true }, y: data.range ? { range: [data.range[0], data.range[1]] } : {} },
    axes: [{ ...axis, values: (_plot, splits) => clockTexts(splits) }, { ...axis, size: 56, label: `${data.label}${data.unit ? ` (${data.unit})` : ""}`, labelSize: 16, labelFont: "11px system-ui, sans-serif" }],
    bands: [
      { series: [5, 1], fill: style.faint },
      { series: [4, 2], fill: style.band },
    ],
    series: [
      {},
      hidden,
      hidden,
      { stroke: style.median, width: 1.4, points: { show: false }, spanGaps: true, label: "median" },
      hidden,
      hidden,
      ...data.lines.map((one) => ({ label: one.label, stroke: one.colour, width: 1.2, points: { show: false }, spanGaps: true })),
    ],
    hooks: {
      setSelect: [
        (plot) => {
          if (plot.select.width < 3) return;
          const from = plot.posToVal(plot.select.left, "x") * 1000;
          const to = plot.posToVal(plot.select.left + plot.select.width, "x") * 1000;
          onRange([from, to]);
        },
      ],
      drawClear: [(plot) => shade(plot, data.shades)],
      draw: [(plot) => mark(plot, data, style)],
    },
  };
  const plot = new uPlot(options, joined(data) as uPlot.AlignedData & Column[], element);
  return { plot, destroy: () => plot.destroy() };
}

/** 24-hour clock in the reader's zone; the day where it changes, seconds where they matter. */
function clockTexts(seconds: readonly number[]): string[] {
  const fine = seconds.length > 1 && seconds[1] - seconds[0] < 60;
  const days = seconds.length > 1 && seconds[1] - seconds[0] >= 86_400;
  return seconds.map((second, i) => {
    const time = new Date(second * 1000);
    const day = time.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
    const clock = time.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(fine ? { second: "2-digit" } : {}) });
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
    if (x >= bbox.left && x <= bbox.left + bbox.width) ctx.fillRect(x - pixel, bbox.top + bbox.height - 8 * pixel, 2 * pixel, 8 * pixel);
  }
  ctx.restore();
}
