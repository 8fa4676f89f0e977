/** Asks the worker for layouts: one at a time, and of those that wait only the newest. */

import type { LayoutRequest, UnitLayout } from "@/charts/units/layout";

export interface LayoutAnswer {
  layout: UnitLayout;
  /** Time in the worker. */
  ms: number;
}

interface Job {
  request: LayoutRequest;
  /** Pack anew instead of keeping what stands where. */
  anew: boolean;
  done: (answer: LayoutAnswer) => void;
}

export class Layouts {
  private readonly worker = new Worker(new URL("./layout.worker.ts", import.meta.url), {
    type: "module",
  });
  private running: Job | null = null;
  private waiting: Job | null = null;
  private id = 0;

  constructor() {
    this.worker.onmessage = (event: MessageEvent<LayoutAnswer & { id: number }>) => {
      const job = this.running;
      this.running = null;
      if (job && event.data.id === this.id) job.done(event.data);
      if (this.waiting) this.start(this.waiting);
    };
  }

  ask(job: Job): void {
    if (this.running) this.waiting = { ...job, anew: job.anew || this.waiting?.anew === true };
    else this.start(job);
  }

  dispose(): void {
    this.worker.terminate();
  }

  private start(job: Job): void {
    this.waiting = null;
    this.running = job;
    this.id++;
    this.worker.postMessage({ id: this.id, request: job.request, anew: job.anew });
  }
}
