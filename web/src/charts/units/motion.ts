/** Where each unit was, so that it can move to where it is now; identity is the GPU, or the waiting request. */

import type { UnitLayout } from "@/charts/units/layout";

/** Who the units are, per unit: the GPU's row, and for waiting ones a number for workload and square. */
export interface Identity {
  gpu: Int32Array;
  /** The workload's id per unit; only read for waiting units. */
  waiting: (unit: number) => string;
}

export interface Paths {
  fromX: Float32Array;
  fromY: Float32Array;
}

/** Remembers the last places of all units. */
export class Places {
  private x = new Float32Array(0);
  private y = new Float32Array(0);
  private readonly waiting = new Map<string, number[]>();

  /** For a new layout, where each of its units comes from; one never seen before appears in place. */
  paths(layout: UnitLayout, identity: Identity): Paths {
    const { order } = layout.tree;
    const fromX = layout.x.slice();
    const fromY = layout.y.slice();
    const nth = new Map<string, number>();
    for (let i = 0; i < order.length; i++) {
      const gpu = identity.gpu[order[i]];
      if (gpu >= 0) {
        if (gpu < this.x.length && !Number.isNaN(this.x[gpu])) {
          fromX[i] = this.x[gpu];
          fromY[i] = this.y[gpu];
        }
        continue;
      }
      const known = this.waiting.get(identity.waiting(order[i]));
      if (!known) continue;
      const id = identity.waiting(order[i]);
      const n = nth.get(id) ?? 0;
      nth.set(id, n + 1);
      const at = Math.min(n, known.length / 2 - 1) * 2;
      fromX[i] = known[at];
      fromY[i] = known[at + 1];
    }
    return { fromX, fromY };
  }

  /** Keep the places at which the units stand, or at which they were interrupted. */
  remember(layout: UnitLayout, identity: Identity, x: Float32Array, y: Float32Array): void {
    const { order } = layout.tree;
    let most = -1;
    for (const unit of order) most = Math.max(most, identity.gpu[unit]);
    if (this.x.length <= most) {
      this.x = new Float32Array(most + 1);
      this.y = new Float32Array(most + 1);
    }
    this.x.fill(NaN);
    this.waiting.clear();
    for (let i = 0; i < order.length; i++) {
      const gpu = identity.gpu[order[i]];
      if (gpu >= 0) {
        this.x[gpu] = x[i];
        this.y[gpu] = y[i];
        continue;
      }
      const id = identity.waiting(order[i]);
      const places = this.waiting.get(id);
      if (places) places.push(x[i], y[i]);
      else this.waiting.set(id, [x[i], y[i]]);
    }
  }
}
