import { list, tableFromArrays, utf8 } from "@uwdata/flechette";
import { expect, test } from "vitest";

import type { Header, LiveMessage, OwnRows } from "@/api/wire";
import { Cluster } from "@/base/live/cluster";

function header(type: "snapshot" | "tick", seq: number): Header {
  return { type, seq, time_ms: seq, cluster: "default", rows: 2, speed: 1, sources: [], parts: [] };
}

const UNITS = { row: [0, 1], gpu: ["n1:0", "n1:1"], workloads: [["job-a"], ["job-b"]] };

function own(id: string, at: number[], holders: Record<string, string[]>): OwnRows {
  const texts = ["name", "user", "project", "experiment", "partition", "qos", "reason"];
  const numbers = ["queue_position", "submit_ms", "start_ms", "time_limit_s", "gpus_requested"];
  const columns: OwnRows["workloads"] = { id: [id], state: ["running"], resource_type: ["gpu"] };
  for (const name of texts) columns[name] = [name === "user" ? "ada" : ""];
  for (const name of [...numbers, "priority"]) columns[name] = [null];
  return { at, holders, workloads: { ...columns, attributes: ['{"lr": 1}'] } };
}

function users(cluster: Cluster): Record<string, string> {
  const { workloads } = cluster.state();
  const ids = workloads.columns.get("workload");
  const names = workloads.columns.get("user");
  if (ids?.kind !== "text" || names?.kind !== "text") throw new Error("no names");
  return Object.fromEntries(
    Array.from(ids.codes, (code, i) => [ids.words[code], names.words[names.codes[i]] ?? ""]),
  );
}

function message(type: "snapshot" | "tick", seq: number, rows: OwnRows | null): LiveMessage {
  return {
    header: header(type, seq),
    units: tableFromArrays(UNITS, { types: { workloads: list(utf8()) } }),
    workloads: tableFromArrays({ id: ["job-a", "job-b"], user: ["user-x", "user-y"] }),
    own: rows,
    metrics: [],
  };
}

test("one's own rows stand in the place of the masked ones, with their GPUs", () => {
  const cluster = new Cluster();
  cluster.apply(message("snapshot", 1, own("run-7", [0], { "0": ["run-7"] })));
  expect(users(cluster)).toEqual({ "run-7": "ada", "job-b": "user-y" });
  const { allocations } = cluster.state();
  expect(Array.from(allocations.gpu)).toEqual([0, 1]);
  expect(Array.from(allocations.workload)).not.toContain(-1);
});

test("work is no longer shown under its made-up name once it is known to be one's own", () => {
  const cluster = new Cluster();
  cluster.apply(message("snapshot", 1, null));
  expect(users(cluster)).toEqual({ "job-a": "user-x", "job-b": "user-y" });
  const change = cluster.apply(message("tick", 2, own("run-7", [0], { "0": ["run-7"] })));
  expect(change.structure).toBe(true);
  expect(users(cluster)).toEqual({ "run-7": "ada", "job-b": "user-y" });
});

test("where others are left out, one's own rows are all there is", () => {
  const cluster = new Cluster();
  const alone = {
    ...message("snapshot", 1, own("run-7", [], { "1": ["run-7"] })),
    workloads: null,
  };
  cluster.apply(alone);
  expect(users(cluster)).toEqual({ "run-7": "ada" });
});
