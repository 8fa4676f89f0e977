import { expect, test } from "vitest";
import type { RuleFinding } from "@/features/diagnostics/documents";
import { ownVerdicts } from "@/features/diagnostics/workloadRules";

const held = (workloads: string[], gpus: string[]) => ({
  workloads: new Set(workloads),
  gpus: new Set(gpus),
});
const finding = (rule: string, gpus: string[]): RuleFinding => ({
  rule,
  title: rule,
  severity: "warning",
  open: false,
  gpus,
  gpu_count: gpus.length,
});

test("only what concerns the workload and its GPUs is kept", () => {
  const verdict = {
    life: held(["w", "v"], ["a", "x"]),
    now: held(["v"], ["x"]),
    notJudged: new Set<string>(),
  };
  const own = ownVerdicts(new Map([["rule.stalled", verdict]]), [], "w", ["a", "b"]);
  expect([...(own.get("rule.stalled")?.life.gpus ?? [])]).toEqual(["a"]);
  expect(own.get("rule.stalled")?.now.gpus.size).toBe(0);
});

test("what was found while it ran stays when it has ended, as past", () => {
  const own = ownVerdicts(new Map(), [finding("idle", ["b", "elsewhere"])], "w", ["a", "b"]);
  expect([...(own.get("rule.idle")?.life.gpus ?? [])]).toEqual(["b"]);
  expect(own.get("rule.idle")?.now.workloads.size).toBe(0);
});
