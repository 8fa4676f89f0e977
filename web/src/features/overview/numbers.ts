/** The numbers beside the picture: counts and the mean utilization of what passes the filter. */

import type { Predicate } from "@/base/predicate";
import { select } from "@/base/predicate";
import type { ClusterState } from "@/base/units";
import { buildUnits } from "@/base/units";

export interface Numbers {
  gpus: number;
  allocated: number;
  idle: number;
  broken: number;
  /** Hosts all of whose GPUs are idle; null where the past does not tell. */
  wholeHosts: number | null;
  waitingWorkloads: number;
  waitingGpus: number;
  meanUtil: number | null;
}

const BROKEN = new Set(["drained", "down", "failed", "unknown"]);

/** Count GPUs, waiting requests and the mean utilization of allocated GPUs. */
export function countNumbers(state: ClusterState, filter: readonly Predicate[]): Numbers {
  const units = buildUnits(state, { units: "both", waiting_unit: "gpu" });
  const passing = select({ and: [...filter] }, units);
  const states = units.column("state");
  const util = units.column("util");
  const numbers: Numbers = {
    gpus: 0,
    allocated: 0,
    idle: 0,
    broken: 0,
    wholeHosts: 0,
    waitingWorkloads: 0,
    waitingGpus: 0,
    meanUtil: null,
  };
  const host = units.column("host");
  const hostOf = (row: number) => (host?.kind === "text" ? host.codes[row] : -1);
  const waiting = new Set<number>();
  const [hosts, inUse] = [new Set<number>(), new Set<number>()];
  let [sum, weight] = [0, 0];
  for (let i = 0; i < units.rows; i++) {
    const word =
      states?.kind === "text" && states.codes[i] >= 0 ? states.words[states.codes[i]] : "unknown";
    // A host is all idle by all of its GPUs, whatever the filter shows of them.
    if (units.gpu[i] >= 0 && word !== "idle") inUse.add(hostOf(i));
    if (!passing[i]) continue;
    if (units.gpu[i] < 0) {
      waiting.add(units.workload[i]);
      numbers.waitingGpus++;
      continue;
    }
    const share = units.shares ? units.shares.share[i] : 1;
    numbers.gpus += share;
    if (hostOf(i) >= 0) hosts.add(hostOf(i));
    if (word === "allocated") numbers.allocated += share;
    else if (word === "idle") numbers.idle += share;
    else if (BROKEN.has(word)) numbers.broken += share;
    const value = util?.kind === "number" ? util.values[i] : NaN;
    if (word === "allocated" && !Number.isNaN(value)) {
      sum += value * share;
      weight += share;
    }
  }
  numbers.waitingWorkloads = waiting.size;
  numbers.wholeHosts = [...hosts].filter((code) => !inUse.has(code)).length;
  numbers.meanUtil = weight > 0 ? sum / weight : null;
  for (const key of ["gpus", "allocated", "idle", "broken"] as const)
    numbers[key] = Math.round(numbers[key] * 10) / 10;
  return numbers;
}

/** The last values of every number, oldest first. */
export class NumberHistory {
  private readonly kept: Numbers[] = [];

  constructor(private readonly most: number) {}

  seed(past: readonly Numbers[]): void {
    this.kept.unshift(...past);
    this.kept.splice(0, Math.max(0, this.kept.length - this.most));
  }

  add(numbers: Numbers): void {
    this.kept.push(numbers);
    if (this.kept.length > this.most) this.kept.shift();
  }

  clear(): void {
    this.kept.length = 0;
  }

  line(key: keyof Numbers): (number | null)[] {
    return this.kept.map((numbers) => numbers[key]);
  }
}
