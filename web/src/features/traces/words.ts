/** States and sizes of runs as people read them. */

import { formatValue } from "@/base/format";
import { formatNs } from "@/charts/marey/window";
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

/** A step as a choice: its number and how long it took; what has no steps is one recording. */
export const stepLabel = ({ step, dur_ns }: { step: number; dur_ns: number }): string =>
  `${step < 0 ? texts.wholeRecording : step} (${formatNs(dur_ns)})`;

/** Text cut to a length that a line can show; the whole is in the title. */
export const shorten = (text: string, most = 160): string =>
  text.length > most ? `${text.slice(0, most)}…` : text;
