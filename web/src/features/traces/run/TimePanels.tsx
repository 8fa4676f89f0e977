/** Where time went: rank × step, per rank, memory, kernels and operators, the critical path. */

import { useMemo, useState } from "react";
import { navigate } from "@/base/router";
import { inCluster } from "@/api/chosen";
import { traceAddress } from "@/base/addresses";
import { useTheme } from "@/base/theme";
import { Select } from "@/base/ui/controls";
import type { Kind } from "@/charts/marey/kinds";
import { kindColour } from "@/charts/marey/kinds";
import { formatNs } from "@/charts/marey/window";
import { DataTable } from "@/features/traces/DataTable";
import type { RunDetail, RunTables } from "@/features/traces/documents";
import { useTable } from "@/features/traces/queries";
import { MatrixView } from "@/features/traces/run/MatrixView";
import { Panel } from "@/features/traces/run/Panel";
import { quoteValue, withClause } from "@/features/traces/selection";
import { formatBytes } from "@/features/traces/words";
import styles from "@/features/traces/run/Run.module.css";
import { tracesTexts as texts } from "@/texts";

export interface PanelProps {
  detail: RunDetail;
  where: string;
}

const openMarey = (run: string, step: number | undefined, where: string): void =>
  navigate(inCluster(traceAddress("marey", run, { step, where })));

/** Durations of all steps on all ranks; choosing one opens it in the Marey view. */
export function StepsPanel({ detail, where }: PanelProps) {
  const run = detail.run.id;
  const steps = useTable(run, "steps", { where, limit: 200_000 });
  return (
    <Panel query={steps} empty={texts.noSteps}>
      {(data) => <StepMatrix rows={data.rows} run={run} />}
    </Panel>
  );
}

function StepMatrix({ rows, run }: { rows: RunTables["steps"]["rows"]; run: string }) {
  const { ranks, steps, matrix } = useMemo(() => {
    const ranks = [...new Set(rows.map((row) => row.rank))].sort((a, b) => a - b);
    const steps = [...new Set(rows.map((row) => row.step))].sort((a, b) => a - b);
    const place = new Map(ranks.map((rank, i) => [rank, i]));
    const column = new Map(steps.map((step, i) => [step, i]));
    const values = new Float64Array(ranks.length * steps.length).fill(NaN);
    for (const row of rows)
      values[(place.get(row.rank) ?? 0) * steps.length + (column.get(row.step) ?? 0)] = row.dur_ns;
    return { ranks, steps, matrix: { rows: ranks.length, columns: steps.length, values } };
  }, [rows]);
  return (
    <>
      <p>{texts.stepsExplained}</p>
      <MatrixView
        label={texts.stepDurations}
        matrix={matrix}
        axes={{
          rows: texts.rank,
          columns: texts.step,
          row: (at) => String(ranks[at]),
          column: (at) => String(steps[at]),
        }}
        format={(value) => formatNs(value)}
        describe={(row, column, value) =>
          texts.stepCell(ranks[row], steps[column], formatNs(value))
        }
        onChoose={(row, column) => openMarey(run, steps[column], `rank=${ranks[row]}`)}
      />
      <DataTable
        name={texts.stepDurations}
        rows={rows}
        first="dur_ns"
        columns={[
          { key: "rank", label: texts.rank },
          { key: "step", label: texts.step },
          { key: "dur_ns", label: texts.duration, show: (row) => formatNs(row.dur_ns) },
        ]}
        onChoose={(row) => openMarey(run, row.step, `rank=${row.rank}`)}
      />
    </>
  );
}

const PARTS = [
  ["compute_ms", "compute", texts.compute],
  ["exposed_communication_ms", "collective", texts.exposedCommunication],
  ["exposed_copy_ms", "copy", texts.exposedCopies],
  ["idle_peers_ms", "wait", texts.idlePeers],
  ["idle_host_ms", "host", texts.idleHost],
  ["idle_input_ms", "input", texts.idleInput],
  ["idle_other_ms", "idle", texts.idleOther],
] as const satisfies readonly (readonly [string, Kind, string])[];

