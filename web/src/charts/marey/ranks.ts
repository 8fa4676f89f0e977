/** The rows of the Marey view, made of ranks: headers, clusters with their exemplar, ranks, streams, missing ones. */

import type { Row } from "@/charts/marey/rows";
import type { Document } from "@/api/documents";

/** A rank of a step as the server describes it. */
export type ViewRow = Document<"TraceViewRows">["rows"][number];

export interface RowWords {
  stage: (stage: number) => string;
  host: (host: string) => string;
  like: (count: number, rank: number) => string;
  rank: (rank: number) => string;
  missing: (rank: number) => string;
  /** Where it is told, a rank opens to a row per stream. */
  stream?: (stream: number) => string;
  aside: (row: ViewRow) => string;
}

export interface RowChoice {
  order: string;
  /** Whether ranks that behave alike stand as one row. */
  grouped: boolean;
  /** Clusters and ranks that stand open: "group/cluster", "rank 7". */
  open: ReadonlySet<string>;
  clockErrorNs: number;
  /** A rank that stands as a row of its own, whoever behaves like it: the one that somebody asked for. */
  asked?: number | null;
}

/** A row with what it was made of. */
export interface MareyRow extends Row {
  /** Name of the cluster or rank that opens or closes; empty for other rows. */
  cluster: string;
  /** The stream of a row that shows only one; −1 for all. */
  stream: number;
  /** Place of the rank in the server's order. */
  position: number;
  /** Number of the cluster or stage that time-spans are told by; −1 where the row is one rank. */
  spanGroup: number;
}

/** Make the rows that stand on the screen, top to bottom. */
export function makeRows(
  ranks: readonly ViewRow[],
  choice: RowChoice,
  words: RowWords,
): MareyRow[] {
  const sorted = [...ranks].sort((a, b) => a.position - b.position);
  const rows: MareyRow[] = [];
  const keyOf = groupKey(choice.order);
  let group = -1;
  const runs = runsOf(sorted, keyOf);
  const staged = runs.filter(([first]) => !first.missing).length > 1;
  for (const members of runs) {
    group++;
    const header = staged ? headerOf(members[0], choice.order, words) : "";
    if (header) rows.push(makeRow("stage", header, null, group, choice));
    if (choice.grouped) addClusters(rows, members, group, choice, words);
    else for (const member of members) rows.push(...rankRows(member, group, choice, words));
  }
  return rows;
}

const groupKey = (order: string) => (row: ViewRow) =>
  row.missing ? "missing" : order === "stage" ? row.stage : order === "host" ? row.host : "";

/** Neighbours with the same key. */
function runsOf(rows: readonly ViewRow[], keyOf: (row: ViewRow) => unknown): ViewRow[][] {
  const runs: ViewRow[][] = [];
  for (const row of rows) {
    const last = runs[runs.length - 1];
    if (last && keyOf(last[0]) === keyOf(row)) last.push(row);
    else runs.push([row]);
  }
  return runs;
}

function headerOf(row: ViewRow, order: string, words: RowWords): string {
  if (row.missing) return "";
  if (order === "stage") return words.stage(row.stage ?? 0);
  return order === "host" ? words.host(row.host ?? "") : "";
}

function addClusters(
  rows: MareyRow[],
  members: readonly ViewRow[],
  group: number,
  choice: RowChoice,
  words: RowWords,
): void {
  const clusters = new Map<number, ViewRow[]>();
  const alone: ViewRow[] = [];
  for (const member of members)
    if (member.outlier || member.missing || member.rank === choice.asked) alone.push(member);
    else clusters.set(member.cluster, [...(clusters.get(member.cluster) ?? []), member]);
  for (const [cluster, same] of clusters) {
    if (same.length < 3) {
      rows.push(...same.flatMap((member) => rankRows(member, group, choice, words)));
      continue;
    }
    const exemplar = same.find((member) => member.exemplar) ?? same[0];
    const key = `${group}/${cluster}`;
    const label = words.like(same.length, exemplar.rank);
    rows.push({
      ...makeRow("cluster", label, exemplar, group, choice),
      cluster: key,
      count: same.length,
      spanGroup: cluster,
    });
    if (choice.open.has(key))
      rows.push(...same.flatMap((member) => rankRows(member, group, choice, words)));
  }
  rows.push(...alone.flatMap((member) => rankRows(member, group, choice, words)));
}

/** A rank, and below it its streams where it stands open. */
function rankRows(member: ViewRow, group: number, choice: RowChoice, words: RowWords): MareyRow[] {
  const kind = member.missing ? "missing" : "rank";
  const label = member.missing ? words.missing(member.rank) : words.rank(member.rank);
  const row = { ...makeRow(kind, label, member, group, choice), aside: words.aside(member) };
  const { stream: name } = words;
  const streams = (member.streams ?? []).filter((stream) => stream !== null);
  if (!name || member.missing || streams.length < 2) return [row];
  const key = `rank ${member.rank}`;
  const own = streams.map((stream) => ({
    ...makeRow("stream", name(stream), member, group, choice),
    ...{ stream, outlier: false },
  }));
  return [{ ...row, cluster: key }, ...(choice.open.has(key) ? own : [])];
}

function makeRow(
  kind: Row["kind"],
  label: string,
  member: ViewRow | null,
  group: number,
  { clockErrorNs }: RowChoice,
): MareyRow {
  return {
    kind,
    label,
    rank: member?.rank ?? -1,
    group,
    count: 1,
    outlier: member?.outlier ?? false,
    clockErrorNs,
    cluster: "",
    stream: -1,
    position: member?.position ?? -1,
    spanGroup: -1,
  };
}

/** Ranks as the server takes them: "0,5,9-12". */
export function printRanks(ranks: readonly number[]): string {
  const parts: string[] = [];
  for (let i = 0; i < ranks.length;) {
    let end = i;
    while (end + 1 < ranks.length && ranks[end + 1] === ranks[end] + 1) end++;
    parts.push(end > i ? `${ranks[i]}-${ranks[end]}` : String(ranks[i]));
    i = end + 1;
  }
  return parts.join(",");
}
