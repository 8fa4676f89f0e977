/** What the overview's components share: the live session, the catalogue, and the engine once there is a canvas. */

import { createContext, useContext } from "react";
import type { Attribute, Metric } from "@/base/attributes";
import type { LiveSession } from "@/base/live/session";
import type { Engine } from "@/features/overview/drawing/engine";

export interface OverviewContext {
  session: LiveSession;
  /** By id; the rules of the moment join the catalogue's own. */
  attributes: Map<string, Attribute>;
  metrics: readonly Metric[];
  engine: { current: Engine | null };
}

export const Context = createContext<OverviewContext | null>(null);

export function useShared(): OverviewContext {
  const shared = useContext(Context);
  if (!shared) throw new Error("This part of the overview stands outside of it.");
  return shared;
}

const CARD_PX = 372;

/** How much of the canvas the information card covers: nothing where it stands beside it. */
export function coveredByCard(): number {
  return matchMedia("(width >= 1100px)").matches ? 0 : CARD_PX;
}
