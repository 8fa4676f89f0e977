import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { getJson } from "@/api/client";
import { formatDuration } from "@/base/format";

const LOOK_MS = 500;
/** What is over sooner than this needs no bar. */
const PATIENCE_MS = 400;

/** A long answer is on its way: how much has been read, for how long, and a way out. */
export function Waiting({ workload, onCancel }: { workload: string; onCancel: () => void }) {
  const [elapsedMs, setElapsedMs] = useState(0);
  useEffect(() => {
    const begin = performance.now();
    const timer = setInterval(() => setElapsedMs(performance.now() - begin), LOOK_MS / 2);
    return () => clearInterval(timer);
  }, []);
  const progress = useQuery({ queryKey: ["progress", workload], queryFn: ({ signal }) => getJson<{ share: number | null }>("/diagnosis/progress", { workload }, signal), refetchInterval: LOOK_MS, gcTime: 0, retry: 0 });
  const share = progress.data?.share ?? null;
  const read = share !== null && share >= 0.999;
  return (
    <section className="notice waiting" role="status" data-testid="waiting">
      <p>{read ? "Comparing the GPUs…" : "Reading the samples of every GPU…"}</p>
      {elapsedMs >= PATIENCE_MS && (
        <>
          <progress max={1} aria-label="Samples read" {...(share === null ? {} : { value: share })} />
          <p className="muted">
            {share !== null && !read ? `${Math.round(share * 100)} % read · ` : ""}
            {formatDuration(elapsedMs / 1000)}
          </p>
          <p>
            <button type="button" className="button" onClick={onCancel}>
              Cancel
            </button>
          </p>
        </>
      )}
    </section>
  );
}
