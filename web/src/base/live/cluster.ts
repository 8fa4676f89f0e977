/** The browser's copy of the one shared cluster table: a snapshot, then what changed. */

import type { LiveMessage, OwnRows, SourceState } from "@/api/wire";
import { addDifferences, codedTexts, NO_VALUE, numbers, textLists } from "@/api/wire";
import type { Column, NumberColumn } from "@/base/columns";
import { textColumn, Words } from "@/base/columns";
import type { Allocations, ClusterState } from "@/base/units";

type ArrowTable = NonNullable<LiveMessage["units"]>;

/** What a message changed. */
export interface Change {
  /** GPUs, their states, workloads or allocations: the picture must be laid out anew. */
  structure: boolean;
  /** GPU rows whose state or workload changed. */
  rows: Int32Array;
  metrics: string[];
}

const GPU_TEXTS = [
  "cluster",
  "gpu",
  "host",
  "rack",
  "switch",
  "nvlink_domain",
  "known_by",
  "model",
  "resource_type",
  "state",
] as const;
const WORKLOAD_TEXTS = [
  "name",
  "user",
  "project",
  "experiment",
  "partition",
  "qos",
  "state",
  "reason",
  "resource_type",
] as const;
const WORKLOAD_NUMBERS = [
  "priority",
  "queue_position",
  "submit_ms",
  "start_ms",
  "time_limit_s",
  "gpus_requested",
] as const;
// Free attributes become columns; a cluster with thousands of distinct keys shows the first of them.
const MOST_ATTRIBUTES = 40;

interface CodedColumn {
  words: Words;
  codes: Int32Array;
}

type WorkloadRecord = Record<string, string | number> & { id: string };

/** A metric as it travelled; its values are worked out when someone looks at them. */
class MetricColumn implements NumberColumn {
  readonly kind = "number";
  private decoded: Float32Array | null = null;

  constructor(
    private readonly codes: Uint16Array,
    private readonly offset: number,
    private readonly step: number,
    private readonly rows: number,
  ) {}

  get values(): Float32Array {
    this.decoded ??= this.decode();
    return this.decoded;
  }

  private decode(): Float32Array {
    const { codes, offset, step } = this;
    const values = new Float32Array(Math.max(this.rows, codes.length)).fill(NaN);
    for (let i = 0; i < codes.length; i++)
      if (codes[i] !== NO_VALUE) values[i] = offset + codes[i] * step;
    return values;
  }
}

/** Holds the state and applies messages to it. */
export class Cluster {
  sources: SourceState[] = [];
  speed = 1;
  private timeMs = 0;
  private rows = 0;
  private present = new Uint8Array(0);
  private texts = new Map<string, CodedColumn>();
  private index = new Float64Array(0);
  private held: (readonly string[])[] = [];
  private workloads = new Map<string, WorkloadRecord>();
  private codes = new Map<string, Uint16Array>();
  private metricColumns = new Map<string, Column>();
  private built: ClusterState | null = null;
  private builtParts: Omit<ClusterState, "timeMs" | "gpus"> | null = null;

  /** Take over a message. */
  apply(message: LiveMessage): Change {
    const { header } = message;
    if (header.type === "snapshot") this.reset();
    this.timeMs = header.time_ms;
    this.speed = header.speed;
    this.sources = header.sources;
    this.grow(header.rows);
    const rows = message.units ? this.takeUnits(message.units) : new Int32Array(0);
    for (const row of header.removed_units ?? []) this.present[row] = 0;
    for (const id of header.removed_workloads ?? []) this.workloads.delete(id);
    if (message.workloads) this.takeWorkloads(message.workloads, message.own?.at ?? []);
    if (message.own) this.takeOwn(message.own);
    for (const part of message.metrics) this.takeMetric(part);
    const structure =
      header.type === "snapshot" ||
      rows.length > 0 ||
      message.workloads !== null ||
      message.own !== null ||
      (header.removed_units?.length ?? 0) > 0 ||
      (header.removed_workloads?.length ?? 0) > 0;
    if (structure) this.builtParts = null;
    this.built = null;
    return {
      structure,
      rows: header.type === "snapshot" ? new Int32Array(0) : rows,
      metrics: message.metrics.map((part) => part.metric),
    };
  }

  /** The state now; the same object until the next message. */
  state(): ClusterState {
    if (this.built) return this.built;
    const columns = new Map<string, Column>(this.metricColumns);
    for (const [name, { words, codes }] of this.texts)
      columns.set(name, { kind: "text", codes, words: words.list });
    columns.set("index", { kind: "number", values: this.index });
    const workloads = this.builtParts ?? this.buildWorkloads();
    this.builtParts = workloads;
    this.built = { timeMs: this.timeMs, gpus: { rows: this.rows, columns }, ...workloads };
    return this.built;
  }

  private reset(): void {
    this.rows = 0;
    this.present = new Uint8Array(0);
    this.texts.clear();
    this.index = new Float64Array(0);
    this.held = [];
    this.workloads.clear();
    this.codes.clear();
    this.metricColumns.clear();
  }

  private grow(rows: number): void {
    if (rows <= this.rows) return;
    const present = new Uint8Array(rows);
    present.set(this.present);
    this.present = present;
    const index = new Float64Array(rows).fill(NaN);
    index.set(this.index);
    this.index = index;
    for (const column of this.texts.values()) column.codes = longer(column.codes, rows);
    while (this.held.length < rows) this.held.push([]);
    this.rows = rows;
  }

