import { expect, test } from "vitest";
import type { LanguageDocument } from "@/base/verdicts/documents";
import type { Finding, Mute } from "@/features/findings/documents";
import {
  measuredMetrics,
  mutesOf,
  openSeconds,
  plottedSpan,
  printAddress,
  readAddress,
  readingText,
} from "@/features/findings/documents";

const LANGUAGE = {
  metrics: {
    power: { unit: "W", plotted: "power" },
    util: { unit: "%", plotted: "util" },
    mem_share: { unit: "%", plotted: "mem_used" },
    xid: { unit: "", plotted: null },
  },
  facts: { runtime: { kind: "duration" }, gpus: { kind: "number" } },
} as unknown as LanguageDocument;

test("a value is said in the unit of what was measured", () => {
  const said = (condition: string, value: number | string | null) =>
    readingText(condition, value, LANGUAGE).replaceAll("\u2009", " ");
  expect(said("power mean[30m] < 300 W", 212.4)).toBe("212 W");
  expect(said("runtime > 15m", 3_600_000)).toBe("1 h");
  expect(said("gpus >= 4", 8)).toBe("8");
  expect(said("power share(< 70 W) > 50%", 62)).toBe("62 %");
  expect(said("util trend[1h] > 2%/h", 3)).toBe("3 %/h");
  expect(said("user = ada", "ada")).toBe("ada");
  expect(said("util mean < 3%", null)).toBe("not evaluated");
});

test("what is shown is in the address", () => {
  const shown = {
    state: "closed",
    rule: "low",
    user: "ada & bob",
    project: "",
    workload: "",
    id: "0f",
    severity: "critical",
    q: "xid",
    sort: "newest",
    group: "rule",
  } as const;
  expect(readAddress(printAddress(shown))).toEqual(shown);
  expect(printAddress(readAddress(""))).toBe("");
});

const FINDING = {
  rule: "low",
  workload: "7",
  user: "ada",
  project: "p",
  episodes: [
    { opened_ms: 0, closed_ms: 60_000, because: "" },
    { opened_ms: 120_000, closed_ms: null, because: "" },
  ],
} as unknown as Finding;
const mute = (part: Partial<Mute>): Mute => ({
  id: "1",
  scope: "user",
  value: "ada",
  why: "",
  by: "",
  rule: "",
  until_ms: null,
  since_ms: 0,
  ...part,
});

test("a finding was open as long as its episodes", () =>
  expect(openSeconds(FINDING, 150_000)).toBe(90));

test("mutes that are over, of another rule or another user do not cover a finding", () => {
  expect(
    mutesOf(
      FINDING,
      [
        mute({}),
        mute({ until_ms: 10 }),
        mute({ rule: "high" }),
        mute({ value: "bob" }),
        mute({ scope: "workload", value: "7", rule: "low", until_ms: 1e9 }),
      ],
      1000,
    ),
  ).toHaveLength(2);
});

test("the plot of a finding shows what its conditions measured, with some time around it", () => {
  const reading = (condition: string) => ({ condition, value: 1, limit: 2 });
  const evidence = {
    "h:0": ["util median > 60%", "power p95 < 200 W", "util p5 > 1%", "runtime > 30m"].map(reading),
  };
  const minutes = (count: number) => count * 60_000;
  const finding = { opened_ms: minutes(100), closed_ms: minutes(180), updated_ms: minutes(180) };
  expect(measuredMetrics({ ...finding, evidence } as unknown as Finding, LANGUAGE)).toEqual([
    "util",
    "power",
  ]);
  const others = { "h:0": ["mem_share max > 98%", "xid max > 0"].map(reading) };
  expect(measuredMetrics({ ...finding, evidence: others } as unknown as Finding, LANGUAGE)).toEqual(
    ["mem_used"],
  );
  expect(measuredMetrics({ ...finding, evidence: {} } as unknown as Finding, LANGUAGE)).toEqual([
    "util",
  ]);
  expect(plottedSpan(finding as Finding)).toEqual([minutes(70), minutes(210)]);
  expect(plottedSpan({ ...finding, closed_ms: null } as Finding)).toEqual([
    minutes(70),
    minutes(180),
  ]);
});
