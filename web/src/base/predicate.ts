/**
 * The one filter form, as the model defines it: {"field", "op", "value"} under "and", "or", "not".
 * tests/golden/predicates.json holds the cases on which this and Python's evaluator agree.
 */

import type { Column, Table } from "@/base/columns";
import { baseTexts as texts } from "@/texts";

export const OPERATORS = [
  "eq",
  "ne",
  "lt",
  "le",
  "gt",
  "ge",
  "in",
  "between",
  "contains",
  "prefix",
  "missing",
] as const;
export type Operator = (typeof OPERATORS)[number];
export type Scalar = string | number | boolean;

export interface Comparison {
  field: string;
  op: Operator;
  value?: Scalar | Scalar[] | null;
}
export type Predicate =
  Comparison | { and: Predicate[] } | { or: Predicate[] } | { not: Predicate };

export const EVERYTHING: Predicate = { and: [] };
const DEPTH_LIMIT = 32;
const LIST_LIMIT = 10_000;

export class PredicateError extends Error {}

/** Check a document and return it as a predicate; the error says where and what is allowed. */
export function parsePredicate(document: unknown, place = "$", depth = 0): Predicate {
  if (depth > DEPTH_LIMIT)
    throw new PredicateError(texts.theFilterAtIsNestedDeeper(place.slice(0, 80), DEPTH_LIMIT));
  if (!isObject(document)) throw wrong(place, document, texts.anObjectSuchAsFieldUser);
  const keys = Object.keys(document);
  if (keys.length === 1 && (keys[0] === "and" || keys[0] === "or")) {
    const word = keys[0];
    const parts = document[word];
    if (!Array.isArray(parts) || parts.length > LIST_LIMIT)
      throw wrong(`${place}.${word}`, parts, texts.aListOfFilters);
    const parsed = parts.map((part, i) =>
      parsePredicate(part, `${place}.${word}[${i}]`, depth + 1),
    );
    return word === "and" ? { and: parsed } : { or: parsed };
  }
  if (keys.length === 1 && keys[0] === "not")
    return { not: parsePredicate(document["not"], `${place}.not`, depth + 1) };
  return parseComparison(document, place);
}

function parseComparison(node: Record<string, unknown>, place: string): Comparison {
  const extra = Object.keys(node).filter((key) => !["field", "op", "value"].includes(key));
  if (extra.length > 0 || !("field" in node) || !("op" in node)) {
    throw wrong(place, Object.keys(node), texts.fieldOpAndValueOrOne);
  }
  const { field, op, value } = node;
  if (typeof field !== "string") throw wrong(`${place}.field`, field, "text");
  if (!OPERATORS.includes(op as Operator))
    throw wrong(`${place}.op`, op, texts.oneOf(OPERATORS.join(", ")));
  checkValue(op as Operator, value ?? null, `${place}.value`);
  return { field, op: op as Operator, value: (value ?? null) as Comparison["value"] & {} };
}

function checkValue(op: Operator, value: unknown, place: string): void {
  const number = (v: unknown) => typeof v === "number" && !Number.isNaN(v);
  const scalar = (v: unknown) => typeof v === "string" || typeof v === "boolean" || number(v);
  const list = (v: unknown): v is unknown[] => Array.isArray(v);
  const [good, wanted] = ((): [boolean, string] => {
    switch (op) {
      case "missing":
        return [value === null || typeof value === "boolean", texts.trueOrFalse];
      case "in":
        return [
          list(value) && value.length <= LIST_LIMIT && value.every(scalar),
          texts.aListOfTextsOrNumbers,
        ];
      case "between":
        return [list(value) && value.length === 2 && value.every(number), texts.twoNumbersLowHigh];
      case "contains":
      case "prefix":
        return [typeof value === "string", "text"];
      case "eq":
      case "ne":
        return [scalar(value), texts.textANumberTrueOrFalse];
      default:
        return [number(value) || typeof value === "string", texts.aNumberOrText];
    }
  })();
  if (!good) throw wrong(place, value, wanted);
}

