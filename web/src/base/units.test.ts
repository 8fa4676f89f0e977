import { describe, expect, test } from "vitest";
import type { Column } from "@/base/columns";
import { numberColumn, textColumn, valueAt } from "@/base/columns";
import type { ClusterState } from "@/base/units";
import { buildUnits } from "@/base/units";

function cluster(): ClusterState {
  const gpus = new Map<string, Column>([
    ["host", textColumn(["a", "a", "b", "b"])],
    ["state", textColumn(["allocated", "allocated", "idle", "drained"])],
    ["partition", textColumn(["small", "small", "large", "large"])],
    ["util", numberColumn([90, 40, 0, NaN])],
  ]);
  const workloads = new Map<string, Column>([
    ["workload", textColumn(["7", "8", "9", "10"])],
    ["user", textColumn(["ada", "bob", "cy", "ada"])],
    ["state", textColumn(["running", "running", "pending", "pending"])],
    ["partition", textColumn(["small", "small", "large", "huge"])],
    ["queue_position", numberColumn([NaN, NaN, 2, 1])],
    ["gpus_requested", numberColumn([1, 1, 3, 2])],
    ["submit_ms", numberColumn([0, 0, 1000, 4000])],
    ["start_ms", numberColumn([2000, 3000, NaN, NaN])],
  ]);
  return {
    timeMs: 10_000,
    gpus: { rows: 4, columns: gpus },
    workloads: { rows: 4, columns: workloads },
    // GPU 0 is shared by workloads 0 and 1; GPU 1 belongs to workload 1.
    allocations: {
      gpu: Int32Array.from([0, 0, 1]),
      workload: Int32Array.from([0, 1, 1]),
      share: Float32Array.from([0.5, 0.5, 1]),
    },
    present: Uint8Array.from([1, 1, 1, 1]),
  };
}

describe("units", () => {
  test("a GPU shared by two workloads is split between them", () => {
    const units = buildUnits(cluster(), { units: "gpus", waiting_unit: "gpu" });
    expect(units.rows).toBe(5);
    expect([...units.gpu]).toEqual([0, 0, 1, 2, 3]);
    expect([...(units.shares?.share ?? [])]).toEqual([0.5, 0.5, 1, 1, 1]);
    expect([...(units.shares?.offset ?? [])].slice(0, 2)).toEqual([0, 0.5]);
    expect([0, 1, 2, 3].map((i) => valueAt(units.column("user"), i))).toEqual([
      "ada",
      "bob",
      "bob",
      null,
    ]);
  });

  test("waiting workloads come in the scheduler's order, one square per requested GPU", () => {
    const units = buildUnits(cluster(), { units: "waiting", waiting_unit: "gpu" });
    expect([...units.workload]).toEqual([3, 3, 2, 2, 2]);
    expect(valueAt(units.column("state"), 0)).toBe("waiting");
    expect(valueAt(units.column("partition"), 0)).toBe("huge");
    expect(valueAt(units.column("waiting_s"), 0)).toBe(6);
    expect(valueAt(units.column("util"), 0)).toBeNull();
  });

  test("or one square per workload", () => {
    expect([
      ...buildUnits(cluster(), { units: "waiting", waiting_unit: "workload" }).workload,
    ]).toEqual([3, 2]);
  });

  test("both pools stand on one canvas, told apart by pool", () => {
    const units = buildUnits(cluster(), { units: "both", waiting_unit: "workload" });
    expect(units.rows).toBe(7);
    expect(valueAt(units.column("pool"), 0)).toBe("GPUs");
    expect(valueAt(units.column("pool"), 6)).toBe("Waiting");
    expect(valueAt(units.column("running_s"), 0)).toBe(8);
  });

  test("a GPU that went away has no square", () => {
    const state = { ...cluster(), present: Uint8Array.from([1, 1, 1, 0]) };
    expect([...buildUnits(state, { units: "gpus", waiting_unit: "gpu" }).gpu]).toEqual([
      0, 0, 1, 2,
    ]);
  });
});