  private takeUnits(table: ArrowTable): Int32Array {
    const rows = Int32Array.from(numbers(table, "row"));
    for (const row of rows) this.present[row] = 1;
    for (const name of GPU_TEXTS) this.putTexts(name, rows, codedTexts(table, name));
    this.putTexts("reason", rows, codedTexts(table, "state_reason"));
    const partitions = textLists(table, "partitions").map((list) => list[0] ?? "");
    this.putTexts("partition", rows, textColumn(partitions));
    const index = numbers(table, "index");
    const held = textLists(table, "workloads");
    rows.forEach((row, i) => {
      this.index[row] = index[i];
      this.held[row] = held[i];
    });
    return rows;
  }

  private putTexts(
    name: string,
    rows: Int32Array,
    given: { codes: Int32Array; words: readonly string[] },
  ): void {
    const column = this.texts.get(name) ?? {
      words: new Words(),
      codes: new Int32Array(this.rows).fill(-1),
    };
    const mine = given.words.map((word) => column.words.code(word));
    // A new array each time: the renderer and the worker may still read the old one.
    const codes = column.codes.slice();
    for (let i = 0; i < rows.length; i++)
      codes[rows[i]] = given.codes[i] < 0 ? -1 : mine[given.codes[i]];
    this.texts.set(name, { words: column.words, codes });
  }

  private takeWorkloads(table: ArrowTable, replaced: readonly number[]): void {
    const skipped = new Set(replaced);
    const id = codedTexts(table, "id");
    const texts = WORKLOAD_TEXTS.map((name) => [name, codedTexts(table, name)] as const);
    const values = WORKLOAD_NUMBERS.map((name) => [name, numbers(table, name)] as const);
    const attributes = codedTexts(table, "attributes");
    for (let i = 0; i < table.numRows; i++) {
      const record: WorkloadRecord = { id: id.words[id.codes[i]] };
      if (skipped.has(i)) {
        // Shown under its made-up name until its owner was known.
        this.workloads.delete(record.id);
        continue;
      }
      for (const [name, column] of texts)
        record[name] = column.codes[i] < 0 ? "" : column.words[column.codes[i]];
      for (const [name, column] of values) record[name] = column[i];
      if (attributes.codes[i] >= 0)
        Object.assign(record, freeAttributes(attributes.words[attributes.codes[i]]));
      this.workloads.set(record.id, record);
    }
  }

  private takeOwn(own: OwnRows): void {
    const { id, attributes } = own.workloads;
    id.forEach((name, i) => {
      const record: WorkloadRecord = { id: String(name) };
      for (const column of WORKLOAD_TEXTS) record[column] = own.workloads[column][i] ?? "";
      for (const column of WORKLOAD_NUMBERS) record[column] = own.workloads[column][i] ?? NaN;
      Object.assign(record, freeAttributes(String(attributes[i])));
      this.workloads.set(record.id, record);
    });
    for (const [row, names] of Object.entries(own.holders)) this.held[Number(row)] = names;
  }

  private takeMetric(part: LiveMessage["metrics"][number]): void {
    const before = this.codes.get(part.metric);
    if (part.differences && !before) return;
    const codes = part.differences && before ? addDifferences(before, part.codes) : part.codes;
    this.codes.set(part.metric, codes);
    this.metricColumns.set(part.metric, new MetricColumn(codes, part.offset, part.step, this.rows));
  }

  private buildWorkloads(): Omit<ClusterState, "timeMs" | "gpus"> {
    const records = [...this.workloads.values()];
    const rowOf = new Map(records.map((record, row) => [record.id, row]));
    const columns = new Map<string, Column>();
    columns.set("workload", textColumn(records.map((record) => record.id)));
    for (const name of WORKLOAD_TEXTS)
      columns.set(name, textColumn(records.map((record) => record[name] as string)));
    for (const name of WORKLOAD_NUMBERS) {
      columns.set(name, {
        kind: "number",
        values: Float64Array.from(records, (record) => record[name] as number),
      });
    }
    for (const name of attributeNames(records)) {
      columns.set(
        name,
        textColumn(records.map((record) => (record[name] as string | undefined) ?? "")),
      );
    }
    return {
      workloads: { rows: records.length, columns },
      allocations: this.buildAllocations(rowOf),
      present: this.present,
    };
  }

  private buildAllocations(rowOf: ReadonlyMap<string, number>): Allocations {
    const gpu: number[] = [];
    const workload: number[] = [];
    const share: number[] = [];
    for (let row = 0; row < this.rows; row++) {
      const holders = this.held[row];
      for (const id of holders) {
        gpu.push(row);
        workload.push(rowOf.get(id) ?? -1);
        share.push(1 / holders.length);
      }
    }
    return {
      gpu: Int32Array.from(gpu),
      workload: Int32Array.from(workload),
      share: Float32Array.from(share),
    };
  }
}

function longer(codes: Int32Array, rows: number): Int32Array {
  const next = new Int32Array(rows).fill(-1);
  next.set(codes);
  return next;
}

function freeAttributes(json: string): Record<string, string> {
  try {
    const parsed = JSON.parse(json) as Record<string, unknown>;
    return Object.fromEntries(
      Object.entries(parsed).map(([key, value]) => [`attributes.${key}`, String(value)]),
    );
  } catch {
    return {};
  }
}

function attributeNames(records: readonly WorkloadRecord[]): string[] {
  const names = new Set<string>();
  for (const record of records) {
    for (const key in record) if (key.startsWith("attributes.")) names.add(key);
    if (names.size > MOST_ATTRIBUTES) break;
  }
  return [...names].sort().slice(0, MOST_ATTRIBUTES);
}
