/** The live session that every view shares: one connection, one copy of the cluster. */

import { create } from "zustand";
import type { ClusterFeed, ConnectionState, FeedListener } from "@/api/live";
import type { LiveMessage, SourceState } from "@/api/wire";
import type { Change } from "@/base/cluster";
import { Cluster } from "@/base/cluster";
import type { Verdicts } from "@/base/rules/verdicts";
import type { ClusterState } from "@/base/units";

export interface LiveFacts {
  connection: ConnectionState;
  /** The cluster's own time of the last message shown. */
  timeMs: number;
  /** This browser's time at which the last message came. */
  arrivedMs: number;
  speed: number;
  sources: SourceState[];
  hold: boolean;
  ready: boolean;
}

export const useLive = create<LiveFacts>(() => ({
  connection: "connecting",
  timeMs: 0,
  arrivedMs: 0,
  speed: 1,
  sources: [],
  hold: false,
  ready: false,
}));

export type StateListener = (state: ClusterState, change: Change) => void;

const EVERYTHING: Change = { structure: true, rows: new Int32Array(0), metrics: [] };

/** Connects a feed to the copy of the cluster, and tells listeners what changed. */
export class LiveSession {
  private readonly cluster = new Cluster();
  private readonly listeners = new Set<StateListener>();
  private readonly wanted = new Map<string, readonly string[]>();
  private readonly feed: ClusterFeed;
  private shown: ClusterState | null = null;
  private verdicts: Verdicts = new Map();

  constructor(open: (listener: FeedListener) => ClusterFeed) {
    this.feed = open({
      message: (message) => this.take(message),
      state: (connection) => useLive.setState({ connection }),
    });
  }

  /** Listen, beginning with the state there is. */
  listen(listener: StateListener): () => void {
    this.listeners.add(listener);
    if (this.shown) listener(this.shown, EVERYTHING);
    return () => this.listeners.delete(listener);
  }

  /** The metrics one view needs; the connection asks for those of all views together. */
  need(view: string, metrics: readonly string[]): void {
    const before = this.allWanted();
    this.wanted.set(view, metrics);
    const after = this.allWanted();
    if (before.join() !== after.join()) this.feed.subscribe(after);
  }

  /** Stop the picture, or let it go on from now. */
  setHold(hold: boolean): void {
    useLive.setState({ hold });
    if (!hold && this.shown) this.publish(EVERYTHING);
  }

  /** Whom the rules are held against; a held picture only gets those it has never had. */
  setVerdicts(verdicts: Verdicts): void {
    const before = this.shown?.verdicts;
    this.verdicts = verdicts;
    if (!this.shown) return;
    const held = useLive.getState().hold && before;
    const next = held ? new Map([...verdicts].map(([field, verdict]) => [field, before.get(field) ?? verdict])) : verdicts;
    this.shown = { ...this.shown, verdicts: next };
    this.tell(this.shown, { structure: false, rows: new Int32Array(0), metrics: [...next.keys()] });
  }

  close(): void {
    this.feed.close();
  }

  private allWanted(): string[] {
    return [...new Set([...this.wanted.values()].flat())].sort();
  }

  private take(message: LiveMessage): void {
    const change = this.cluster.apply(message);
    if (!useLive.getState().hold || !this.shown) this.publish(change);
    else this.addMissing(this.shown);
    useLive.setState({ arrivedMs: Date.now(), sources: this.cluster.sources, speed: this.cluster.speed });
  }

  /** A held picture still gets columns it has never had: a card or a colour may ask for them. */
  private addMissing(held: ClusterState): void {
    const fresh = [...this.cluster.state().gpus.columns].filter(([name]) => !held.gpus.columns.has(name));
    if (fresh.length === 0) return;
    this.shown = { ...held, gpus: { ...held.gpus, columns: new Map([...held.gpus.columns, ...fresh]) } };
    this.tell(this.shown, { structure: false, rows: new Int32Array(0), metrics: fresh.map(([name]) => name) });
  }

  private tell(state: ClusterState, change: Change): void {
    for (const listener of this.listeners) listener(state, change);
  }

  private publish(change: Change): void {
    this.shown = { ...this.cluster.state(), verdicts: this.verdicts };
    useLive.setState({ timeMs: this.shown.timeMs, ready: true });
    this.tell(this.shown, change);
  }
}
