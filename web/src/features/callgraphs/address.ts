/** What the page of call graphs shows, as it stands in the address. */

export interface PageState {
  /** Sources of the profiles; `against` is the other side of a comparison. */
  sources: string[];
  against: string[];
  split: string;
  by: string;
  share: string;
  target: string;
  /** Numbers of profiles, as the server takes them; empty for all. */
  profiles: string;
  reveal: string[];
  callers: string[];
  callees: string[];
  /** The selected call site, as names from the root; or the selected module. */
  path: string[];
  module: string;
  /** A query over paths, in short or as JSON. */
  where: string;
  /** What call sites scale with; the first that there is, if empty. */
  parameter: string;
}

const LISTS = {
  sources: "source",
  against: "with",
  reveal: "reveal",
  callers: "caller",
  callees: "callee",
  path: "path",
} as const;
const TEXTS = [
  "split",
  "by",
  "share",
  "target",
  "profiles",
  "module",
  "where",
  "parameter",
] as const;
const USUAL: Partial<Record<(typeof TEXTS)[number], string>> = { by: "module", share: "0.005" };

export function readAddress(search: string): PageState {
  const query = new URLSearchParams(search);
  const state: Record<string, string | string[]> = {};
  for (const [field, word] of Object.entries(LISTS)) state[field] = query.getAll(word);
  for (const word of TEXTS) state[word] = query.get(word) ?? USUAL[word] ?? "";
  return state as unknown as PageState;
}

export function printAddress(state: PageState): string {
  const query = new URLSearchParams();
  for (const [field, word] of Object.entries(LISTS))
    for (const value of state[field as keyof typeof LISTS]) query.append(word, value);
  for (const word of TEXTS)
    if (state[word] && state[word] !== USUAL[word]) query.set(word, state[word]);
  const text = query.toString();
  return text ? `?${text}` : "";
}

/** The numbers of profiles in short: 0-3,7. */
export function shortRanges(numbers: readonly number[]): string {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const parts: string[] = [];
  for (let i = 0; i < sorted.length;) {
    let end = i;
    while (sorted[end + 1] === sorted[end] + 1) end++;
    parts.push(end > i ? `${sorted[i]}-${sorted[end]}` : String(sorted[i]));
    i = end + 1;
  }
  return parts.join(",");
}
