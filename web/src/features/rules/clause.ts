/**
 * A rule as fields: the server's JSON form, edited part by part, and its text with the place of each field.
 * The server reads the text and knows the language; here its words are only put side by side.
 */

import type { Document } from "@/api/documents";
import { rulesTexts as texts } from "@/texts";

export type Condition = Document<"RuleCondition">;
export type Expression = Document<"RuleExpression">;
export type Clause = Document<"RuleClause">;

/** The way to a part of an expression: the place in its list, or 0 under NOT. */
export type Path = readonly number[];

export type FieldName = "subject" | "statistic" | "window" | "op" | "value";

/** Where a field of a condition stands in the text. */
export interface Span {
  path: Path;
  field: FieldName;
  start: number;
  end: number;
}

export const OPERATORS = ["<", "<=", ">", ">=", "=", "!="] as const;

export const REACHES: readonly { value: string; label: string; amount: boolean }[] = [
  { value: "any", label: texts.anyGpu, amount: false },
  { value: "any_node", label: texts.everyGpuOfAnyNode, amount: false },
  { value: "all", label: texts.allGpus, amount: false },
  { value: "all_but_first_rank", label: texts.allButTheFirstRank, amount: false },
  { value: "at_least", label: texts.atLeastGpus, amount: true },
  { value: "at_least_share", label: texts.atLeastOfTheGpus, amount: true },
];

export const isCondition = (node: Expression): node is Condition => "op" in node;

/** The parts of a combination, or null of a condition. */
export function partsOf(node: Expression): Expression[] | null {
  if ("and" in node) return node.and;
  if ("or" in node) return node.or;
  return "not" in node ? [node.not] : null;
}

/** A condition to begin with. */
export function newCondition(): Condition {
  return { metric: "util", statistic: "mean", op: "<", value: "10%" };
}

/** A new clause with another expression at a path. */
export function replaceAt(
  node: Expression,
  path: Path,
  change: (part: Expression) => Expression | null,
): Expression | null {
  if (path.length === 0) return change(node);
  const [place, ...rest] = path;
  if ("not" in node) {
    const inner = replaceAt(node.not, rest, change);
    return inner === null ? null : { not: inner };
  }
  const parts = partsOf(node);
  if (!parts) return node;
  const next = parts.flatMap((part, i) => {
    if (i !== place) return [part];
    const changed = replaceAt(part, rest, change);
    return changed === null ? [] : [changed];
  });
  // One part alone is no combination; none is nothing.
  if (next.length === 0) return null;
  if (next.length === 1) return next[0];
  return "and" in node ? { and: next } : { or: next };
}

/** Put a condition beside another, under the combination that is there or a new one. */
export function addBeside(node: Expression, word: "and" | "or", added: Expression): Expression {
  if (word in node)
    return word === "and"
      ? { and: [...(node as { and: Expression[] }).and, added] }
      : { or: [...(node as { or: Expression[] }).or, added] };
  return word === "and" ? { and: [node, added] } : { or: [node, added] };
}

/** The other word between the same parts. */
export function switchWord(node: Expression): Expression {
  if ("and" in node) return { or: node.and };
  return "or" in node ? { and: node.or } : node;
}

/** Put NOT before a part, or take it away. */
export function toggleNot(node: Expression): Expression {
  return "not" in node ? node.not : { not: node };
}

/** The clause as text, with the place of every field. */
export function printClause(clause: Clause): { text: string; spans: Span[] } {
  const spans: Span[] = [];
  let text = "";
  const head = quantifierText(clause.gpus);
  if (head) text = `${head}: `;
  print(clause.when, [], false);
  return { text, spans };

  function print(node: Expression, path: number[], inner: boolean): void {
    if (isCondition(node)) return printCondition(node, path);
    if ("not" in node) {
      text += "not ";
      print(node.not, [...path, 0], true);
      return;
    }
    const word = "and" in node ? " and " : " or ";
    if (inner) text += "(";
    (partsOf(node) ?? []).forEach((part, i) => {
      if (i > 0) text += word;
      print(part, [...path, i], true);
    });
    if (inner) text += ")";
  }

  function put(path: Path, field: FieldName, words: string): void {
    spans.push({ path, field, start: text.length, end: text.length + words.length });
    text += words;
  }

  function printCondition(node: Condition, path: Path): void {
    const list = Array.isArray(node.value) && node.value.filter((word) => word !== "").length > 1;
    if (list && node.op === "!=") text += "not ";
    put(path, "subject", node.fact ?? node.metric ?? "");
    if (node.statistic && node.fact === undefined) {
      text += " ";
      put(path, "statistic", node.statistic);
    }
    if (node.window) {
      text += "[";
      put(path, "window", node.window);
      text += "]";
    }
    if (node.over) text += ` over ${node.over}`;
    text += " ";
    put(path, "op", list ? "in" : node.op);
    text += " ";
    put(path, "value", valueText(node.value));
  }
}

function quantifierText(gpus: Clause["gpus"]): string {
  const amount = gpus?.amount ?? 1;
  switch (gpus?.reach) {
    case "all":
      return "all";
    case "any_node":
      return "any node";
    case "all_but_first_rank":
      return "all but the first rank";
    case "at_least":
      return `at least ${amount} gpus`;
    case "at_least_share":
      return `at least ${amount}% of gpus`;
    default:
      return "";
  }
}

const BARE = /^[A-Za-z_][A-Za-z0-9_.-]*$/;
// Words of the language need quotes where they are names.
const KEYWORDS = new Set(["and", "in", "not", "of", "or", "over"]);

function valueText(value: Condition["value"]): string {
  if (!Array.isArray(value)) return String(value);
  // A comma that has just been typed is no name yet.
  const names = value.filter((word) => word !== "");
  const words = (names.length > 0 ? names : [""]).map((word) =>
    BARE.test(word) && !KEYWORDS.has(word.toLowerCase()) ? word : quoted(word),
  );
  return words.length === 1 ? words[0] : `(${words.join(", ")})`;
}

function quoted(word: string): string {
  return `"${word.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n").replaceAll("\t", "\\t")}"`;
}

/** The field that an error's place falls into; the nearest before it where it falls between two. */
export function fieldAt(spans: readonly Span[], start: number): Span | null {
  let found: Span | null = null;
  for (const span of spans)
    if (span.start <= start && (!found || span.start >= found.start)) found = span;
  return found;
}

/** The server's "did you mean 'util'?" as the word to put in. */
export function suggestionIn(reason: string): string | null {
  return /did you mean '([^']{1,80})'\?/.exec(reason)?.[1] ?? null;
}

/** An id for a rule, made from its title. */
export function idFrom(title: string): string {
  const plain = title
    .normalize("NFKD")
    .replace(/\p{M}/gu, "")
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-");
  return plain
    .replace(/^-+|-+$/g, "")
    .slice(0, 64)
    .replace(/-+$/, "");
}
