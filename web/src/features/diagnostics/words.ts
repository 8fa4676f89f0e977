/** The server's answers as charts and sentences take them; the page and the report say the same. */

import { formatCount, formatDuration, formatTime, formatValue } from "@/base/format";
import type { Life } from "@/charts/life";
import type { Mark, Shade } from "@/charts/timeline";
import type { Diagnosis } from "@/features/diagnostics/documents";
import { diagnosticsTexts as texts } from "@/texts";

/** A number of things: "1 host", "2 hosts". */
export function counted(number: number, thing: keyof typeof texts.counts): string {
  return texts.counts[thing](formatCount(number));
}

type Event = Diagnosis["events"][number];
const QUIET = new Set(["checkpoint", "evaluation"]);

/** What happened, where and when. */
function eventText(event: Event): string {
  const kind = event.kind.replaceAll("_", " ");
  const where = event.gpu || event.host;
  const parts = [kind, event.value ?? "", where, event.text, formatTime(Date.parse(event.time))];
  return parts.join(" ").replace(/\s+/g, " ");
}

/** How far the workload has come, as it said itself. */
export function progressText(last: Diagnosis["progress"][number]): string {
  const step = texts.step(last.step === null ? "–" : formatCount(last.step));
  const rate = last.throughput === null ? "" : `, ${formatValue(last.throughput)} ${last.unit}`;
  return step + rate + (last.loss === null ? "" : texts.loss(formatValue(last.loss)));
}

/** The life with what happened in it; checkpoints and evaluations are phases already. */
export function lifeOf(diagnosis: Diagnosis): Life {
  return {
    spans: diagnosis.life.map((span) => {
      const [from, to] = [Date.parse(span.from), Date.parse(span.to)];
      return {
        phase: span.phase,
        from,
        to,
        text: `${span.phase}: ${formatTime(from)}, ${formatDuration((to - from) / 1000)}`,
      };
    }),
    events: diagnosis.events
      .filter((event) => !QUIET.has(event.kind))
      .map((event) => ({ time: Date.parse(event.time), kind: event.kind, text: eventText(event) })),
    progress: diagnosis.progress.map((one) => ({
      time: Date.parse(one.time),
      value: one.throughput ?? one.step,
    })),
  };
}

/** Events as marks over a timeline. */
export function marksOf(diagnosis: Diagnosis): Mark[] {
  return diagnosis.events.map((event) => ({
    timeMs: Date.parse(event.time),
    colour: QUIET.has(event.kind) ? "#8884" : "#e6550d",
    text: eventText(event),
  }));
}

/** Findings as bars at the top of a timeline. */
export function shadesOf(diagnosis: Diagnosis): Shade[] {
  return diagnosis.findings
    .filter((one) => one.fault)
    .map((one) => ({
      fromMs: Date.parse(one.window.from),
      toMs: Date.parse(one.window.to),
      colour: "#e6550d99",
      text: one.kind.replaceAll("_", " "),
    }));
}