/** What each rank did with its time; parts add up to the step. */
export function BreakdownPanel({ detail, where }: PanelProps) {
  const theme = useTheme((state) => state.theme);
  const breakdown = useTable(detail.run.id, "breakdown", { where, limit: 100_000 });
  return (
    <Panel query={breakdown} empty={texts.noBreakdown}>
      {(data) => (
        <>
          <div className={styles["legend"]}>
            {PARTS.map(([key, kind, label]) => (
              <span key={key}>
                <i style={{ background: kindColour(theme, kind) }} />
                {label}
              </span>
            ))}
          </div>
          <DataTable
            name={texts.breakdown}
            rows={data.rows}
            first="span_ms"
            columns={[
              { key: "rank", label: texts.rank },
              { key: "step", label: texts.step },
              {
                key: "span_ms",
                label: texts.partsOfTheStep,
                text: true,
                show: (row) => <Parts row={row} />,
              },
              ...PARTS.map(([key, , label]) => ({
                key,
                label,
                show: (row: RunTables["breakdown"]["rows"][number]) => formatNs(row[key] * 1e6),
              })),
            ]}
            onChoose={(row) => openMarey(detail.run.id, row.step, `rank=${row.rank}`)}
          />
        </>
      )}
    </Panel>
  );
}

function Parts({ row }: { row: RunTables["breakdown"]["rows"][number] }) {
  const theme = useTheme((state) => state.theme);
  return (
    <span className={styles["bars"]} title={formatNs(row.span_ms * 1e6)}>
      {PARTS.map(([key, kind]) => (
        <i
          key={key}
          style={{
            width: `${(100 * row[key]) / Math.max(row.span_ms, 1e-9)}%`,
            background: kindColour(theme, kind),
          }}
        />
      ))}
    </span>
  );
}

/** Memory of one rank over time. */
export function MemoryPanel({ detail, where }: PanelProps) {
  const traced = detail.ranks.filter((rank) => !rank.missing);
  const [rank, setRank] = useState(String(traced[0]?.rank ?? 0));
  const memory = useTable(detail.run.id, "memory", {
    where: withClause(where, "rank", rank),
    limit: 50_000,
  });
  return (
    <>
      <div className={styles["narrow"]}>
        <Select
          label={texts.rank}
          value={rank}
          options={traced.slice(0, 2000).map((one) => ({
            value: String(one.rank),
            label: String(one.rank),
          }))}
          onChange={setRank}
        />
      </div>
      <Panel query={memory} empty={texts.noMemory}>
        {(data) => (
          <>
            <MemoryLines rows={data.rows} />
            <DataTable
              name={texts.memory}
              rows={data.rows}
              first="allocated_bytes"
              columns={[
                {
                  key: "time_ns",
                  label: texts.time,
                  show: (row) => formatNs(row.time_ns - data.rows[0].time_ns),
                },
                { key: "device", label: texts.device },
                {
                  key: "allocated_bytes",
                  label: texts.allocated,
                  show: (row) => formatBytes(row.allocated_bytes),
                },
                {
                  key: "reserved_bytes",
                  label: texts.reserved,
                  show: (row) => formatBytes(row.reserved_bytes),
                },
              ]}
            />
          </>
        )}
      </Panel>
    </>
  );
}

