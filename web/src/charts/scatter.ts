/** A scatter plot of two metrics: density, points, outliers, and the ellipse of the limit. */

export interface ScatterPoints {
  gpu: readonly number[];
  time_ms: readonly number[];
  x: readonly (number | null)[];
  y: readonly (number | null)[];
  score: readonly (number | null)[];
}

export interface ScatterData {
  limits: { x: readonly [number, number]; y: readonly [number, number] };
  points: ScatterPoints;
  outliers: ScatterPoints;
  /** Counts over a grid, rows along y; drawn where there are more samples than points. */
  density: readonly (readonly number[])[] | null;
  centre: readonly (number | null)[];
  covariance: readonly (readonly (number | null)[])[];
  limit: number;
}

export interface ScatterStyle {
  colourOf: (gpu: number) => string;
  faded: (gpu: number) => boolean;
  colours: { line: string; text: string; density: string; outlier: string };
}

export interface Frame {
  left: number;
  top: number;
  width: number;
  height: number;
}

export interface ScatterScales {
  frame: Frame;
  x: (value: number) => number;
  y: (value: number) => number;
  valueX: (place: number) => number;
  valueY: (place: number) => number;
}

/** Scales with a little air around the values. */
export function scatterScales(
  limits: ScatterData["limits"],
  width: number,
  height: number,
): ScatterScales {
  const frame = { left: 52, top: 8, width: width - 62, height: height - 44 };
  const [xLow, xHigh] = padded(limits.x);
  const [yLow, yHigh] = padded(limits.y);
  return {
    frame,
    x: (value) => frame.left + ((value - xLow) / (xHigh - xLow)) * frame.width,
    y: (value) => frame.top + frame.height - ((value - yLow) / (yHigh - yLow)) * frame.height,
    valueX: (place) => xLow + ((place - frame.left) / frame.width) * (xHigh - xLow),
    valueY: (place) => yLow + ((frame.top + frame.height - place) / frame.height) * (yHigh - yLow),
  };
}

function padded([low, high]: readonly [number, number]): [number, number] {
  const air = (high - low || 1) * 0.04;
  return [low - air, high + air];
}

/** Round values for ticks, about this many. */
export function ticks(low: number, high: number, about: number): number[] {
  const span = high - low;
  if (!(span > 0)) return [low];
  const rough = span / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough) ?? rough;
  const found: number[] = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step)
    found.push(Number(value.toPrecision(12)));
  return found;
}

/** Draw everything but the brush. */
export function drawScatter(
  context: CanvasRenderingContext2D,
  data: ScatterData,
  scales: ScatterScales,
  labels: { x: string; y: string },
  style: ScatterStyle,
): void {
  drawAxes(context, scales, labels, style);
  const { frame } = scales;
  context.save();
  context.beginPath();
  context.rect(frame.left, frame.top, frame.width, frame.height);
  context.clip();
  if (data.density) drawDensity(context, data, scales, style);
  drawPoints(context, data.points, scales, style, 1.6, 0.55);
  drawEllipse(context, data, scales, style);
  drawPoints(context, data.outliers, scales, style, 2.6, 0.95);
  context.restore();
}

function drawPoints(
  context: CanvasRenderingContext2D,
  points: ScatterPoints,
  scales: ScatterScales,
  style: ScatterStyle,
  size: number,
  alpha: number,
): void {
  for (let i = 0; i < points.x.length; i++) {
    const [x, y] = [points.x[i], points.y[i]];
    if (x === null || y === null) continue;
    context.globalAlpha = style.faded(points.gpu[i]) ? alpha * 0.18 : alpha;
    context.fillStyle = style.colourOf(points.gpu[i]);
    context.fillRect(scales.x(x) - size / 2, scales.y(y) - size / 2, size, size);
  }
  context.globalAlpha = 1;
}

