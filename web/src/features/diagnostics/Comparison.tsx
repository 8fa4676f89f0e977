import { useState } from "react";
import { formatTime, formatValue } from "@/base/format";
import type { ComparisonDocument, Diagnosis } from "@/features/diagnostics/documents";
import type { Side } from "@/features/diagnostics/queries";
import { useComparison } from "@/features/diagnostics/queries";
import { useChosen } from "@/features/diagnostics/store";

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
  const compared = useComparison(a, b);
  if (compared.error) return <p className="hint" role="alert">{compared.error.message}</p>;
  if (!compared.data) return <p className="muted" role="status">Comparing…</p>;
  const { before, after, metrics, changed, distribution } = compared.data;
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
          {metrics.map((row) => (
            <tr key={row.metric}>
              <th scope="row">{row.label}</th>
              <td>{formatValue(row.before, row.unit)}</td>
              <td>{formatValue(row.after, row.unit)}</td>
              <td>{row.change === null ? "–" : `${row.change > 0 ? "+" : ""}${(row.change * 100).toFixed(0)} %`}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <div>
        <ul data-testid="changed">
          {changed.map((sentence) => (
            <li key={sentence}>{sentence}</li>
          ))}
        </ul>
        {distribution && <Outlines distribution={distribution} />}
        <ul>
          <li>A: {before.verdict}</li>
          <li>B: {after.verdict}</li>
        </ul>
      </div>
    </div>
  );
}

const BOX = { width: 360, height: 110 };

/** Both distributions of the metric over one axis; heights by square root, as in the small multiples. */
function Outlines({ distribution: { label, unit, limits, before, after } }: { distribution: NonNullable<ComparisonDocument["distribution"]> }) {
  const outline = (shares: readonly number[]) => {
    const bin = BOX.width / Math.max(1, shares.length);
    return shares.map((share, i) => `${i === 0 ? "M" : "L"}${(i * bin).toFixed(1)} ${(BOX.height - Math.sqrt(share) * BOX.height).toFixed(1)}H${((i + 1) * bin).toFixed(1)}`).join("");
  };
  return (
    <figure>
      <figcaption className="muted">
        {label}: A dashed, B solid; {formatValue(limits[0])} to {formatValue(limits[1], unit)}
      </figcaption>
      <svg viewBox={`0 -2 ${BOX.width} ${BOX.height + 4}`} className="outlines" role="img" aria-label={`Distributions of ${label}`}>
        <path className="a" d={outline(before)} />
        <path className="b" d={outline(after)} />
      </svg>
    </figure>
  );
}
