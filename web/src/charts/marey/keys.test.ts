import { describe, expect, it } from "vitest";
import { handleKey } from "@/charts/marey/keys";
import { shortenKernel } from "@/charts/marey/kinds";
import { layoutRows } from "@/charts/marey/rows";
import type { MareyStage } from "@/charts/marey/stage";
import { makeStep } from "@/charts/marey/synthetic";

/** A stage with more operators loaded than its window shows, as it is after zooming. */
function makeStage(share: number) {
  const step = makeStep(3, 100, []);
  const { startNs, endNs } = step.intervals;
  const from = startNs[40];
  const chosen: number[] = [];
  const seen: [number, number][] = [];
  const stage = {
    bands: { intervals: step.intervals },
    layout: layoutRows(step.rows, 20),
    focusRow: 0,
    window: { fromNs: from, toNs: from + (step.toNs - step.fromNs) * share },
    selectedInterval: () => chosen.at(-1) ?? -1,
    reveal: (span: { fromNs: number; toNs: number }) => seen.push([span.fromNs, span.toNs]),
    focus: () => undefined,
  } as unknown as MareyStage;
  const press = (key: string) =>
    handleKey(key, false, {
      ...{ stage, toggle: () => undefined, clear: () => undefined },
      choose: (_, interval) => chosen.push(interval),
    });
  return { stage, press, chosen, seen, startNs, endNs };
}

describe("the keys of the Marey view", () => {
  it("begin with the first operator that is seen, not with the first that is loaded", () => {
    const { press, chosen, stage, startNs, endNs } = makeStage(0.05);
    press(".");
    expect(endNs[chosen[0]]).toBeGreaterThan(stage.window.fromNs);
    expect(startNs[chosen[0]]).toBeLessThan(stage.window.toNs);
    press(".");
    expect(chosen[1]).toBe(chosen[0] + 1);
  });

  it("begin with the last one that is seen on the way back", () => {
    const { press, chosen, stage, startNs } = makeStage(0.05);
    press(",");
    expect(startNs[chosen[0]]).toBeLessThan(stage.window.toNs);
    expect(startNs[chosen[0] + 1]).toBeGreaterThanOrEqual(stage.window.toNs);
  });

  it("bring what they choose into the window", () => {
    const { press, chosen, seen, startNs, endNs } = makeStage(0.05);
    for (let i = 0; i < 30; i++) press(".");
    const last = chosen[chosen.length - 1];
    expect(seen[seen.length - 1]).toEqual([startNs[last], endNs[last]]);
  });
});

describe("the label of a kernel", () => {
  it.each([
    ["ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_SendRecv"],
    [
      "void at::native::vectorized_kernel<4, Foo<float> >(int, char*)",
      "at::native::vectorized_kernel",
    ],
    ["void (anonymous namespace)::softmax<float>(float*)", "softmax"],
    ["Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD"],
    ["aten::mm", "aten::mm"],
    ["(forward)", "(forward)"],
    ["", ""],
  ])("%s is %s", (name, label) => expect(shortenKernel(name)).toBe(label));
});
