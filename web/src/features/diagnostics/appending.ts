/** What came since is put behind what there is; the last bin, which may have grown, is replaced. */

import type { Bands, Lines, MetricBand } from "@/features/diagnostics/documents";

const LEVELS = ["low", "p10", "median", "p90", "high"] as const;

export function appendedBands(old: Bands, part: Bands): Bands {
  if (part.bin_ms !== old.bin_ms) return old;
  return {
    ...old,
    bands: old.bands.map((band): MetricBand => {
      const more = part.bands.find((one) => one.metric === band.metric);
      if (!more || more.time_ms.length === 0) return band;
      const kept = before(band.time_ms, more.time_ms[0]);
      const levels = Object.fromEntries(
        LEVELS.map((level) => [level, [...band[level].slice(0, kept), ...more[level]]]),
      );
      return {
        ...band,
        ...levels,
        time_ms: [...band.time_ms.slice(0, kept), ...more.time_ms],
      } as MetricBand;
    }),
  };
}

export function appendedLines(old: Lines, part: Lines): Lines {
  if (part.bin_ms !== old.bin_ms || part.time_ms.length === 0) return old;
  const kept = before(old.time_ms, part.time_ms[0]);
  return {
    ...old,
    time_ms: [...old.time_ms.slice(0, kept), ...part.time_ms],
    metrics: old.metrics.map((metric) => {
      const more = new Map(
        part.metrics
          .find((one) => one.metric === metric.metric)
          ?.lines.map((line) => [line.gpu, line.value]),
      );
      const none = part.time_ms.map(() => null);
      return {
        ...metric,
        lines: metric.lines.map((line) => ({
          ...line,
          value: [...line.value.slice(0, kept), ...(more.get(line.gpu) ?? none)],
        })),
      };
    }),
  };
}

/** How many of the times come before a moment. */
function before(times: readonly number[], moment: number): number {
  let kept = times.length;
  while (kept > 0 && times[kept - 1] >= moment) kept--;
  return kept;
}
