import { expect, test } from "vitest";
import { bridged, joined } from "@/charts/timeline";

test("a metric that is sampled less often is drawn across, a silence is a gap", () => {
  expect(bridged([1, null, 2, null, null, null, null, 3])).toEqual([
    1,
    undefined,
    2,
    null,
    null,
    null,
    null,
    3,
  ]);
  expect(bridged([null, 1, null])).toEqual([null, 1, null]);
});

test("lines at the band's moments share its axis, others are joined", () => {
  const time_ms = [0, 1000, 2000];
  const band = {
    time_ms,
    low: [0, 0, 0],
    p10: [1, 1, 1],
    median: [2, 2, 2],
    p90: [3, 3, 3],
    high: [4, 4, 4],
  };
  const data = {
    label: "",
    unit: "",
    range: null,
    band,
    marks: [],
    lit: [],
    shades: [],
    window: null,
  };
  const line = (times: number[]) => ({ label: "g", colour: "", time_ms: times, value: [5, 6, 7] });
  expect(joined({ ...data, lines: [line([0, 1000, 2000])] })).toEqual([
    [0, 1, 2],
    [0, 0, 0],
    [1, 1, 1],
    [2, 2, 2],
    [3, 3, 3],
    [4, 4, 4],
    [5, 6, 7],
  ]);
  expect(joined({ ...data, lines: [line([500, 1500, 2500])] })[0]).toEqual([
    0, 0.5, 1, 1.5, 2, 2.5,
  ]);
});