function drawDensity(
  context: CanvasRenderingContext2D,
  data: ScatterData,
  scales: ScatterScales,
  style: ScatterStyle,
): void {
  const rows = data.density ?? [];
  const most = Math.log1p(Math.max(1, ...rows.flat()));
  const [x0, x1] = [scales.x(data.limits.x[0]), scales.x(data.limits.x[1])];
  const [y0, y1] = [scales.y(data.limits.y[0]), scales.y(data.limits.y[1])];
  context.fillStyle = style.colours.density;
  rows.forEach((row, j) => {
    const [width, height] = [(x1 - x0) / row.length, (y0 - y1) / rows.length];
    row.forEach((count, i) => {
      if (count === 0) return;
      context.globalAlpha = 0.08 + 0.5 * (Math.log1p(count) / most);
      context.fillRect(x0 + i * width, y0 - (j + 1) * height, width + 0.3, height + 0.3);
    });
  });
  context.globalAlpha = 1;
}

/** Points at the limit's distance around the centre. */
export function ellipse(
  data: Pick<ScatterData, "centre" | "covariance" | "limit">,
  steps = 72,
): [number, number][] {
  const [cx, cy] = data.centre;
  const [[a, b], [, d]] = data.covariance;
  if (cx === null || cy === null || a === null || b === null || d === null || a <= 0) return [];
  const l11 = Math.sqrt(a);
  const l21 = b / l11;
  const l22 = Math.sqrt(Math.max(0, d - l21 * l21));
  return Array.from({ length: steps + 1 }, (_, i) => {
    const [u, v] = [
      Math.cos((i / steps) * 2 * Math.PI) * data.limit,
      Math.sin((i / steps) * 2 * Math.PI) * data.limit,
    ];
    return [cx + l11 * u, cy + l21 * u + l22 * v];
  });
}

function drawEllipse(
  context: CanvasRenderingContext2D,
  data: ScatterData,
  scales: ScatterScales,
  style: ScatterStyle,
): void {
  context.strokeStyle = style.colours.text;
  context.lineWidth = 1;
  context.setLineDash([4, 3]);
  context.beginPath();
  ellipse(data).forEach(([x, y], i) =>
    i === 0 ? context.moveTo(scales.x(x), scales.y(y)) : context.lineTo(scales.x(x), scales.y(y)),
  );
  context.stroke();
  context.setLineDash([]);
}

function drawAxes(
  context: CanvasRenderingContext2D,
  { frame, x, y, valueX, valueY }: ScatterScales,
  labels: { x: string; y: string },
  style: ScatterStyle,
): void {
  context.font = "11px system-ui, sans-serif";
  context.strokeStyle = style.colours.line;
  context.fillStyle = style.colours.text;
  context.lineWidth = 1;
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const value of ticks(valueX(frame.left), valueX(frame.left + frame.width), 5)) {
    line(context, x(value), frame.top, x(value), frame.top + frame.height);
    context.fillText(short(value), x(value), frame.top + frame.height + 4);
  }
  context.fillText(labels.x, frame.left + frame.width / 2, frame.top + frame.height + 20);
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const value of ticks(valueY(frame.top + frame.height), valueY(frame.top), 5)) {
    line(context, frame.left, y(value), frame.left + frame.width, y(value));
    context.fillText(short(value), frame.left - 5, y(value));
  }
  context.save();
  context.translate(9, frame.top + frame.height / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.fillText(labels.y, 0, 0);
  context.restore();
  context.textAlign = "left";
}

function short(value: number): string {
  const size = Math.abs(value);
  return size >= 1e6
    ? `${Number((value / 1e6).toPrecision(3))}M`
    : size >= 1e4
      ? `${Number((value / 1e3).toPrecision(3))}k`
      : String(Number(value.toPrecision(4)));
}

function line(
  context: CanvasRenderingContext2D,
  x0: number,
  y0: number,
  x1: number,
  y1: number,
): void {
  context.beginPath();
  context.moveTo(Math.round(x0) + 0.5, Math.round(y0) + 0.5);
  context.lineTo(Math.round(x1) + 0.5, Math.round(y1) + 0.5);
  context.stroke();
}

export interface Box {
  x: [number, number];
  y: [number, number];
}

/** Which points lie in a box of values. */
export function inside(points: ScatterPoints, box: Box): number[] {
  const found: number[] = [];
  for (let i = 0; i < points.x.length; i++) {
    const [x, y] = [points.x[i], points.y[i]];
    if (
      x !== null &&
      y !== null &&
      x >= box.x[0] &&
      x <= box.x[1] &&
      y >= box.y[0] &&
      y <= box.y[1]
    )
      found.push(i);
  }
  return found;
}
