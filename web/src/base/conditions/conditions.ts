/** Conditions that can be put together by hand: what a field is called, what may be asked of it, the address. */

import type { Operator, Predicate } from "@/base/predicate";
import { parsePredicate } from "@/base/predicate";
import { conditionTexts as texts } from "@/texts";

export const NUMBER_OPS: readonly Operator[] = ["ge", "le", "eq"];
export const TEXT_OPS: readonly Operator[] = ["eq", "ne", "contains"];

/** The fields that a table offers; those that are numbers are compared, the others are read. */
export interface Fields {
  texts: readonly string[];
  numbers: readonly string[];
}

/** What people call a field. */
export const fieldName = (field: string): string =>
  (texts.fields as Record<string, string>)[field] ?? field;

/** A condition in words; one that was not put together here as it is written. */
export function describeCondition(condition: Predicate): string {
  if (!("field" in condition)) return JSON.stringify(condition);
  const { field, op, value } = condition;
  const how = (texts.operators as Record<string, string>)[op] ?? op;
  return `${fieldName(field)} ${how} ${String(value)}`;
}

/** The conditions of an address; one that makes no sense is left out. */
export function readWhere(text: string | null): Predicate[] {
  if (!text) return [];
  try {
    const predicate = parsePredicate(JSON.parse(text));
    return "and" in predicate ? [...predicate.and] : [predicate];
  } catch {
    return [];
  }
}

/** Conditions as an address has them; null where there are none. */
export const printWhere = (where: readonly Predicate[]): string | null =>
  where.length > 0 ? JSON.stringify({ and: where }) : null;

/** Conditions, and a text that any of some fields must hold, as one predicate; null where nothing is asked. */
export function joinConditions(
  where: readonly Predicate[],
  text: string,
  searched: readonly string[],
): Predicate | null {
  const value = text.trim();
  const parts = [...where];
  if (value) parts.push({ or: searched.map((field) => ({ field, op: "contains", value })) });
  return parts.length === 0 ? null : { and: parts };
}
