/** The binary messages of the live connection: a JSON header, then deflated parts. */

import type { Column as ArrowColumn, Table as ArrowTable } from "@uwdata/flechette";
import { tableFromIPC } from "@uwdata/flechette";

export interface SourceState {
  name: string;
  state: string;
  last_ms?: number | null;
  age_ms?: number | null;
  error?: string | null;
}

interface PartEntry {
  name: string;
  encoding: string;
  offset: number;
  length: number;
  metric?: string;
  scale_offset?: number;
  scale_step?: number;
}

export interface Header {
  type: "snapshot" | "columns" | "tick";
  seq: number;
  time_ms: number;
  cluster: string;
  rows: number;
  speed: number;
  sources: SourceState[];
  removed_units?: number[];
  removed_workloads?: string[];
  parts: PartEntry[];
}

/** A metric column as it travelled: all codes, or differences to the codes before. */
export interface MetricPart {
  metric: string;
  offset: number;
  step: number;
  codes: Uint16Array;
  differences: boolean;
}

/** What only this reader is told: rows to be put in the place of masked ones. */
export interface OwnRows {
  /** Which rows of the workloads part these are instead of. */
  at: number[];
  /** Columns as in the workloads part. */
  workloads: Record<string, (string | number | null)[]>;
  /** Workloads that hold a unit, by its row. */
  holders: Record<string, string[]>;
}

export interface LiveMessage {
  header: Header;
  units: ArrowTable | null;
  workloads: ArrowTable | null;
  own: OwnRows | null;
  metrics: MetricPart[];
}

export const NO_VALUE = 65535;

/** Take a message apart and inflate its parts. */
export async function readMessage(buffer: ArrayBuffer): Promise<LiveMessage> {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length))) as Header;
  const message: LiveMessage = { header, units: null, workloads: null, own: null, metrics: [] };
  const contents = await Promise.all(
    header.parts.map((part) => {
      const bytes = new Uint8Array(buffer, 4 + length + part.offset, part.length);
      return part.encoding === "json" ? bytes : inflate(bytes);
    }),
  );
  header.parts.forEach((part, i) => {
    if (part.encoding === "json") {
      message.own = JSON.parse(new TextDecoder().decode(contents[i])) as OwnRows;
    } else if (part.encoding === "arrow-deflate") {
      const table = tableFromIPC(contents[i]);
      if (part.name === "units") message.units = table;
      else if (part.name === "workloads") message.workloads = table;
    } else {
      message.metrics.push(metricPart(part, contents[i]));
    }
  });
  return message;
}

async function inflate(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function metricPart(part: PartEntry, planes: Uint8Array): MetricPart {
  const half = planes.length >> 1;
  const codes = new Uint16Array(half);
  for (let i = 0; i < half; i++) codes[i] = planes[i] | (planes[half + i] << 8);
  return {
    metric: part.metric ?? part.name.replace("metric:", ""),
    offset: part.scale_offset ?? 0,
    step: part.scale_step ?? 1,
    codes,
    differences: part.encoding === "zigzag-planes-deflate",
  };
}

/** Codes now, from zigzag differences to the codes before; new rows begin without a value. */
export function addDifferences(before: Uint16Array, zigzag: Uint16Array): Uint16Array {
  const now = new Uint16Array(zigzag.length);
  for (let i = 0; i < zigzag.length; i++) {
    const old = i < before.length ? before[i] : NO_VALUE;
    now[i] = old + ((zigzag[i] >>> 1) ^ -(zigzag[i] & 1));
  }
  return now;
}

interface CodedBatch {
  length: number;
  values: ArrayLike<number>;
  validity?: Uint8Array;
  nullCount: number;
  dictionary?: ArrowColumn<string>;
}

/** Texts of a column with their codes; a dictionary is used as it came. */
export function codedTexts(
  table: ArrowTable,
  name: string,
): { codes: Int32Array; words: string[] } {
  const column = table.getChild(name) as ArrowColumn<string> | undefined;
  const codes = new Int32Array(table.numRows).fill(-1);
  if (!column) return { codes, words: [] };
  const batches = column.data as unknown as CodedBatch[];
  if (batches.length === 1 && batches[0].dictionary) {
    const [batch] = batches;
    for (let i = 0; i < batch.length; i++) if (isValid(batch, i)) codes[i] = batch.values[i];
    return { codes, words: Array.from(batch.dictionary ?? [], (word) => word ?? "") };
  }
  const words: string[] = [];
  const known = new Map<string, number>();
  for (let i = 0; i < codes.length; i++) {
    const word = column.at(i);
    if (word !== null && word !== undefined) codes[i] = codeOf(word, words, known);
  }
  return { codes, words };
}

function isValid(batch: CodedBatch, i: number): boolean {
  return (
    batch.nullCount === 0 || !batch.validity || (batch.validity[i >> 3] & (1 << (i & 7))) !== 0
  );
}

function codeOf(word: string, words: string[], known: Map<string, number>): number {
  let code = known.get(word);
  if (code === undefined) {
    code = words.length;
    words.push(word);
    known.set(word, code);
  }
  return code;
}

/** Numbers of a column, NaN where there is none. */
export function numbers(table: ArrowTable, name: string): Float64Array {
  const column = table.getChild(name) as ArrowColumn<number | bigint> | undefined;
  const values = new Float64Array(table.numRows).fill(NaN);
  if (!column) return values;
  for (let i = 0; i < values.length; i++) {
    const value = column.at(i);
    if (value !== null && value !== undefined) values[i] = Number(value);
  }
  return values;
}

/** Lists of texts of a column; an empty list is shared. */
export function textLists(table: ArrowTable, name: string): (readonly string[])[] {
  const column = table.getChild(name) as ArrowColumn<ArrayLike<string>> | undefined;
  const none: readonly string[] = [];
  const lists = new Array<readonly string[]>(table.numRows).fill(none);
  if (!column) return lists;
  let at = 0;
  for (const batch of column.data as unknown as ListBatch[]) {
    for (let i = 0; i < batch.length; i++, at++) {
      if (batch.offsets[i + 1] > batch.offsets[i]) lists[at] = Array.from(batch.at(i) ?? none);
    }
  }
  return lists;
}

interface ListBatch {
  length: number;
  offsets: Int32Array;
  at(index: number): ArrayLike<string> | null;
}
