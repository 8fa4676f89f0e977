import { expect, test } from "vitest";
import { appendedBands, appendedLines } from "@/features/diagnostics/appending";
import type { Bands, Lines } from "@/features/diagnostics/documents";

const FRAME = {
  workload: "w",
  metric: "util",
  label: "",
  unit: "",
  from_ms: null,
  to_ms: null,
  moments: 0,
};
const lines = (time_ms: number[], values: number[], bin_ms = 10): Lines => ({
  bin_ms,
  time_ms,
  metrics: [{ ...FRAME, lines: [{ gpu: "a", value: values }] }],
});
const bands = (time_ms: number[], values: number[]): Bands => ({
  bin_ms: 10,
  coarse: false,
  bands: [
    {
      ...FRAME,
      time_ms,
      low: values,
      p10: values,
      median: values,
      p90: values,
      high: values,
    },
  ],
});

test("the last bin is replaced and what follows is put behind it", () => {
  const grown = appendedLines(
    lines([0, 5, 10, 15], [1, 2, 3, 4]),
    lines([10, 15, 20, 25], [3, 9, 5, 6]),
  );
  expect(grown.time_ms).toEqual([0, 5, 10, 15, 20, 25]);
  expect(grown.metrics[0].lines[0].value).toEqual([1, 2, 3, 9, 5, 6]);
});

test("bands grow in the same way", () => {
  const grown = appendedBands(
    bands([0, 5, 10, 15], [1, 2, 3, 4]),
    bands([10, 15, 20, 25], [3, 9, 5, 6]),
  );
  expect(grown.bands[0].time_ms).toEqual([0, 5, 10, 15, 20, 25]);
  expect(grown.bands[0].high).toEqual([1, 2, 3, 9, 5, 6]);
});

test("a GPU without new samples has a gap, and other bins change nothing", () => {
  const old = lines([0, 5], [1, 2]);
  expect(
    appendedLines(old, { ...lines([10, 15], [1, 1]), metrics: [] }).metrics[0].lines[0].value,
  ).toEqual([1, 2, null, null]);
  expect(appendedLines(old, lines([10], [1], 20))).toBe(old);
});
