/** The timelines' data: asked for what is seen, denser as it narrows, appended to while it runs. */

import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { useContext, useEffect, useMemo, useState } from "react";
import { getJson } from "@/api/client";
import type { Span } from "@/charts/span";
import { within, zoomed } from "@/charts/span";
import { appendedBands, appendedLines } from "@/features/diagnostics/appending";
import type { Bands, Lines } from "@/features/diagnostics/documents";
import { between, WorkloadContext } from "@/features/diagnostics/queries";
import { useChosen, usePicked } from "@/features/diagnostics/store";

/** Bins over what is asked for: about one per two pixels of a chart. */
const POINTS = 400;
const TICK_MS = 5_000;
const SETTLED_MS = 180;
/** More bins than this many times those asked for, and the whole is asked for again. */
const GROWN = 1.5;

/** What is asked for: a little more than is seen, so that moving finds something; null is all. */
export function useAskedSpan(life: Span): Span | null {
  const { view, window: span } = usePicked("view", "window");
  const seen = view ?? span;
  const [asked, setAsked] = useState<Span | null>(seen);
  useEffect(() => {
    const timer = setTimeout(
      () => setAsked(seen && (view ? within(zoomed(seen, 1.5), life) : seen)),
      view ? SETTLED_MS : 0,
    );
    return () => clearTimeout(timer);
    // eslint-disable-next-line react-hooks/exhaustive-deps -- a running life grows all the time; what is seen decides
  }, [seen, view]);
  return asked;
}

function useDocument<T extends { bin_ms: number }>(
  path: string,
  query: Record<string, string | number>,
  span: Span | null,
  enabled: boolean,
  append: (old: T, part: T) => T,
  last: (old: T) => number | undefined,
  size: (old: T) => number,
) {
  const { running } = useContext(WorkloadContext);
  const held = useChosen((chosen) => chosen.held);
  const client = useQueryClient();
  const asked = useMemo(() => ({ ...query, points: POINTS, ...between(span) }), [query, span]);
  const key = useMemo(() => [path, asked], [path, asked]);
  const found = useQuery({
    queryKey: key,
    queryFn: ({ signal }) => getJson<T>(path, asked, signal),
    placeholderData: keepPreviousData,
    staleTime: 30_000,
    enabled,
  });
  const growing = running && !held && span === null && enabled;
  useEffect(() => {
    if (!growing) return;
    let busy = false;
    const timer = setInterval(() => {
      const old = client.getQueryData<T>(key);
      const since = old && last(old);
      if (!old || since === undefined || busy) return;
      if (size(old) > GROWN * 2 * POINTS) {
        void client.invalidateQueries({ queryKey: key });
        return;
      }
      busy = true;
      getJson<T>(path, { ...query, from: since / 1000, bin: old.bin_ms })
        .then((part) => client.setQueryData<T>(key, (now) => (now ? append(now, part) : now)))
        // The next tick asks again; a server that is gone is told of by the other questions.
        .catch(() => undefined)
        .finally(() => (busy = false));
    }, TICK_MS);
    return () => clearInterval(timer);
  }, [growing, key, client, path, query, append, last, size]);
  return found;
}

const bandsEnd = (old: Bands) => binStart(old.bands[0]?.time_ms, old.bin_ms);
const bandsSize = (old: Bands) => old.bands[0]?.time_ms.length ?? 0;
const linesEnd = (old: Lines) => binStart(old.time_ms, old.bin_ms);
const linesSize = (old: Lines) => old.time_ms.length;

/** The begin of the last bin: it may have grown, so it is asked for again. */
function binStart(times: readonly number[] | undefined, width: number): number | undefined {
  const last = times?.[times.length - 1];
  return last === undefined ? undefined : Math.floor(last / width) * width;
}

export function useBands(span: Span | null) {
  const { workload } = useContext(WorkloadContext);
  const shown = useChosen((chosen) => chosen.lines);
  const query = useMemo(() => ({ workload, metrics: shown.join() }), [workload, shown]);
  return useDocument<Bands>(
    "/diagnosis/band",
    query,
    span,
    shown.length > 0,
    appendedBands,
    bandsEnd,
    bandsSize,
  );
}

export function useLines(gpus: readonly string[], shown: readonly string[], span: Span | null) {
  const { workload } = useContext(WorkloadContext);
  const query = useMemo(
    () => ({ workload, metrics: shown.join(), gpus: gpus.join() }),
    [workload, shown, gpus],
  );
  return useDocument<Lines>(
    "/diagnosis/lines",
    query,
    span,
    gpus.length > 0 && shown.length > 0,
    appendedLines,
    linesEnd,
    linesSize,
  );
}
