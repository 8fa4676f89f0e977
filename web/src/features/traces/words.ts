/** States and sizes of runs as people read them. */

import { formatValue } from "@/base/format";
import type { RunSummary } from "@/features/traces/documents";
import { tracesTexts as texts } from "@/texts";

const STATES: Record<RunSummary["state"], string> = {
  uploading: texts.stateUploading,
  found: texts.stateFound,
  waiting: texts.stateWaiting,
  converting: texts.stateConverting,
  ready: texts.stateReady,
  failed: texts.stateFailed,
  cancelled: texts.stateCancelled,
};

export const stateWord = (run: RunSummary): string => STATES[run.state];

/** A size in bytes with a prefix. */
export function formatBytes(bytes: number | null | undefined): string {
  if (bytes === null || bytes === undefined || bytes < 0) return "–";
  return bytes >= 1e3 && bytes < 1e5
    ? `${Math.round(bytes / 1e3)}\u2009kB`
    : formatValue(bytes, "B");
}

/** Text cut to a length that a line can show; the whole is in the title. */
export const shorten = (text: string, most = 160): string =>
  text.length > most ? `${text.slice(0, most)}…` : text;
