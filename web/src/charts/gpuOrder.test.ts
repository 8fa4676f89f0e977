import { expect, test } from "vitest";
import type { GpuRow } from "@/charts/gpuOrder";
import { byNode, labelOf, ordered } from "@/charts/gpuOrder";

const gpu = (host: string, index: number, more: Partial<GpuRow> = {}): GpuRow => ({
  gpu: `${host}:${index}`,
  host,
  index,
  global_rank: null,
  local_rank: null,
  model: "",
  cluster: 0,
  difference: 0,
  median: null,
  counts: [1, 0],
  line: [0, null],
  ...more,
});

test("by index nodes come as people count them", () => {
  const rows = ordered([gpu("n10", 0), gpu("n2", 1), gpu("n2", 0)], "index");
  expect(rows.map((one) => one.gpu)).toEqual(["n2:0", "n2:1", "n10:0"]);
});

test("without a rank a GPU comes last, and the most different comes first", () => {
  const rows = [gpu("n1", 0), gpu("n1", 1, { global_rank: 0, difference: 0.5 })];
  expect(ordered(rows, "global_rank")[0].gpu).toBe("n1:1");
  expect(ordered(rows, "difference")[0].gpu).toBe("n1:1");
});

test("a node adds its GPUs' counts and averages what they know", () => {
  const [node] = byNode([
    gpu("n1", 0, { line: [2, null] }),
    gpu("n1", 1, { line: [4, 6], cluster: 1 }),
    gpu("n1", 2, { cluster: 1, line: [null, null] }),
  ]);
  expect(node.counts).toEqual([3, 0]);
  expect(node.line).toEqual([3, 6]);
  expect(node.cluster).toBe(1);
});

test("a plot is called by what it is ordered by, and by its GPU where no box names the node", () => {
  const row = gpu("n1", 3, { global_rank: 11, local_rank: 3 });
  expect([
    labelOf(row, "index", true),
    labelOf(row, "global_rank", true),
    labelOf(row, "local_rank", true),
  ]).toEqual(["3", "r11", "l3"]);
  expect(labelOf(row, "difference", false)).toBe("n1:3");
  expect(labelOf(gpu("n1", 3), "global_rank", true)).toBe("–");
});
