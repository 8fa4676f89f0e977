/** What the strip shows: how full the cluster was, what happened, and what was found. */

import { useQuery } from "@tanstack/react-query";
import { chosenCluster } from "@/api/chosen";
import type { Document } from "@/api/documents";
import { getJson } from "@/api/client";
import type { Mark, Span } from "@/features/timetravel/walk";
import { timetravelTexts as texts } from "@/texts";

// Checkpoints and evaluations are every workload's daily life; these are what somebody looks for.
const KINDS = [
  "xid",
  "node_down",
  "node_drain",
  "throttle",
  "policy_change",
  "reservation",
  "source_stale",
];
const POINTS = 240;

type ClusterRow = Document<"ClusterSpan">;
type EventRow = Document<"EventRow">;
type FindingRow = Document<"FindingDocument">;

/** The span of the history, asked again when the strip is opened. */
export function useHistorySpan(open: boolean) {
  return useQuery({
    queryKey: ["history span"],
    queryFn: async () =>
      (await getJson<ClusterRow[]>("/clusters")).find((row) => row.cluster === chosenCluster()) ??
      null,
    enabled: open,
    refetchInterval: 60_000,
  });
}

/** How full the cluster was over a span. */
export function useFullness(span: Span | null) {
  return useQuery({
    queryKey: ["fullness", span?.fromMs, span?.toMs],
    queryFn: async ({ signal }) => {
      const { rows } = await getJson<Document<"SummaryTable">>(
        "/summary",
        { ...between(span), points: POINTS },
        signal,
      );
      return rows.map((row) => ({
        timeMs: row.time_ms,
        share: row.gpus > 0 ? row.allocated / row.gpus : null,
      }));
    },
    enabled: span !== null,
    staleTime: Infinity,
    placeholderData: (before) => before,
  });
}

/** Events and findings over a span, as marks in order of time. */
export function useMarks(span: Span | null) {
  return useQuery({
    queryKey: ["marks", span?.fromMs, span?.toMs],
    queryFn: async ({ signal }) => {
      const [events, findings] = await Promise.all([
        getJson<Document<"EventTable">>(
          "/events",
          { ...between(span), kinds: KINDS, limit: 2000 },
          signal,
        ),
        // A server without rules has no findings.
        getJson<Document<"FindingList">>("/findings", { limit: 2000 }, signal).catch(() => ({
          rows: [] as FindingRow[],
        })),
      ]);
      const marks = [...events.rows.map(eventMark), ...findings.rows.map(findingMark)];
      return marks
        .filter((mark) => span !== null && mark.timeMs >= span.fromMs && mark.timeMs <= span.toMs)
        .sort((a, b) => a.timeMs - b.timeMs);
    },
    enabled: span !== null,
    staleTime: Infinity,
    placeholderData: (before) => before,
  });
}

function between(span: Span | null): { from?: string; to?: string } {
  return span
    ? { from: new Date(span.fromMs).toISOString(), to: new Date(span.toMs).toISOString() }
    : {};
}

function eventMark(row: EventRow): Mark {
  const where = row.gpu || row.host;
  return {
    timeMs: row.time_ms,
    kind: row.kind,
    text: [row.kind.replaceAll("_", " "), where, row.text].filter(Boolean).join(" · "),
  };
}

function findingMark(row: FindingRow): Mark {
  return {
    timeMs: row.opened_ms,
    kind: "finding",
    text: texts.finding(row.title || row.rule, row.workload),
  };
}
