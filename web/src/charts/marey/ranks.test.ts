import { describe, expect, it } from "vitest";
import type { ViewRow } from "@/charts/marey/ranks";
import { makeRows, printRanks } from "@/charts/marey/ranks";

const row = (rank: number, more: Partial<ViewRow> = {}): ViewRow =>
  ({
    ...{ position: rank, rank, host: "n1", stage: rank >> 2, replica: 0, shard: 0, cluster: 0 },
    ...{ exemplar: false, size: 4, outlier: false, missing: false, ...more },
  }) as ViewRow;
const words = {
  stage: (stage: number) => `stage ${stage}`,
  host: (host: string) => host,
  like: (count: number, rank: number) => `×${count} like ${rank}`,
  rank: (rank: number) => `rank ${rank}`,
  missing: (rank: number) => `rank ${rank} missing`,
  aside: () => "",
};
const choice = { order: "stage", grouped: true, open: new Set<string>(), clockErrorNs: 5 };
const ranks = [0, 1, 2, 3, 4, 5, 6, 7].map((rank) =>
  row(rank, rank === 2 ? { exemplar: true } : rank === 5 ? { outlier: true, cluster: 1 } : {}),
);

describe("the rows of the Marey view", () => {
  const labels = (more: Partial<typeof choice>, rows = ranks) =>
    makeRows(rows, { ...choice, ...more }, words).map(({ label }) => label);

  it("are stages, clusters with their exemplar, and every outlier by itself", () => {
    expect(labels({})).toEqual(["stage 0", "×4 like 2", "stage 1", "×3 like 4", "rank 5"]);
  });

  it("are also the rank that a link asks for, whoever behaves like it", () => {
    const rows = makeRows(ranks, { ...choice, asked: 3 }, words);
    expect(rows.map(({ label }) => label)).toEqual([
      ...["stage 0", "×3 like 2", "rank 3", "stage 1", "×3 like 4", "rank 5"],
    ]);
  });

  it("show the ranks of a cluster that was opened", () => {
    const rows = makeRows(ranks, { ...choice, open: new Set(["0/0"]) }, words);
    expect(rows.map(({ label }) => label).slice(1, 4)).toEqual(["×4 like 2", "rank 0", "rank 1"]);
  });

  it("show the streams of a rank that was opened, where it has several", () => {
    const several = [row(0, { streams: [7, 20] }), row(1, { streams: [7] })];
    const named = { ...words, stream: (stream: number) => `stream ${stream}` };
    const open = new Set(["rank 0", "rank 1"]);
    const rows = makeRows(several, { ...choice, grouped: false, open }, named);
    expect(rows.map(({ label }) => label)).toEqual(["rank 0", "stream 7", "stream 20", "rank 1"]);
    expect(rows.map(({ stream }) => stream)).toEqual([-1, 7, 20, -1]);
    expect(rows.map(({ cluster }) => cluster)).toEqual(["rank 0", "", "", ""]);
  });

  it("are all ranks when nothing is grouped", () => {
    expect(labels({ grouped: false })).toHaveLength(10);
    expect(labels({ grouped: false, order: "lateness" })).toHaveLength(8);
  });

  it("keep an empty labelled row for a rank that was not traced", () => {
    const missing = [...ranks, row(8, { missing: true, stage: -1 })];
    expect(labels({}, missing)).toContain("rank 8 missing");
  });
});

describe("ranks in an address", () => {
  it("are ranges where they can be, in their order", () => {
    expect(printRanks([3, 0, 1, 2, 7])).toBe("3,0-2,7");
    expect(printRanks([])).toBe("");
  });
});
