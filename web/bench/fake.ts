/** A made-up cluster for the bench: racks, hosts of eight, workloads of many sizes; the same every time. */

import {
  columnFromArray,
  dictionary,
  int32,
  list,
  tableFromColumns,
  utf8,
} from "@uwdata/flechette";
import type { Header, LiveMessage, MetricPart } from "@/api/wire";

const random = (() => {
  let state = 42;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
})();

function header(type: Header["type"], rows: number, seq: number): Header {
  return {
    type,
    seq,
    time_ms: 1_794_780_000_000 + seq * 15_000,
    cluster: "default",
    rows,
    speed: 1,
    sources: [],
    parts: [],
  };
}

/** A snapshot of `gpus` GPUs with about one workload per 24 of them. */
export function snapshot(gpus: number, metrics: readonly string[]): LiveMessage {
  const rows = Array.from({ length: gpus }, (_, i) => i);
  const holders = assign(gpus);
  const text = (values: string[]) => columnFromArray(values, dictionary(utf8(), int32()));
  const units = tableFromColumns({
    row: columnFromArray(rows, int32()),
    cluster: text(rows.map(() => "default")),
    gpu: columnFromArray(
      rows.map((i) => `host-${i >> 3}:${i & 7}`),
      utf8(),
    ),
    host: text(rows.map((i) => `host-${i >> 3}`)),
    index: columnFromArray(
      rows.map((i) => i & 7),
      int32(),
    ),
    rack: text(rows.map((i) => `rack-${i >> 8}`)),
    model: text(rows.map((i) => (i % 3 ? "A100" : "H100"))),
    resource_type: text(rows.map((i) => (i % 3 ? "A100-8" : "H100-8"))),
    partitions: columnFromArray(
      rows.map((i) => [["small", "large", "dev", "long"][Math.floor((i * 4) / gpus)]]),
      list(utf8()),
    ),
    state: text(rows.map((i) => (holders[i] ? "allocated" : i % 97 === 0 ? "failed" : "idle"))),
    state_reason: text(rows.map(() => "")),
    workloads: columnFromArray(
      rows.map((i) => (holders[i] ? [holders[i]] : [])),
      list(utf8()),
    ),
  });
  const ids = [...new Set(holders.filter(Boolean))];
  const workloads = tableFromColumns({
    id: columnFromArray(ids, utf8()),
    name: columnFromArray(
      ids.map((id) => `llama-${id}`),
      utf8(),
    ),
    user: text(ids.map((_, i) => `user-${(i * 7919) % 300}`)),
    project: text(ids.map((_, i) => `project-${(i * 104729) % 40}`)),
    state: text(ids.map(() => "running")),
    gpus_requested: columnFromArray(
      ids.map(() => 8),
      int32(),
    ),
  });
  return {
    header: header("snapshot", gpus, 1),
    units,
    workloads,
    own: null,
    metrics: metrics.map((metric) => column(metric, gpus)),
  };
}

function assign(gpus: number): string[] {
  const holders = new Array<string>(gpus).fill("");
  let id = 1000;
  for (let at = 0; at < gpus;) {
    const size = [1, 2, 4, 8, 8, 16, 64, 128][Math.floor(random() * 8)];
    if (random() < 0.9) holders.fill(String(id++), at, Math.min(gpus, at + size));
    at += size;
  }
  return holders;
}

function column(metric: string, gpus: number): MetricPart {
  return {
    metric,
    offset: 0,
    step: 0.5,
    codes: Uint16Array.from({ length: gpus }, () => Math.floor(random() * 200)),
    differences: false,
  };
}

/** A tick in which every value of every metric changed, as it comes over the wire. */
export function tick(gpus: number, metrics: readonly string[], seq: number): LiveMessage {
  const up = seq % 2 === 0;
  return {
    header: header("tick", gpus, seq),
    units: null,
    workloads: null,
    own: null,
    // Zigzag of +1 or −1 in turn, so that codes stay in range.
    metrics: metrics.map((metric) => ({
      ...column(metric, 0),
      metric,
      codes: new Uint16Array(gpus).fill(up ? 2 : 1),
      differences: true,
    })),
  };
}
