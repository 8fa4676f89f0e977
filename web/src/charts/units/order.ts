/** Stable ordering of rows by a numeric key, fast enough for 100,000 units on every tick. */

const scratchFloat = new Float32Array(1);
const scratchBits = new Uint32Array(scratchFloat.buffer);

/** The bits of a float as an integer that sorts in the same order; no value sorts last. */
function sortableBits(value: number, descending: boolean): number {
  if (Number.isNaN(value)) return 0xffffffff;
  scratchFloat[0] = value;
  const bits = scratchBits[0];
  const ordered = (bits & 0x80000000 ? ~bits : bits | 0x80000000) >>> 0;
  const turned = descending ? ~ordered >>> 0 : ordered;
  return Math.min(turned, 0xfffffffe);
}

/** `rows` ordered by `values[row]`; equal rows keep their order, rows without a value come last. */
export function sortRows(
  rows: Int32Array,
  values: ArrayLike<number>,
  descending: boolean,
): Int32Array {
  const n = rows.length;
  let keys = new Uint32Array(n);
  for (let i = 0; i < n; i++) keys[i] = sortableBits(values[rows[i]], descending);
  let from: Int32Array = rows.slice();
  let to: Int32Array = new Int32Array(n);
  let nextKeys = new Uint32Array(n);
  const counts = new Uint32Array(2048);
  for (let shift = 0; shift < 32; shift += 11) {
    counts.fill(0);
    for (let i = 0; i < n; i++) counts[(keys[i] >>> shift) & 2047]++;
    let sum = 0;
    for (let b = 0; b < 2048; b++) {
      const c = counts[b];
      counts[b] = sum;
      sum += c;
    }
    for (let i = 0; i < n; i++) {
      const place = counts[(keys[i] >>> shift) & 2047]++;
      to[place] = from[i];
      nextKeys[place] = keys[i];
    }
    [from, to] = [to, from];
    [keys, nextKeys] = [nextKeys, keys];
  }
  return from;
}
