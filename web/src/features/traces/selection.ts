/**
 * A selection as text: `rank=3,7-9 and step=5 and name="aten::mm" and time=12.5..20`.
 *
 * The pages change single clauses and keep the rest as it is; what it means is decided by the server, which takes the
 * same text from the command line and from notebooks.
 */

export interface Clause {
  field: string;
  sign: string;
  value: string;
}

const VALUE = String.raw`(?:"(?:[^"\\]|\\.)*"|[^\s,"]+)`;
const CLAUSE = new RegExp(
  String.raw`\s*([A-Za-z_]+)\s*(\^=|!=|<=|>=|=|<|>|~)\s*(${VALUE}(?:\s*,\s*${VALUE})*)\s*`,
  "y",
);
const AND = /(?:and\b|&&?)\s*/iy;

/** The clauses of a selection; null where it is in another form, which is then left alone. */
export function parseClauses(text: string): Clause[] | null {
  const clauses: Clause[] = [];
  let at = 0;
  while (at < text.length) {
    CLAUSE.lastIndex = at;
    const found = CLAUSE.exec(text);
    if (!found) return text.trim() ? null : clauses;
    clauses.push({ field: found[1].toLowerCase(), sign: found[2], value: found[3] });
    at = CLAUSE.lastIndex;
    AND.lastIndex = at;
    if (at < text.length) {
      if (!AND.exec(text)) return null;
      at = AND.lastIndex;
    }
  }
  return clauses;
}

export function printClauses(clauses: readonly Clause[]): string {
  return clauses.map(({ field, sign, value }) => `${field}${sign}${value}`).join(" and ");
}

/** The selection with one field set to a value, or without it where the value is null. */
export function withClause(text: string, field: string, value: string | null): string {
  const rest = (parseClauses(text) ?? []).filter((clause) => clause.field !== field);
  if (value !== null) rest.push({ field, sign: "=", value });
  return printClauses(rest);
}

/** The value of a field that the selection sets, or null. */
export function clauseValue(text: string, field: string): string | null {
  const found = parseClauses(text)?.find((clause) => clause.field === field && clause.sign === "=");
  return found?.value ?? null;
}

/** The first whole number of a field's value, or null. */
export function firstNumber(text: string, field: string): number | null {
  const value = clauseValue(text, field);
  const found = value === null ? null : /^\d+/.exec(value);
  return found ? Number(found[0]) : null;
}

/** A name as it may stand in a selection. */
export const quoteValue = (name: string): string =>
  `"${name.slice(0, 200).replace(/\\/g, "\\\\").replace(/"/g, '\\"')}"`;

/** The names that a value lists, without their quotes. */
export function listNames(value: string | null): string[] {
  if (value === null) return [];
  return [...value.matchAll(/"((?:[^"\\]|\\.)*)"|([^\s,"]+)/g)].map((found) =>
    found[1] === undefined ? found[2] : found[1].replace(/\\(.)/g, "$1"),
  );
}

/** Every whole number that a value such as "3,7-9" names, at most some thousands. */
export function listNumbers(value: string | null): number[] {
  const numbers: number[] = [];
  for (const part of (value ?? "").split(",")) {
    const found = /^\s*(\d+)(?:-(\d+))?\s*$/.exec(part);
    if (!found) continue;
    const last = Math.min(Number(found[2] ?? found[1]), Number(found[1]) + 5_000);
    for (let n = Number(found[1]); n <= last; n++) numbers.push(n);
  }
  return numbers;
}

/** A span of time in milliseconds of the step as nanoseconds, or null. */
export function timeSpan(text: string): { fromNs: number; toNs: number } | null {
  const found = /^([\d.]+)\.\.([\d.]+)$/.exec(clauseValue(text, "time") ?? "");
  if (!found) return null;
  const [from, to] = [Number(found[1]) * 1e6, Number(found[2]) * 1e6];
  return to > from ? { fromNs: from, toNs: to } : null;
}
