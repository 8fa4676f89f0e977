import { expect, test } from "vitest";
import type { Finding } from "@/features/findings/documents";
import { readAddress } from "@/features/findings/documents";
import { grouped, narrowed } from "@/features/findings/grouping";

function finding(id: string, workload: string, gpu_hours: number, more: Partial<Finding> = {}) {
  return {
    id, workload, gpu_hours, rule: "idle", title: "Idle", user: "ada", project: "", partition: "",
    gpus: [], severity: "warning", open: true, opened_ms: 0, ...more,
  } as unknown as Finding; // prettier-ignore
}

const ROWS = [finding("a", "1", 2), finding("b", "2", 9), finding("c", "1", 8, { title: "Xid" })];

test("findings come by what is at stake, open ones first", () => {
  const shown = readAddress("");
  const closed = finding("d", "3", 99, { open: false });
  expect(narrowed([...ROWS, closed], shown).map((row) => row.id)).toEqual(["b", "c", "a", "d"]);
});

test("words and severity narrow them", () => {
  expect(narrowed(ROWS, readAddress("?q=xid")).map((row) => row.id)).toEqual(["c"]);
  expect(narrowed(ROWS, readAddress("?severity=critical"))).toEqual([]);
});

test("groups are ordered by their sum", () => {
  expect(grouped(ROWS, "workload").map((group) => [group.key, group.gpuHours])).toEqual([
    ["1", 10],
    ["2", 9],
  ]);
});
