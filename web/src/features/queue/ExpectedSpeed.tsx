import { useQuery } from "@tanstack/react-query";
import { getJson } from "@/api/client";
import type { ExpectedRun } from "@/features/queue/line";
import ui from "@/base/ui/ui.module.css";
import { queueTexts as texts } from "@/texts";

/** How long, how fast and how well a workload should run, from earlier runs like it. */
export function ExpectedSpeed({ workload }: { workload: string }) {
  const found = useQuery({
    queryKey: ["queue-runtime", workload],
    queryFn: ({ signal }) => getJson<ExpectedRun>("/queue-runtime", { workload }, signal),
    staleTime: 300_000,
    retry: 0,
  });
  if (found.isPending) return null;
  const message = found.isError ? found.error.message : found.data.sentence;
  const names = (found.data?.features ?? [])
    .filter((feature) => feature.share > 0)
    .slice(0, 3)
    .map((feature) => feature.name.replaceAll("_", " "));
  return (
    <section aria-label={texts.howFast} data-testid="queue-speed">
      <h3>{texts.howFast}</h3>
      <p className={found.data?.p50_s ? undefined : ui["muted"]}>{message}</p>
      {names.length > 0 && <p className={ui["muted"]}>{texts.explainedBy(names.join(", "))}</p>}
    </section>
  );
}
