/** The layout operators: boxes of given sizes → places, and the box that holds them all. */

export type LayoutKind = "pack" | "fill_x" | "fill_y" | "list_x" | "list_y";

export interface Arrangement {
  x: Float64Array;
  y: Float64Array;
  width: number;
  height: number;
}

export interface ArrangeOptions {
  layout: LayoutKind;
  /** Space between neighbours. */
  gap: number;
  /** Width over height that Pack and List aim at. */
  aspect: number;
  /** How many widths to try at most; a first round needs fewer. */
  tries?: number;
  /** How many of the largest boxes fit across the fixed side of Fill, or stand in a line of List; 0 = by itself. */
  across: number;
}

/** Area of the smallest container of this aspect that holds a box: what every choice below minimises. */
export function fitArea(width: number, height: number, aspect: number): number {
  const w = Math.max(width, height * aspect);
  return (w * w) / aspect;
}

/**
 * Columns of the best grid for n equal boxes: the one that fills a container of this aspect best,
 * among those that waste at most 15 % of their own box once there are 100 boxes.
 */
export function gridColumns(n: number, width: number, height: number, aspect: number): number {
  if (n <= 1) return Math.max(1, n);
  const ideal = Math.sqrt((n * aspect * height) / width);
  // Beyond a factor of two from the ideal no grid fits better; small n is searched whole.
  const low = n <= 64 ? 1 : Math.max(1, Math.floor(ideal / 2));
  const high = n <= 64 ? n : Math.min(n, Math.ceil(ideal * 2) + 1);
  let best = 0;
  let bestCost = Infinity;
  for (let columns = low; columns <= high; columns++) {
    const rows = Math.ceil(n / columns);
    const waste = 1 - n / (columns * rows);
    if (n >= 100 && waste > 0.15) continue;
    const cost = fitArea(columns * width, rows * height, aspect) * (1 + 0.02 * waste);
    if (cost < bestCost) {
      bestCost = cost;
      best = columns;
    }
  }
  return best || n;
}

/** Place the boxes by an operator; the order of boxes is the order of reading, except where Pack must reorder. */
export function arrange(
  widths: Float64Array,
  heights: Float64Array,
  options: ArrangeOptions,
): Arrangement {
  switch (options.layout) {
    case "pack":
      return pack(widths, heights, options);
    case "list_x":
      return list(widths, heights, options);
    case "list_y":
      return transposed(list(heights, widths, { ...options, aspect: 1 / options.aspect }));
    case "fill_y":
      return transposed(fillX(heights, widths, options));
    case "fill_x":
      return fillX(widths, heights, options);
  }
}

function transposed(a: Arrangement): Arrangement {
  return { x: a.y, y: a.x, width: a.height, height: a.width };
}

/** Fixed height, grows along x: boxes go down until the height is used, then the next column begins. */
function fillX(
  widths: Float64Array,
  heights: Float64Array,
  { gap, across }: ArrangeOptions,
): Arrangement {
  const lines = Math.max(1, across);
  const limit = largest(heights) * lines + gap * (lines - 1);
  return columns(widths, heights, gap, limit);
}

function columns(
  widths: Float64Array,
  heights: Float64Array,
  gap: number,
  limit: number,
): Arrangement {
  const n = widths.length;
  const placed = blank(n);
  let [x, y, widest] = [0, 0, 0];
  for (let i = 0; i < n; i++) {
    if (y > 0 && y + heights[i] > limit + 1e-9) {
      x += widest + gap;
      y = 0;
      widest = 0;
    }
    placed.x[i] = x;
    placed.y[i] = y;
    y += heights[i] + gap;
    widest = Math.max(widest, widths[i]);
    grow(placed, x + widths[i], y - gap);
  }
  return placed;
}

function rowsOf(
  widths: Float64Array,
  heights: Float64Array,
  gap: number,
  limit: number,
): Arrangement {
  return transposed(columns(heights, widths, gap, limit));
}

/** One after another along x, wrapped into lines so that the whole comes near the aspect. */
function list(widths: Float64Array, heights: Float64Array, options: ArrangeOptions): Arrangement {
  const { gap, aspect, across } = options;
  if (across > 0) return linesOf(widths, heights, gap, across);
  const same = equalSizes(widths, heights);
  if (same)
    return linesOf(
      widths,
      heights,
      gap,
      gridColumns(widths.length, widths[0] + gap, heights[0] + gap, aspect),
    );
  let best: Arrangement | null = null;
  for (const limit of candidateWidths(widths, heights, gap, aspect, options.tries)) {
    best = better(best, rowsOf(widths, heights, gap, limit), aspect);
  }
  return best ?? blank(widths.length);
}

function linesOf(
  widths: Float64Array,
  heights: Float64Array,
  gap: number,
  perLine: number,
): Arrangement {
  const n = widths.length;
  const placed = blank(n);
  let y = 0;
  for (let start = 0; start < n; start += perLine) {
    let [x, tallest] = [0, 0];
    for (let i = start; i < Math.min(n, start + perLine); i++) {
      placed.x[i] = x;
      placed.y[i] = y;
      x += widths[i] + gap;
      tallest = Math.max(tallest, heights[i]);
      grow(placed, x - gap, y + heights[i]);
    }
    y += tallest + gap;
  }
  return placed;
}

