/** Numbers for groups and units that stay the same while the cluster changes. */

import { valueAt } from "@/base/columns";
import type { Units } from "@/base/units";
import type { LayoutRequest } from "@/charts/units/layout";

/** Waiting squares are numbered from here, beyond every GPU's row. */
const WAITING = 1_000_000;

export class Identities {
  private readonly known = new Map<string, number>();

  /** What the groups of every layer and all units are. */
  of(names: readonly (readonly string[])[], units: Units): NonNullable<LayoutRequest["ids"]> {
    return {
      groups: names.map((layer) => Int32Array.from(layer, (name) => this.number(name))),
      units: this.units(units),
    };
  }

  private number(name: string): number {
    let number = this.known.get(name);
    if (number === undefined) {
      number = this.known.size;
      this.known.set(name, number);
    }
    return number;
  }

  /** A GPU is its row; a waiting square its workload and its place among that workload's squares. */
  private units(units: Units): Int32Array {
    const ids = units.column("workload");
    const nth = new Map<number, number>();
    return units.gpu.map((gpu, unit) => {
      if (gpu >= 0) return gpu;
      const workload = units.workload[unit];
      const n = nth.get(workload) ?? 0;
      nth.set(workload, n + 1);
      return WAITING + this.number(`${String(valueAt(ids, unit))}#${n}`);
    });
  }
}
