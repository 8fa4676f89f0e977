/** Reads the columns of a call tree as Python packs them (`marey.notebook.packing`). */

import type { CallTree, Metric } from "@/charts/calltree/tree";
import { buildTree, METRICS } from "@/charts/calltree/tree";

export interface Facts {
  unit: string;
  total: number;
  profiles: number;
  /** The range of each metric's positive values; null where it has none. */
  ranges: Record<Metric, [number, number] | null>;
}

const [ABSENT, ZERO, FIRST, LAST] = [0, 1, 2, 65_535];

/** Inflate and read the columns. */
export async function decodeTree(packed: DataView, facts: Facts): Promise<CallTree> {
  const raw = new Uint8Array(packed.buffer, packed.byteOffset, packed.byteLength);
  const stream = new Blob([raw.slice()]).stream().pipeThrough(new DecompressionStream("deflate"));
  return readTree(await new Response(stream).arrayBuffer(), facts);
}

/** Read the columns of inflated bytes. */
export function readTree(buffer: ArrayBuffer, facts: Facts): CallTree {
  const [rows, length] = new Uint32Array(buffer, 0, 2);
  const names = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length))) as string[];
  let at = 8 + Math.ceil(length / 4) * 4;
  const integers = () => {
    const column = new Uint32Array(buffer, at, rows);
    at += 4 * rows;
    return column;
  };
  const [depth, name, count, hidden] = [integers(), integers(), integers(), integers()];
  const hiddenInclusive = new Float32Array(buffer, at, rows);
  at += 4 * rows;
  const values = {} as Record<Metric, Float64Array>;
  for (const metric of METRICS) {
    values[metric] = expand(new Uint16Array(buffer, at, rows), facts.ranges[metric]);
    at += 2 * rows;
  }
  return buildTree({ names, depth, name, count, hidden, hiddenInclusive, values, ...facts });
}

/** Values lie on a logarithmic scale of 65,534 steps between the least and the greatest. */
function expand(codes: Uint16Array, range: [number, number] | null): Float64Array {
  const out = new Float64Array(codes.length);
  const [low, high] = range ?? [1, 1];
  const step = Math.log(high / low) / (LAST - FIRST);
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i];
    out[i] = code === ABSENT ? NaN : code === ZERO ? 0 : low * Math.exp((code - FIRST) * step);
  }
  return out;
}

/** Which rows are marked, from one bit each. */
export function readMarks(packed: DataView, rows: number): Set<number> {
  const found = new Set<number>();
  for (let row = 0; row < Math.min(rows, packed.byteLength * 8); row++)
    if ((packed.getUint8(row >> 3) >> (7 - (row & 7))) & 1) found.add(row);
  return found;
}