/** Bin packing: a grid for equal boxes, else a skyline filled tallest first, over several widths. */
function pack(
  widths: Float64Array,
  heights: Float64Array,
  { gap, aspect, tries }: ArrangeOptions,
): Arrangement {
  const n = widths.length;
  if (n === 0) return blank(0);
  if (equalSizes(widths, heights)) {
    return linesOf(widths, heights, gap, gridColumns(n, widths[0] + gap, heights[0] + gap, aspect));
  }
  const order = Int32Array.from(widths.keys()).sort(
    (a, b) => heights[b] - heights[a] || widths[b] - widths[a] || a - b,
  );
  let best: Arrangement | null = null;
  for (const limit of candidateWidths(widths, heights, gap, aspect, tries)) {
    best = better(best, skyline(widths, heights, order, gap, limit), aspect);
  }
  return best ?? blank(n);
}

/** Corners of the skyline from left to right; edited in place, because a packing does this once per box. */
class Skyline {
  private xs = new Float64Array(64);
  private ys = new Float64Array(64);
  private size = 1;

  /** Put a box at the lowest place where it fits, leftmost among equals (bottom-left; Jylänki 2010). */
  put(width: number, height: number, limit: number): { x: number; y: number } {
    const { xs, ys } = this;
    let at = 0;
    let top = Infinity;
    for (let i = 0; i < this.size; i++) {
      if (i > 0 && xs[i] + width > limit + 1e-9) break;
      if (ys[i] >= top) continue;
      let highest = 0;
      for (let j = i; j < this.size && xs[j] < xs[i] + width - 1e-9 && highest < top; j++)
        highest = Math.max(highest, ys[j]);
      if (highest < top) [at, top] = [i, highest];
    }
    const place = { x: xs[at], y: top };
    this.raise(at, xs[at] + width, top + height, limit);
    return place;
  }

  private raise(at: number, right: number, top: number, limit: number): void {
    let after = at;
    while (after < this.size && this.xs[after] < right - 1e-9) after++;
    const behind = this.ys[after - 1];
    const meets = after < this.size && this.xs[after] <= right + 1e-9;
    const split = !meets && right < limit - 1e-9 ? 1 : 0;
    this.move(after, at + 1 + split);
    this.ys[at] = top;
    if (split) {
      this.xs[at + 1] = right;
      this.ys[at + 1] = behind;
    }
  }

  private move(from: number, to: number): void {
    const size = this.size + to - from;
    if (size >= this.xs.length) {
      this.xs = grown(this.xs);
      this.ys = grown(this.ys);
    }
    this.xs.copyWithin(to, from, this.size);
    this.ys.copyWithin(to, from, this.size);
    this.size = size;
  }
}

function grown(values: Float64Array): Float64Array<ArrayBuffer> {
  const next = new Float64Array(values.length * 2);
  next.set(values);
  return next;
}

function skyline(
  widths: Float64Array,
  heights: Float64Array,
  order: Int32Array,
  gap: number,
  limit: number,
): Arrangement {
  const placed = blank(widths.length);
  const line = new Skyline();
  for (const i of order) {
    const at = line.put(widths[i] + gap, heights[i] + gap, limit + gap);
    placed.x[i] = at.x;
    placed.y[i] = at.y;
    grow(placed, at.x + widths[i], at.y + heights[i]);
  }
  return placed;
}

function candidateWidths(
  widths: Float64Array,
  heights: Float64Array,
  gap: number,
  aspect: number,
  most = 9,
): number[] {
  let area = 0;
  let sum = -gap;
  for (let i = 0; i < widths.length; i++) {
    area += (widths[i] + gap) * (heights[i] + gap);
    sum += widths[i] + gap;
  }
  const ideal = Math.sqrt(area * aspect);
  const least = largest(widths);
  // Fewer tries where each costs more; the spread covers the waste a packing can have.
  const tries = Math.min(
    most,
    widths.length > 4000 ? 3 : widths.length > 1000 ? 5 : widths.length < 4 ? 4 : 7,
  );
  const result = new Set<number>();
  for (let k = 0; k < tries; k++) {
    const width = ideal * (0.94 + (0.5 * k) / (tries - 1));
    result.add(Math.min(sum, Math.max(least, width)));
  }
  return [...result];
}

function better(best: Arrangement | null, next: Arrangement, aspect: number): Arrangement {
  if (best === null) return next;
  return fitArea(next.width, next.height, aspect) <
    fitArea(best.width, best.height, aspect) * 0.9999
    ? next
    : best;
}

function blank(n: number): Arrangement {
  return { x: new Float64Array(n), y: new Float64Array(n), width: 0, height: 0 };
}

function grow(a: Arrangement, right: number, bottom: number): void {
  if (right > a.width) a.width = right;
  if (bottom > a.height) a.height = bottom;
}

function largest(values: Float64Array): number {
  let most = 0;
  for (const value of values) if (value > most) most = value;
  return most;
}

function equalSizes(widths: Float64Array, heights: Float64Array): boolean {
  for (let i = 1; i < widths.length; i++) {
    if (Math.abs(widths[i] - widths[0]) > 1e-9 || Math.abs(heights[i] - heights[0]) > 1e-9)
      return false;
  }
  return widths.length > 0;
}
