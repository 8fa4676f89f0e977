import { expect, test } from "vitest";
import type { Column } from "@/base/columns";
import { numberColumn, textColumn } from "@/base/columns";
import type { ClusterState } from "@/base/units";
import { countNumbers } from "@/features/overview/numbers";
import { meanLine, summarise, workloadFacts } from "@/features/overview/card/summary";

const state: ClusterState = {
  timeMs: 10_000,
  gpus: {
    rows: 4,
    columns: new Map<string, Column>([
      ["gpu", textColumn(["a:0", "a:1", "b:0", "b:1"])],
      ["host", textColumn(["a", "a", "b", "b"])],
      ["state", textColumn(["allocated", "allocated", "idle", "failed"])],
      ["util", numberColumn([90, 30, 0, NaN])],
    ]),
  },
  workloads: {
    rows: 3,
    columns: new Map<string, Column>([
      ["workload", textColumn(["7", "8", "9"])],
      ["user", textColumn(["ada", "bob", "ada"])],
      ["state", textColumn(["running", "running", "pending"])],
      ["gpus_requested", numberColumn([1, 1, 16])],
      ["submit_ms", numberColumn([0, 0, 0])],
    ]),
  },
  allocations: {
    gpu: Int32Array.from([0, 1]),
    workload: Int32Array.from([0, 1]),
    share: Float32Array.from([1, 1]),
  },
  present: Uint8Array.from([1, 1, 1, 1]),
};

test("the numbers count GPUs by state and what waits, within the filter", () => {
  expect(countNumbers(state, [])).toEqual({
    gpus: 4,
    allocated: 2,
    idle: 1,
    broken: 1,
    wholeHosts: 0,
    waitingWorkloads: 1,
    waitingGpus: 16,
    meanUtil: 60,
  });
  expect(countNumbers(state, [{ field: "user", op: "eq", value: "ada" }])).toEqual({
    gpus: 1,
    allocated: 1,
    idle: 0,
    broken: 0,
    wholeHosts: 0,
    waitingWorkloads: 1,
    waitingGpus: 16,
    meanUtil: 90,
  });
});

test("a host is all idle by all of its GPUs, whatever the filter shows of them", () => {
  const idle = [{ field: "state", op: "eq" as const, value: "idle" }];
  expect(countNumbers(state, idle).wholeHosts).toBe(0);
  const columns = new Map(state.gpus.columns);
  columns.set("state", textColumn(["allocated", "allocated", "idle", "idle"]));
  const free = { ...state, gpus: { rows: 4, columns } };
  expect(countNumbers(free, idle).wholeHosts).toBe(1);
  expect(countNumbers(free, []).wholeHosts).toBe(1);
});

test("a selection is summarised beside the cluster's mean", () => {
  const summary = summarise(state, [{ field: "user", op: "eq", value: "ada" }], ["util"]);
  expect(summary).toMatchObject({ gpus: 1, waiting: 1, gpuIds: ["a:0"] });
  expect(summary.metrics).toEqual([
    { metric: "util", mean: 90, min: 90, max: 90, clusterMean: 60 },
  ]);
  expect(summary.values.get("workload")).toEqual([
    ["7", 1],
    ["9", 1],
  ]);
});

test("a workload's facts are found by its id", () => {
  expect(workloadFacts(state, "8")).toMatchObject({ user: "bob", state: "running" });
  expect(workloadFacts(state, "none")).toBeNull();
});

test("a line is the mean over GPUs in equal spans, with gaps", () => {
  const points = [
    { time_ms: 0, value: 10 },
    { time_ms: 0, value: 30 },
    { time_ms: 90, value: 5 },
  ];
  expect(meanLine(points, 3)).toEqual([20, null, 5]);
});
