/** What the page says in words, in one place. */

import { formatTime } from "@/base/format";
import type { Diagnosis } from "@/features/diagnostics/documents";

type Event = Diagnosis["events"][number];

/** What happened, where and when. */
export function eventText(event: Event): string {
  const value = event.value === null ? "" : ` ${event.value}`;
  return `${event.kind.replaceAll("_", " ")}${value} ${event.gpu || event.host} ${event.text} ${formatTime(Date.parse(event.time))}`.replace(/\s+/g, " ");
}