function wrong(place: string, value: unknown, wanted: string): PredicateError {
  const shown = (JSON.stringify(value) ?? "nothing").slice(0, 80);
  return new PredicateError(texts.theFilterAtHasAllowed(place, shown, wanted));
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Whether one row satisfies the predicate. */
export function matches(predicate: Predicate, row: Record<string, unknown>): boolean {
  if ("and" in predicate) return predicate.and.every((part) => matches(part, row));
  if ("or" in predicate) return predicate.or.some((part) => matches(part, row));
  if ("not" in predicate) return !matches(predicate.not, row);
  return compare(predicate, fieldOf(row, predicate.field));
}

function fieldOf(row: Record<string, unknown>, name: string): unknown {
  if (Object.hasOwn(row, name)) return row[name];
  const dot = name.indexOf(".");
  const nested = dot > 0 ? row[name.slice(0, dot)] : undefined;
  return isObject(nested) ? nested[name.slice(dot + 1)] : undefined;
}

function compare(comparison: Comparison, actual: unknown): boolean {
  const absent = actual === null || actual === undefined || Number.isNaN(actual);
  if (comparison.op === "missing") return absent === (comparison.value !== false);
  if (absent) return false;
  if (Array.isArray(actual)) return actual.some((item) => compare(comparison, item));
  return test(comparison.op, actual as Scalar, comparison.value as Scalar | Scalar[]);
}

function test(op: Operator, a: Scalar, v: Scalar | Scalar[]): boolean {
  switch (op) {
    case "eq":
      return a === v;
    case "ne":
      return a !== v;
    case "in":
      return (v as Scalar[]).includes(a);
    case "between":
      return (
        typeof a !== "string" &&
        Number(a) >= Number((v as Scalar[])[0]) &&
        Number(a) <= Number((v as Scalar[])[1])
      );
    case "contains":
      return typeof a === "string" && a.toLowerCase().includes((v as string).toLowerCase());
    case "prefix":
      return typeof a === "string" && a.toLowerCase().startsWith((v as string).toLowerCase());
    case "lt":
      return typeof a === typeof v && a < v;
    case "le":
      return typeof a === typeof v && a <= v;
    case "gt":
      return typeof a === typeof v && a > v;
    case "ge":
      return typeof a === typeof v && a >= v;
    case "missing":
      return false;
  }
}

/** 1 for each row of a table that satisfies the predicate; one test per distinct word. */
export function select(predicate: Predicate, table: Table): Uint8Array {
  const kept = new Uint8Array(table.rows);
  if ("and" in predicate) {
    kept.fill(1);
    for (const part of predicate.and) select(part, table).forEach((yes, i) => (kept[i] &= yes));
    return kept;
  }
  if ("or" in predicate) {
    for (const part of predicate.or) select(part, table).forEach((yes, i) => (kept[i] |= yes));
    return kept;
  }
  if ("not" in predicate) return select(predicate.not, table).map((yes) => 1 - yes);
  return selectColumn(predicate, table.columns.get(predicate.field), kept);
}

function selectColumn(
  comparison: Comparison,
  column: Column | undefined,
  kept: Uint8Array,
): Uint8Array {
  const absent = compare(comparison, null) ? 1 : 0;
  if (!column) return kept.fill(absent);
  if (column.kind === "text") {
    const verdicts = column.words.map((word) => (compare(comparison, word) ? 1 : 0));
    for (let i = 0; i < kept.length; i++)
      kept[i] = column.codes[i] < 0 ? absent : verdicts[column.codes[i]];
    return kept;
  }
  const { values } = column;
  for (let i = 0; i < kept.length; i++) kept[i] = compare(comparison, values[i]) ? 1 : 0;
  return kept;
}

/** Every field a predicate looks at. */
export function fieldsOf(predicate: Predicate): string[] {
  if ("and" in predicate) return predicate.and.flatMap(fieldsOf);
  if ("or" in predicate) return predicate.or.flatMap(fieldsOf);
  if ("not" in predicate) return fieldsOf(predicate.not);
  return [predicate.field];
}
