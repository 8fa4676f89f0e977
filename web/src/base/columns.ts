/** Tables as columns: text is coded by a list of words, numbers are floats with NaN for "no value". */

import { naturalCompare } from "@/base/natural";

export interface TextColumn {
  kind: "text";
  /** Place in `words` per row; −1 where there is no value. */
  codes: Int32Array;
  words: readonly string[];
}

export interface NumberColumn {
  readonly kind: "number";
  readonly values: Float32Array | Float64Array;
}

export type Column = TextColumn | NumberColumn;

export interface Table {
  rows: number;
  columns: ReadonlyMap<string, Column>;
}

/** Collects the words of a text column and hands out their codes; the empty text is "no value". */
export class Words {
  readonly list: string[] = [];
  private readonly known = new Map<string, number>();

  code(word: string): number {
    if (word === "") return -1;
    let code = this.known.get(word);
    if (code === undefined) {
      code = this.list.length;
      this.list.push(word);
      this.known.set(word, code);
    }
    return code;
  }
}

/** A text column from plain values. */
export function textColumn(values: readonly string[]): TextColumn {
  const words = new Words();
  return {
    kind: "text",
    codes: Int32Array.from(values, (value) => words.code(value)),
    words: words.list,
  };
}

/** A number column from plain values. */
export function numberColumn(values: ArrayLike<number>): NumberColumn {
  return { kind: "number", values: Float64Array.from(values) };
}

const knownCodes = new WeakMap<readonly string[], Map<string, number>>();

/** The code of each word; remembered per list of words, which may grow. */
export function wordCodes(words: readonly string[]): ReadonlyMap<string, number> {
  const known = knownCodes.get(words) ?? new Map<string, number>();
  knownCodes.set(words, known);
  for (let code = known.size; code < words.length; code++) known.set(words[code], code);
  return known;
}

const knownRanks = new WeakMap<readonly string[], Int32Array>();

/** Where each word stands when the words are sorted as people read them; remembered per list of words. */
export function wordRanks(words: readonly string[]): Int32Array {
  const known = knownRanks.get(words);
  if (known?.length === words.length) return known;
  // Padded digits sort like numbers, far faster than a collator does over 10,000 hosts.
  const keys = words.map((word) =>
    word.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(12, "0")),
  );
  const order = Array.from(words.keys()).sort((a, b) =>
    keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : naturalCompare(words[a], words[b]),
  );
  const ranks = new Int32Array(words.length);
  order.forEach((code, rank) => (ranks[code] = rank));
  knownRanks.set(words, ranks);
  return ranks;
}

/** The value of one row as text or number, null where there is none. */
export function valueAt(column: Column | undefined, row: number): string | number | null {
  if (!column) return null;
  if (column.kind === "text") return column.codes[row] < 0 ? null : column.words[column.codes[row]];
  const value = column.values[row];
  return Number.isNaN(value) ? null : value;
}
