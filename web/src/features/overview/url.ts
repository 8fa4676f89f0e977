/** Everything that makes up what is on screen, in the address: back, forward, reload and sharing just work. */

import type { Predicate } from "@/base/predicate";
import { parsePredicate } from "@/base/predicate";
import type { View } from "@/charts/units/view";
import { parseView, printView } from "@/charts/units/view";
import { overviewTexts as texts } from "@/texts";

export interface UrlState {
  /** A preset ("physical") or a saved view ("saved:night shift"); null when only the document says. */
  viewName: string | null;
  /** The view itself where it was edited. */
  view: View | null;
  selection: Predicate[];
  camera: [number, number, number] | null;
  me: string;
  hold: boolean;
  panel: boolean;
  /** The past moment that is shown; null is live. */
  at: number | null;
}

/** Read an address; parts that make no sense are reported and left out. */
export function readUrl(search: string, roomy = true): { state: UrlState; problems: string[] } {
  const query = new URLSearchParams(search);
  const problems: string[] = [];
  const attempt = <T>(what: string, read: () => T, fallback: T): T => {
    try {
      return read();
    } catch (error) {
      problems.push(
        texts.theInTheAddressWasIgnored(what, error instanceof Error ? error.message : ""),
      );
      return fallback;
    }
  };
  const doc = query.get("doc");
  const selection = query.get("sel");
  const camera = query.get("cam");
  const moment = query.get("at");
  return {
    state: {
      viewName: query.get("view"),
      view: doc === null ? null : attempt("view", () => parseView(JSON.parse(doc)), null),
      selection: selection === null ? [] : attempt("selection", () => readSelection(selection), []),
      camera: camera === null ? null : attempt("camera", () => readCamera(camera), null),
      me: query.get("me") ?? "",
      hold: query.get("hold") === "1",
      panel: query.has("panel") ? query.get("panel") !== "0" : roomy,
      at: moment === null ? null : attempt("moment", () => readMoment(moment), null),
    },
    problems,
  };
}

function readSelection(text: string): Predicate[] {
  const parsed: unknown = JSON.parse(text);
  // One filter alone is a list of one.
  return (Array.isArray(parsed) ? parsed : [parsed]).map((item) => parsePredicate(item));
}

function readCamera(text: string): [number, number, number] {
  const numbers = text.split(",").map(Number);
  if (numbers.length !== 3 || numbers.some((n) => !Number.isFinite(n)) || numbers[0] <= 0)
    throw new Error(texts.allowedZoomXY);
  return numbers as [number, number, number];
}

function readMoment(text: string): number {
  const timeMs = Date.parse(text);
  if (!Number.isFinite(timeMs)) throw new Error(texts.allowedATimeSuchAs2026);
  return timeMs;
}

/** The address of a state; what is as always is left out. */
export function printUrl(state: UrlState, roomy = true): string {
  const query = new URLSearchParams();
  if (state.viewName !== null && state.viewName !== "everything") query.set("view", state.viewName);
  if (state.view) query.set("doc", JSON.stringify(printView(state.view)));
  if (state.selection.length > 0) query.set("sel", JSON.stringify(state.selection));
  if (state.camera) query.set("cam", state.camera.map((n) => Number(n.toFixed(4))).join(","));
  if (state.me) query.set("me", state.me);
  if (state.hold) query.set("hold", "1");
  if (state.panel !== roomy) query.set("panel", state.panel ? "1" : "0");
  if (state.at !== null) query.set("at", new Date(state.at).toISOString());
  const text = query.toString();
  return text ? `?${text}` : "";
}