function MemoryLines({ rows }: { rows: RunTables["memory"]["rows"] }) {
  const [width, height] = [1000, 220];
  const first = rows[0].time_ns;
  const span = Math.max(1, rows[rows.length - 1].time_ns - first);
  const most = Math.max(...rows.map((row) => Math.max(row.allocated_bytes, row.reserved_bytes)), 1);
  const path = (key: "allocated_bytes" | "reserved_bytes") =>
    rows
      .filter((row) => row[key] >= 0)
      .map((row, i) => {
        const x = ((row.time_ns - first) / span) * width;
        const y = height - (row[key] / most) * (height - 8);
        return `${i === 0 ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
      })
      .join("");
  const middle = (share: number) => formatNs(span * share);
  return (
    <figure className={styles["memory"]}>
      <div className={styles["memory-scale"]} aria-hidden="true">
        <span>{formatBytes(most)}</span>
        <span>{formatBytes(most / 2)}</span>
        <span>0</span>
      </div>
      <svg
        viewBox={`0 0 ${width} ${height}`}
        preserveAspectRatio="none"
        width="100%"
        height={height}
        role="img"
        aria-label={texts.memoryChart(formatBytes(most))}
      >
        <path
          d={`M0 ${height / 2 + 4}H${width}`}
          stroke="var(--line)"
          strokeWidth="1"
          vectorEffect="non-scaling-stroke"
        />
        {(["reserved_bytes", "allocated_bytes"] as const).map((key) => (
          <path
            key={key}
            d={path(key)}
            fill="none"
            stroke={LINE_COLOURS[key]}
            strokeWidth="1.5"
            vectorEffect="non-scaling-stroke"
          />
        ))}
      </svg>
      <div className={styles["memory-times"]} aria-hidden="true">
        {[0, 0.25, 0.5, 0.75, 1].map((share) => (
          <span key={share}>{middle(share)}</span>
        ))}
      </div>
      <figcaption>
        {(["allocated_bytes", "reserved_bytes"] as const).map((key) => (
          <span key={key}>
            <i style={{ background: LINE_COLOURS[key] }} />
            {key === "allocated_bytes" ? texts.allocated : texts.reserved}
          </span>
        ))}
      </figcaption>
    </figure>
  );
}

const LINE_COLOURS = { allocated_bytes: "var(--accent)", reserved_bytes: "var(--muted)" };

/** Kernels or operators by name. */
export function NamesPanel({
  detail,
  where,
  table,
}: PanelProps & { table: "kernels" | "operators" }) {
  const names = useTable(detail.run.id, table, { where, sort: "-total_ms", limit: 20_000 });
  const time = (value: number) => formatNs(value * 1e3);
  return (
    <Panel query={names} empty={texts.nothingRecorded}>
      {(data) => (
        <DataTable
          name={table}
          rows={data.rows}
          first="total_ms"
          columns={[
            { key: "name", label: texts.name, text: true },
            { key: "module", label: texts.module, text: true },
            { key: "kind", label: texts.kind, text: true },
            { key: "calls", label: texts.calls },
            { key: "total_ms", label: texts.total, show: (row) => formatNs(row.total_ms * 1e6) },
            { key: "mean_us", label: texts.mean, show: (row) => time(row.mean_us) },
            { key: "max_us", label: texts.longest, show: (row) => time(row.max_us) },
            { key: "slowest_rank", label: texts.slowestRank },
            { key: "spread", label: texts.spread },
          ]}
          onChoose={(row) =>
            openMarey(
              detail.run.id,
              undefined,
              `rank=${row.slowest_rank} and name=${quoteValue(row.name)}`,
            )
          }
        />
      )}
    </Panel>
  );
}

/** The chain of work that decided how long the run took. */
export function PathPanel({ detail, where }: PanelProps) {
  const path = useTable(detail.run.id, "critical-path", { where, limit: 50_000 });
  return (
    <Panel query={path} empty={texts.noCriticalPath}>
      {(data) => (
        <>
          <p>{texts.criticalPathExplained}</p>
          <DataTable
            name={texts.criticalPath}
            rows={data.rows}
            columns={[
              { key: "rank", label: texts.rank },
              { key: "step", label: texts.step },
              { key: "activity", label: texts.activity, text: true },
              { key: "name", label: texts.name, text: true },
              { key: "dur_ns", label: texts.duration, show: (row) => formatNs(row.dur_ns) },
            ]}
            onChoose={(row) =>
              openMarey(
                detail.run.id,
                row.step >= 0 ? row.step : undefined,
                row.name ? `rank=${row.rank} and name=${quoteValue(row.name)}` : `rank=${row.rank}`,
              )
            }
          />
        </>
      )}
    </Panel>
  );
}
