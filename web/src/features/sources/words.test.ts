import { describe, expect, it } from "vitest";
import {
  ago,
  conditionOf,
  failingEndpoints,
  failuresText,
  rateText,
  reloadedText,
  type Source,
  summaryText,
  tookText,
} from "@/features/sources/words";

const FRESH: Source = {
  name: "slurm",
  kind: "slurm",
  cluster: "default",
  state: "fresh",
  removed: false,
  last_ms: 1000,
  age_ms: 3000,
  newest_ms: 1000,
  lag_ms: 3000,
  error: "",
  mend: "",
  last_error: "",
  last_error_ms: null,
  polls: 10,
  failures: 0,
  failures_in_a_row: 0,
  poll_seconds: 0.0352,
  values: 96,
  values_total: 960,
  rate_per_s: 6.42,
  backoff_ms: 0,
  details: {},
};

describe("a source in words", () => {
  it("says how it is in one word", () => {
    expect(conditionOf(FRESH)).toEqual({ word: "healthy", tone: "good" });
    expect(conditionOf({ ...FRESH, error: "no answer" }).word).toBe("failing");
    expect(conditionOf({ ...FRESH, state: "stale", error: "no answer" }).tone).toBe("alert");
    expect(conditionOf({ ...FRESH, state: "waiting" }).word).toBe("no data yet");
    expect(conditionOf({ ...FRESH, state: "stale", removed: true }).word).toBe("removed");
  });
  it("has units at every number", () => {
    expect(ago(3000)).toBe("3\u2009s ago");
    expect(ago(null)).toBe("never");
    expect(rateText(6.42)).toBe("6.4\u2009/s");
    expect(rateText(12_345)).toBe("12,345\u2009/s");
    expect(rateText(null)).toBe("–");
    expect(tookText(FRESH)).toBe("35\u2009ms");
    expect(tookText({ ...FRESH, poll_seconds: 1.23 })).toBe("1.2\u2009s");
    expect(tookText({ ...FRESH, last_ms: null })).toBe("–");
  });
  it("counts failures, and those in a row", () => {
    expect(failuresText(FRESH)).toBe("0 of 10");
    expect(failuresText({ ...FRESH, failures: 4, failures_in_a_row: 3 })).toBe(
      "4 of 10 (3 in a row)",
    );
  });
  it("sums the page up, leaving out what was taken out", () => {
    expect(summaryText([])).toBe("No sources configured.");
    expect(summaryText([FRESH])).toBe("1 source healthy.");
    expect(summaryText([FRESH, { ...FRESH, state: "stale" }, { ...FRESH, removed: true }])).toBe(
      "1 of 2 sources healthy.",
    );
  });
  it("tells what reading again has done", () => {
    const nothing = {
      kept: [],
      added: [],
      replaced: [],
      removed: [],
      needs_restart: [],
      taken_over: true,
    };
    expect(reloadedText({ ...nothing, kept: ["a"], added: ["b", "c"] })).toBe(
      "Reloaded: kept a; added b, c.",
    );
    expect(reloadedText({ ...nothing, needs_restart: ["server.port"] })).toContain(
      "Restart needed for server.port.",
    );
  });
  it("lists exporters that fail, and nothing where none does", () => {
    expect(failingEndpoints(FRESH)).toBeNull();
    expect(
      failingEndpoints({ ...FRESH, details: { endpoints: 8, failing: 0, errors: [] } }),
    ).toBeNull();
    const found = failingEndpoints({
      ...FRESH,
      details: {
        endpoints: 8,
        failing: 1,
        errors: [{ endpoint: "http://n1:9400", error: "no answer" }],
      },
    });
    expect(found?.listed[0]?.endpoint).toBe("http://n1:9400");
  });
});
