/** What a rule measured, over the time of one of its findings: of the whole workload, and of an affected GPU. */

import { useQuery } from "@tanstack/react-query";
import type { Document } from "@/api/documents";
import { getJson } from "@/api/client";
import { formatValue } from "@/base/format";
import { Trend } from "@/base/ui/Trend";
import { useLanguage } from "@/base/verdicts/queries";
import type { Finding } from "@/features/findings/documents";
import { measuredMetrics, plottedSpan } from "@/features/findings/documents";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/findings/Detail.module.css";
import { findingsTexts as texts } from "@/texts";

type Band = Document<"Bands">["bands"][number];
type Lines = Document<"Lines">;
const POINTS = 120;

export function FindingPlot({ finding }: { finding: Finding }) {
  const language = useLanguage();
  const metrics = language.data ? measuredMetrics(finding, language.data) : [];
  const [from, to] = plottedSpan(finding);
  const asked = {
    workload: finding.workload,
    metrics: metrics.join(),
    points: POINTS,
    from: from / 1000,
    to: to / 1000,
  };
  const bands = useQuery({
    queryKey: ["finding plot", asked],
    queryFn: ({ signal }) =>
      getJson<Document<"Bands">>("/diagnosis/band", asked, signal).then((one) => one.bands),
    enabled: metrics.length > 0,
    staleTime: 60_000,
  });
  // Where all of its GPUs are affected, none of them says more than the median.
  const gpu = finding.gpu_count < finding.gpus_held ? finding.gpus[0] : undefined;
  const lines = useQuery({
    queryKey: ["finding lines", asked, gpu],
    queryFn: ({ signal }) =>
      getJson<Lines>("/diagnosis/lines", { ...asked, gpus: gpu ?? "" }, signal),
    enabled: metrics.length > 0 && gpu !== undefined,
    staleTime: 60_000,
  });
  return (
    <section aria-label={texts.atThatTime} data-testid="finding-plot">
      <h3>{texts.atThatTime}</h3>
      {bands.isError && <p className={ui["muted"]}>{bands.error.message}</p>}
      {bands.isPending && <div className={styles["plot-skeleton"]} role="status" />}
      {bands.data?.length === 0 && <p className={ui["muted"]}>{texts.nothingMeasured}</p>}
      {bands.data?.map((band) => (
        <MetricPlot key={band.metric} band={band} lines={lines.data} finding={finding} />
      ))}
    </section>
  );
}

function MetricPlot({
  band,
  lines,
  finding,
}: {
  band: Band;
  lines: Lines | undefined;
  finding: Finding;
}) {
  const own = lines?.metrics.find((one) => one.metric === band.metric)?.lines[0];
  const places = new Map(lines?.time_ms.map((time, place) => [time, place]));
  const ownAt = (time: number) => own?.value[places.get(time) ?? -1] ?? null;
  const drawn = [{ name: texts.medianOfGpus(finding.gpus_held), values: band.median }];
  if (own) drawn.push({ name: own.gpu, values: band.time_ms.map(ownAt) as number[] });
  const markers = [{ timeMs: finding.opened_ms, text: texts.opened }];
  if (finding.closed_ms !== null)
    markers.push({ timeMs: finding.closed_ms, text: texts.closedMark });
  return (
    <div>
      <p className={ui["muted"]}>{band.label}</p>
      <Trend
        label={texts.plotOf(band.label, finding.workload)}
        times={band.time_ms}
        lines={drawn}
        markers={markers}
        span={plottedSpan(finding)}
        format={(value) => formatValue(value, band.unit)}
      />
    </div>
  );
}
