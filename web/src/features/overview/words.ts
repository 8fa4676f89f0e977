/** Predicates in words, for people. */

import type { Attribute } from "@/base/attributes";
import { formatValue } from "@/base/format";
import type { Comparison, Predicate } from "@/base/predicate";
import { overviewTexts as texts } from "@/texts";

const OPERATOR_WORDS: Record<string, string> = {
  eq: "is",
  ne: texts.isNot,
  lt: "<",
  le: "≤",
  gt: ">",
  ge: "≥",
  contains: texts.containsOperator,
  prefix: texts.startsWith,
};

/** One line that says what a predicate asks. */
export function predicateText(
  predicate: Predicate,
  attributes: ReadonlyMap<string, Attribute>,
): string {
  if ("and" in predicate)
    return (
      predicate.and.map((part) => predicateText(part, attributes)).join(texts.and) ||
      texts.everything
    );
  if ("or" in predicate)
    return (
      predicate.or.map((part) => predicateText(part, attributes)).join(texts.or) || texts.nothing
    );
  if ("not" in predicate) return texts.not(predicateText(predicate.not, attributes));
  return comparisonText(predicate, attributes.get(predicate.field));
}

function comparisonText(
  { field, op, value }: Comparison,
  attribute: Attribute | undefined,
): string {
  const label = attribute?.label ?? field.replace("attributes.", "");
  const shown = (one: unknown) =>
    typeof one === "number" ? formatValue(one, attribute?.unit ?? "") : String(one);
  if (op === "missing")
    return value === false ? texts.hasA(label.toLowerCase()) : texts.hasNo(label.toLowerCase());
  if (op === "between")
    return `${label} ${formatValue((value as number[])[0])} – ${shown((value as number[])[1])}`;
  if (op === "in") {
    const list = value as unknown[];
    return texts.is(
      label,
      list.slice(0, 3).map(shown).join(", "),
      list.length > 3 ? texts.orMore(list.length - 3) : "",
    );
  }
  return `${label} ${OPERATOR_WORDS[op] ?? op} ${shown(value)}`;
}
