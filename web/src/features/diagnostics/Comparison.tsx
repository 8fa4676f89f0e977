import { useState } from "react";
import { formatTime, formatValue } from "@/base/format";
import type { Clusters, Diagnosis } from "@/features/diagnostics/documents";
import { useClusters, useDiagnosis } from "@/features/diagnostics/queries";
import type { Span } from "@/features/diagnostics/store";
import { useChosen } from "@/features/diagnostics/store";

interface Side {
  workload: string;
  window: Span | null;
}

/** Two workloads, or two windows of one, on the same scales: what changed. */
export function Comparison({ diagnosis }: { diagnosis: Diagnosis }) {
  const span = useChosen((chosen) => chosen.window);
  const [other, setOther] = useState<Side | null>(null);
  const [name, setName] = useState("");
  const here: Side = { workload: diagnosis.workload.id, window: span };
  return (
    <section className="part" aria-label="Comparison" data-testid="comparison">
      <header>
        <h3>Compare</h3>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            if (name.trim()) setOther({ workload: name.trim(), window: null });
          }}
        >
          <input aria-label="Id of another workload" placeholder="id of another workload" value={name} maxLength={200} onChange={(event) => setName(event.target.value)} />
          <button type="submit" className="button">
            Compare with it
          </button>
        </form>
        <button type="button" className="button" disabled={span === null} onClick={() => setOther({ workload: here.workload, window: span })} title={span ? "" : "Brush a window on the timeline first"}>
          Keep this window to compare
        </button>
        {other && (
          <button type="button" className="button" onClick={() => setOther(null)}>
            Done
          </button>
        )}
      </header>
      {other && <Sides a={other} b={here} />}
    </section>
  );
}

function sideText(side: Side): string {
  return side.window ? `${side.workload}, ${formatTime(side.window[0])} – ${formatTime(side.window[1])}` : `${side.workload}, whole life`;
}

function Sides({ a, b }: { a: Side; b: Side }) {
  const [first, second] = [useDiagnosis(a.workload, a.window), useDiagnosis(b.workload, b.window)];
  const [left, right] = [useClusters(a.workload, a.window), useClusters(b.workload, b.window)];
  const error = first.error ?? second.error;
  if (error) return <p className="hint" role="alert">{error.message}</p>;
  if (!first.data || !second.data) return <p className="muted" role="status">Comparing…</p>;
  return (
    <div className="sides" data-testid="sides">
      <table>
        <thead>
          <tr>
            <th scope="col">Mean</th>
            <th scope="col">A: {sideText(a)}</th>
            <th scope="col">B: {sideText(b)}</th>
            <th scope="col">Change</th>
          </tr>
        </thead>
        <tbody>
          {changes(first.data, second.data).map((row) => (
            <tr key={row.metric}>
              <th scope="row">{row.metric.replaceAll("_", " ")}</th>
              <td>{formatValue(row.a, row.unit)}</td>
              <td>{formatValue(row.b, row.unit)}</td>
              <td>{row.change === null ? "–" : `${row.change > 0 ? "+" : ""}${(row.change * 100).toFixed(0)} %`}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <div>
        {left.data && right.data && <Outlines a={left.data} b={right.data} />}
        <ul>
          <li>A: {verdicts(first.data)}</li>
          <li>B: {verdicts(second.data)}</li>
        </ul>
      </div>
    </div>
  );
}

function verdicts(diagnosis: Diagnosis): string {
  return diagnosis.findings.map((finding) => finding.summary).join(" ") || diagnosis.verdict;
}

/** Metrics that both have, the largest relative change first. */
export function changes(a: Diagnosis, b: Diagnosis) {
  return a.metrics
    .flatMap((one) => {
      const other = b.metrics.find((candidate) => candidate.metric === one.metric);
      if (!other || one.mean === null || other.mean === null) return [];
      const size = Math.max(Math.abs(one.mean), 1e-9);
      return [{ metric: one.metric, unit: one.unit, a: one.mean, b: other.mean, change: Math.abs(one.mean) < 1e-9 ? null : (other.mean - one.mean) / size }];
    })
    .sort((p, q) => Math.abs(q.change ?? 0) - Math.abs(p.change ?? 0));
}

const BOX = { width: 360, height: 110 };

/** Both distributions of the metric over one axis. */
function Outlines({ a, b }: { a: Clusters; b: Clusters }) {
  const [low, high] = [Math.min(a.limits[0], b.limits[0]), Math.max(a.limits[1], b.limits[1])];
  const outline = (side: Clusters) => {
    const counts = side.gpus[0]?.counts.map((_, i) => side.gpus.reduce((sum, gpu) => sum + gpu.counts[i], 0)) ?? [];
    const total = counts.reduce((sum, count) => sum + count, 0) || 1;
    const bin = (side.limits[1] - side.limits[0]) / Math.max(1, counts.length);
    const x = (value: number) => ((value - low) / (high - low || 1)) * BOX.width;
    // Heights by square root, as in the small multiples: rare values stay visible.
    const y = (count: number) => BOX.height - Math.sqrt(count / total) * BOX.height;
    return counts.map((count, i) => `${i === 0 ? "M" : "L"}${x(side.limits[0] + i * bin).toFixed(1)} ${y(count).toFixed(1)}H${x(side.limits[0] + (i + 1) * bin).toFixed(1)}`).join("");
  };
  return (
    <figure>
      <figcaption className="muted">
        {a.label}: A dashed, B solid; {formatValue(low)} to {formatValue(high, a.unit)}
      </figcaption>
      <svg viewBox={`0 -2 ${BOX.width} ${BOX.height + 4}`} className="outlines" role="img" aria-label={`Distributions of ${a.label}`}>
        <path className="a" d={outline(a)} />
        <path className="b" d={outline(b)} />
      </svg>
    </figure>
  );
}
