/** The states of a job one after another. */

export interface Span {
  state: string;
  from: number;
  to: number;
}

/** States are seen at polls; a start that is told may lie this long before its poll. */
const POLL_MS = 120_000;

/** A state that only changed its reason or priority is one state. */
export function joinSpans(spans: readonly Span[]): Span[] {
  const joined: Span[] = [];
  for (const span of spans) {
    const last = joined.at(-1);
    if (last?.state === span.state) last.to = Math.max(last.to, span.to);
    else joined.push({ ...span });
  }
  return joined;
}

/** The spans with the last start where the scheduler says it was, so that they agree with the wait. */
export function startAt(spans: readonly Span[], startMs: number | null): Span[] {
  const last = spans.findLastIndex((one) => one.state === "running");
  if (startMs === null || last < 1) return [...spans];
  const [before, running] = [spans[last - 1], spans[last]];
  if (Math.abs(running.from - startMs) > POLL_MS || startMs < before.from || startMs > running.to)
    return [...spans];
  return spans.map((one, i) =>
    i === last - 1 ? { ...one, to: startMs } : i === last ? { ...one, from: startMs } : one,
  );
}
