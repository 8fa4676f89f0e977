/** Predicates in words, for people. */

import type { Attribute } from "@/base/attributes";
import { formatValue } from "@/base/format";
import type { Comparison, Predicate } from "@/base/predicate";

const OPERATOR_WORDS: Record<string, string> = { eq: "is", ne: "is not", lt: "<", le: "≤", gt: ">", ge: "≥", contains: "contains", prefix: "begins with" };

/** One line that says what a predicate asks. */
export function predicateText(predicate: Predicate, attributes: ReadonlyMap<string, Attribute>): string {
  if ("and" in predicate) return predicate.and.map((part) => predicateText(part, attributes)).join(" and ") || "everything";
  if ("or" in predicate) return predicate.or.map((part) => predicateText(part, attributes)).join(" or ") || "nothing";
  if ("not" in predicate) return `not (${predicateText(predicate.not, attributes)})`;
  return comparisonText(predicate, attributes.get(predicate.field));
}

function comparisonText({ field, op, value }: Comparison, attribute: Attribute | undefined): string {
  const label = attribute?.label ?? field.replace("attributes.", "");
  const shown = (one: unknown) => (typeof one === "number" ? formatValue(one, attribute?.unit ?? "") : String(one));
  if (op === "missing") return value === false ? `has a ${label.toLowerCase()}` : `has no ${label.toLowerCase()}`;
  if (op === "between") return `${label} ${formatValue((value as number[])[0])} – ${shown((value as number[])[1])}`;
  if (op === "in") {
    const list = value as unknown[];
    return `${label} is ${list.slice(0, 3).map(shown).join(", ")}${list.length > 3 ? ` or ${list.length - 3} more` : ""}`;
  }
  return `${label} ${OPERATOR_WORDS[op] ?? op} ${shown(value)}`;
}
