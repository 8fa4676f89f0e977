import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import type { Document } from "@/api/documents";
import { getJson } from "@/api/client";
import { formatDuration } from "@/base/format";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/diagnostics/Waiting.module.css";
import partStyles from "@/features/diagnostics/parts.module.css";
import { diagnosticsTexts as texts } from "@/texts";

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
  const progress = useQuery({
    queryKey: ["progress", workload],
    queryFn: ({ signal }) =>
      getJson<Document<"DiagnosisProgress">>("/diagnosis/progress", { workload }, signal),
    refetchInterval: LOOK_MS,
    gcTime: 0,
    retry: 0,
  });
  const share = progress.data?.share ?? null;
  const read = share !== null && share >= 0.999;
  return (
    <section
      className={`${partStyles["notice"]} ${styles["waiting"]}`}
      role="status"
      data-testid="waiting"
    >
      <p>{read ? texts.comparingGpus : texts.readingSamplesOfAllGpus}</p>
      {elapsedMs >= PATIENCE_MS && (
        <>
          <progress
            max={1}
            aria-label={texts.samplesRead}
            {...(share === null ? {} : { value: share })}
          />
          <p className={ui["muted"]}>
            {share !== null && !read ? texts.read(Math.round(share * 100)) : ""}
            {formatDuration(elapsedMs / 1000)}
          </p>
          <p>
            <button type="button" className={ui["button"]} onClick={onCancel}>
              {texts.cancel}
            </button>
          </p>
        </>
      )}
    </section>
  );
}
