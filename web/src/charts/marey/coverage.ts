/**
 * One line of pixels in which spans add up by how much of each pixel they cover.
 *
 * What is narrower than a pixel is averaged into it, what is wider keeps its own colour: the same picture as drawing
 * every span with smoothed edges, at a cost that depends on the number of pixels and not on overlapping shapes.
 */
export class CoverageLine {
  private readonly red: Float32Array;
  private readonly green: Float32Array;
  private readonly blue: Float32Array;
  private readonly alpha: Float32Array;
  private low: number;
  private high = 0;

  constructor(readonly width: number) {
    this.red = new Float32Array(width);
    this.green = new Float32Array(width);
    this.blue = new Float32Array(width);
    this.alpha = new Float32Array(width);
    this.low = width;
  }

  /** Empty the line, at the cost of what was drawn on it. */
  clear(): void {
    for (const part of [this.red, this.green, this.blue, this.alpha])
      part.fill(0, this.low, this.high);
    this.low = this.width;
    this.high = 0;
  }

  /** Add a span from pixel `from` to pixel `to` of a packed colour, as opaque as `weight`. */
  add(from: number, to: number, colour: number, weight: number): void {
    const a = from > 0 ? from : 0;
    const b = to < this.width ? to : this.width;
    if (!(b > a)) return;
    const first = a | 0;
    const last = Math.min(this.width - 1, b | 0);
    if (first < this.low) this.low = first;
    if (last >= this.high) this.high = last + 1;
    if (first === last) {
      this.put(first, (b - a) * weight, colour);
      return;
    }
    this.put(first, (first + 1 - a) * weight, colour);
    for (let x = first + 1; x < last; x++) this.put(x, weight, colour);
    if (b > last) this.put(last, (b - last) * weight, colour);
  }

  private put(x: number, weight: number, colour: number): void {
    this.red[x] += weight * (colour & 255);
    this.green[x] += weight * ((colour >> 8) & 255);
    this.blue[x] += weight * ((colour >> 16) & 255);
    this.alpha[x] += weight;
  }

  /** Whether at least half of a pixel is covered. */
  covers(x: number): boolean {
    return this.alpha[x] >= 0.5;
  }

  /** Lay the line over a row of pixels. */
  over(pixels: Uint32Array, offset: number): void {
    for (let x = this.low; x < this.high; x++) {
      const alpha = this.alpha[x];
      if (alpha <= 0.002) continue;
      const scale = alpha > 1 ? 1 / alpha : 1;
      const rest = alpha >= 1 ? 0 : 1 - alpha;
      const below = pixels[offset + x];
      const r = this.red[x] * scale + rest * (below & 255);
      const g = this.green[x] * scale + rest * ((below >> 8) & 255);
      const b = this.blue[x] * scale + rest * ((below >> 16) & 255);
      pixels[offset + x] = (0xff000000 | ((b + 0.5) << 16) | ((g + 0.5) << 8) | (r + 0.5)) >>> 0;
    }
  }
}
