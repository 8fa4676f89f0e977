import { expect, test } from "vitest";
import { textColumn } from "@/base/columns";
import {
  lensVerdict,
  ofWorkload,
  siteVerdicts,
  VERDICT_WORDS,
  verdictColumn,
} from "@/base/verdicts/verdicts";

const DOCUMENT = {
  time_ms: 1,
  share_read: null,
  rules: [
    {
      rule: "low",
      life: { workloads: ["1", "2"], gpus: ["h:0", "h:1"] },
      now: { workloads: ["1"], gpus: ["h:0"] },
      not_judged: ["3"],
    },
  ],
};

const words = (column: ReturnType<typeof verdictColumn>) =>
  Array.from(column.codes, (code) => (code < 0 ? null : VERDICT_WORDS[code]));

test("a unit's verdict is that of its workload on its GPU", () => {
  const verdict = siteVerdicts(DOCUMENT).get("rule.low");
  if (!verdict) throw new Error("no verdict");
  const gpu = textColumn(["h:0", "h:1", "h:2", "h:3", "h:4", ""]);
  const workload = textColumn(["1", "2", "2", "3", "", "9"]);
  expect(words(verdictColumn(verdict, gpu, workload))).toEqual([
    "violated now",
    "violated over its life",
    "not violated",
    "not judged",
    null,
    null,
  ]);
});

test("of two workloads on one GPU only the one it is held against violates the rule", () => {
  const verdict = siteVerdicts(DOCUMENT).get("rule.low");
  if (!verdict) throw new Error("no verdict");
  expect(words(verdictColumn(verdict, textColumn(["h:0", "h:0"]), textColumn(["1", "8"])))).toEqual(
    ["violated now", "not violated"],
  );
});

test("one workload's part of a verdict", () => {
  const verdict = lensVerdict({
    when: "",
    time_ms: 0,
    workloads_judged: 2,
    life: { workloads: ["1", "2"], gpus: ["h:0", "h:1"], workload_count: 2, gpu_count: 2 },
    now: { workloads: [], gpus: [], workload_count: 0, gpu_count: 0 },
  });
  const only = ofWorkload(verdict, "2", new Set(["h:1", "h:2"]));
  expect([...only.life.gpus]).toEqual(["h:1"]);
  expect(only.now.workloads.size).toBe(0);
});
