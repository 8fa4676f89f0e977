/** The live session that every view shares: one connection, one copy of the cluster. */

import { create } from "zustand";
import type { ClusterFeed, ConnectionState, FeedListener } from "@/api/live";
import type { LiveMessage, SourceState } from "@/api/wire";
import type { Change } from "@/base/live/cluster";
import { Cluster } from "@/base/live/cluster";
import type { Verdicts } from "@/base/verdicts/verdicts";
import type { ClusterState } from "@/base/units";
import { baseTexts as texts } from "@/texts";

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
  /** The past moment that is asked for; null is live. */
  at: number | null;
  /** Whether that moment is still on its way. */
  travelling: boolean;
  /** Why it could not be shown. */
  travelProblem: string;
}

export const useLive = create<LiveFacts>(() => ({
  connection: "connecting",
  timeMs: 0,
  arrivedMs: 0,
  speed: 1,
  sources: [],
  hold: false,
  ready: false,
  at: null,
  travelling: false,
  travelProblem: "",
}));

/** Asks for the cluster as it was. */
export type FetchMoment = (
  timeMs: number,
  metrics: readonly string[],
  signal: AbortSignal,
  stepS?: number,
) => Promise<LiveMessage>;

// A dragged handle that stands still for this long gets the exact picture.
const REST_MS = 180;

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
  /** What had been found at the past moment; never mixed with what is judged for now. */
  private found: Verdicts = new Map();
  private heard = false;
  /** The cluster at the past moment that is shown; null is live. */
  private past: Cluster | null = null;
  private journey: AbortController | null = null;
  private arrival: Promise<void> = Promise.resolve();
  /** While time is dragged, one picture per so many seconds is enough; 0 asks for exact ones. */
  private stepS = 0;

  constructor(
    open: (listener: FeedListener) => ClusterFeed,
    private readonly fetchMoment: FetchMoment | null = null,
  ) {
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
    if (before.join() === after.join()) return;
    this.feed.subscribe(after);
    const { at } = useLive.getState();
    if (at !== null) void this.travel(at);
  }

  /**
   * Show the cluster as it was, or live again; fulfilled when the picture stands. With a step, rough pictures come
   * first, and the exact one when nobody moves on.
   */
  travel(timeMs: number | null, stepS = 0): Promise<void> {
    this.stepS = stepS;
    if (timeMs === null) {
      this.journey?.abort();
      this.journey = null;
      this.past = null;
      this.found = new Map();
      useLive.setState({ at: null, travelling: false, travelProblem: "" });
      if (this.heard) this.publish(EVERYTHING);
      return Promise.resolve();
    }
    useLive.setState({ at: timeMs, travelling: true });
    // One request at a time: a dragged handle asks for its newest place when an answer is there.
    if (!this.journey) this.arrival = this.walk();
    return this.arrival;
  }

  /** Stop the picture, or let it go on from now. */
  setHold(hold: boolean): void {
    useLive.setState({ hold });
    if (!hold && this.shown && !this.past) this.publish(EVERYTHING);
  }

  /** Whom the rules are held against, now or at the past moment; a held picture only gets those it has never had. */
  setVerdicts(verdicts: Verdicts, past = false): void {
    const before = this.shown?.verdicts;
    if (past) this.found = verdicts;
    else this.verdicts = verdicts;
    if (!this.shown || past !== (this.past !== null)) return;
    const held = !past && useLive.getState().hold && before;
    const next = held
      ? new Map([...verdicts].map(([field, verdict]) => [field, before.get(field) ?? verdict]))
      : verdicts;
    this.shown = { ...this.shown, verdicts: next };
    this.tell(this.shown, { structure: false, rows: new Int32Array(0), metrics: [...next.keys()] });
  }

  close(): void {
    this.feed.close();
  }

  private allWanted(): string[] {
    return [...new Set([...this.wanted.values()].flat())].sort();
  }

  private async walk(): Promise<void> {
    if (!this.fetchMoment) return;
    const journey = new AbortController();
    this.journey = journey;
    try {
      for (;;) {
        const goal = useLive.getState().at;
        if (goal === null) return;
        const wanted = this.allWanted();
        const stepS = this.stepS;
        const message = await this.fetchMoment(goal, wanted, journey.signal, stepS);
        if (this.journey !== journey) return;
        this.past = new Cluster();
        this.past.apply(message);
        this.publish(EVERYTHING);
        if (stepS > 0) {
          await this.waitForRest(goal);
          if (useLive.getState().at === goal) this.stepS = 0;
        } else if (useLive.getState().at === goal && this.allWanted().join() === wanted.join())
          break;
      }
      useLive.setState({ travelling: false, travelProblem: "" });
    } catch (error) {
      if (this.journey === journey)
        useLive.setState({
          travelling: false,
          travelProblem: error instanceof Error ? error.message : texts.thatMomentCouldNotBeLoaded,
        });
    } finally {
      if (this.journey === journey) this.journey = null;
    }
  }

  /** Until a dragged handle has rested for a moment, or is somewhere else. */
  private async waitForRest(goal: number): Promise<void> {
    for (let waited = 0; waited < REST_MS && this.stepS > 0; waited += 30) {
      if (useLive.getState().at !== goal) return;
      await new Promise((resolve) => setTimeout(resolve, 30));
    }
  }

  private take(message: LiveMessage): void {
    const change = this.cluster.apply(message);
    this.heard = true;
    const { hold, at } = useLive.getState();
    if (at === null && (!hold || !this.shown)) this.publish(change);
    else if (at === null && this.shown) this.addMissing(this.shown);
    useLive.setState({
      arrivedMs: Date.now(),
      sources: this.cluster.sources,
      speed: this.cluster.speed,
    });
  }

  /** A held picture still gets columns it has never had: a card or a colour may ask for them. */
  private addMissing(held: ClusterState): void {
    const fresh = [...this.cluster.state().gpus.columns].filter(
      ([name]) => !held.gpus.columns.has(name),
    );
    if (fresh.length === 0) return;
    this.shown = {
      ...held,
      gpus: { ...held.gpus, columns: new Map([...held.gpus.columns, ...fresh]) },
    };
    this.tell(this.shown, {
      structure: false,
      rows: new Int32Array(0),
      metrics: fresh.map(([name]) => name),
    });
  }

  private tell(state: ClusterState, change: Change): void {
    for (const listener of this.listeners) listener(state, change);
  }

  private publish(change: Change): void {
    this.shown = this.past
      ? { ...this.past.state(), verdicts: this.found }
      : { ...this.cluster.state(), verdicts: this.verdicts };
    useLive.setState({ timeMs: this.shown.timeMs, ready: true });
    this.tell(this.shown, change);
  }
}
