/** Who talks to whom, who waits for whom, and how fast it goes. */

import { useEffect, useMemo, useState } from "react";
import { navigate } from "@/base/router";
import { inCluster } from "@/api/chosen";
import { traceAddress } from "@/base/addresses";
import { useTheme } from "@/base/theme";
import { clearCanvas, useCanvas } from "@/base/ui/canvas";
import { Choice } from "@/base/ui/controls";
import { makePalette } from "@/charts/marey/kinds";
import { formatNs } from "@/charts/marey/window";
import type { NetworkNode, Point } from "@/charts/network";
import { drawNetwork, findInside, findNear, placeRanks } from "@/charts/network";
import { DataTable } from "@/features/traces/DataTable";
import type { RunTables } from "@/features/traces/documents";
import { useTable } from "@/features/traces/queries";
import { MatrixView } from "@/features/traces/run/MatrixView";
import { Panel } from "@/features/traces/run/Panel";
import type { PanelProps } from "@/features/traces/run/TimePanels";
import { formatBytes } from "@/features/traces/words";
import { formatValue } from "@/base/format";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/traces/run/Run.module.css";
import { tracesTexts as texts } from "@/texts";

const bandwidth = (value: number | null) =>
  value === null ? "–" : formatValue(value * 1e9, "B/s");

/** Every collective and exchange: how long it was waited for and how fast it went, against the fastest seen. */
export function CollectivesPanel({ detail, where }: PanelProps) {
  const items = useTable(detail.run.id, "collectives", { where, sort: "-skew_us", limit: 20_000 });
  return (
    <Panel query={items} empty={texts.noCollectives}>
      {(data) => (
        <DataTable
          name={texts.collectives}
          rows={data.rows}
          first="skew_us"
          keyOf={(row) => String(row.item)}
          columns={[
            { key: "name", label: texts.name, text: true },
            { key: "group", label: texts.group, text: true },
            { key: "step", label: texts.step },
            { key: "bytes", label: texts.size, show: (row) => formatBytes(row.bytes) },
            { key: "participants", label: texts.ranks },
            {
              key: "skew_us",
              label: texts.waitForLast,
              show: (row) => formatNs(row.skew_us * 1e3),
            },
            {
              key: "last_rank",
              label: texts.lastRank,
              show: (row) => (row.certain ? row.last_rank : texts.withinClockError(row.last_rank)),
            },
            {
              key: "transfer_us",
              label: texts.transfer,
              show: (row) => formatNs(row.transfer_us * 1e3),
            },
            {
              key: "bandwidth_gbps",
              label: texts.bandwidth,
              show: (row) => bandwidth(row.bandwidth_gbps ?? null),
            },
            {
              key: "best_gbps",
              label: texts.fastestSeen,
              show: (row) => bandwidth(row.best_gbps ?? null),
            },
          ]}
          onChoose={(row) =>
            navigate(
              inCluster(
                traceAddress("marey", detail.run.id, {
                  step: row.step >= 0 ? row.step : undefined,
                  where: `rank=${row.last_rank} and kind=collective`,
                }),
              ),
            )
          }
        />
      )}
    </Panel>
  );
}

/** GPU-seconds that each rank waited because of each other one. */
export function WaitsPanel({ detail, where }: PanelProps) {
  const waits = useTable(detail.run.id, "waits", { where, limit: 200_000 });
  return (
    <Panel query={waits} empty={texts.nobodyWaited}>
      {(data) => <WaitMatrix rows={data.rows} run={detail.run.id} />}
    </Panel>
  );
}

function WaitMatrix({ rows, run }: { rows: RunTables["waits"]["rows"]; run: string }) {
  const { ranks, matrix } = useMemo(
    () =>
      pairMatrix(rows.map((row) => ({ a: row.culprit, b: row.victim, value: row.gpu_seconds }))),
    [rows],
  );
  const choose = (culprit: number, operator: string) =>
    navigate(
      inCluster(
        traceAddress("marey", run, {
          where: operator ? `rank=${culprit} and name="${operator}"` : `rank=${culprit}`,
        }),
      ),
    );
  return (
    <>
      <p>{texts.waitsExplained}</p>
      <MatrixView
        label={texts.whoMadeWhomWait}
        matrix={matrix}
        axes={{ ...axesOf(ranks), rows: texts.culpritShort, columns: texts.victimShort }}
        format={(value) => formatNs(value * 1e9)}
        describe={(row, column, value) =>
          texts.waitCell(
            ranks[row],
            ranks[column],
            Number.isNaN(value) ? texts.nothing : formatNs(value * 1e9),
          )
        }
        onChoose={(row) => choose(ranks[row], "")}
      />
      <DataTable
        name={texts.whoMadeWhomWait}
        rows={rows}
        first="gpu_seconds"
        columns={[
          { key: "culprit", label: texts.culprit },
          { key: "victim", label: texts.victim },
          { key: "cause", label: texts.cause, text: true },
          { key: "operator", label: texts.operator, text: true },
          {
            key: "gpu_seconds",
            label: texts.gpuTimeLost,
            show: (row) => formatNs(row.gpu_seconds * 1e9),
          },
        ]}
        onChoose={(row) => choose(row.culprit, "")}
      />
    </>
  );
}

function pairMatrix(pairs: readonly { a: number; b: number; value: number }[]) {
  const ranks = [...new Set(pairs.flatMap(({ a, b }) => [a, b]))].sort((a, b) => a - b);
  const place = new Map(ranks.map((rank, i) => [rank, i]));
  const values = new Float64Array(ranks.length ** 2).fill(NaN);
  for (const { a, b, value } of pairs) {
    const at = (place.get(a) ?? 0) * ranks.length + (place.get(b) ?? 0);
    values[at] = (Number.isNaN(values[at]) ? 0 : values[at]) + value;
  }
  return { ranks, matrix: { rows: ranks.length, columns: ranks.length, values } };
}

type Measure = "time_ms" | "bytes" | "bandwidth_gbps";

/** Ranks as nodes: size is communication, darkness little waiting; a lasso opens the matrix of those inside. */
export function CommunicationPanel({ detail, where }: PanelProps) {
  const nodes = useTable(detail.run.id, "communication/nodes", { where, limit: 100_000 });
  const pairs = useTable(detail.run.id, "communication", { where, limit: 100_000 });
  const [chosen, setChosen] = useState<ReadonlySet<number>>(new Set());
  const [measure, setMeasure] = useState<Measure>("time_ms");
  const rows = useMemo(
    () =>
      (pairs.data?.rows ?? []).filter(
        (row) => chosen.size === 0 || (chosen.has(row.source) && chosen.has(row.target)),
      ),
    [pairs.data, chosen],
  );
  const { ranks, matrix } = useMemo(
    () =>
      pairMatrix(rows.map((row) => ({ a: row.source, b: row.target, value: row[measure] ?? NaN }))),
    [rows, measure],
  );
  const format = (value: number) =>
    measure === "time_ms"
      ? formatNs(value * 1e6)
      : measure === "bytes"
        ? formatBytes(value)
        : bandwidth(value);
  return (
    <Panel query={nodes} empty={texts.noCommunication}>
      {(data) => (
        <>
          <p>{texts.communicationExplained}</p>
          <div className={styles["pair"]}>
            <Network
              nodes={data.rows}
              pairs={pairs.data?.rows ?? []}
              chosen={chosen}
              onChoose={setChosen}
            />
            <div className={styles["panel"]}>
              <Choice<Measure>
                label={texts.matrixOf}
                value={measure}
                options={[
                  { value: "time_ms", label: texts.time },
                  { value: "bytes", label: texts.traffic },
                  { value: "bandwidth_gbps", label: texts.bandwidth },
                ]}
                onChange={setMeasure}
              />
              <p role="status" className={ui["muted"]}>
                {chosen.size === 0 ? texts.allRanks : texts.ranksChosen(chosen.size)}
              </p>
              {ranks.length > 0 && (
                <MatrixView
                  label={texts.communication}
                  matrix={matrix}
                  axes={{ ...axesOf(ranks), rows: texts.from, columns: texts.to }}
                  format={format}
                  describe={(row, column, value) =>
                    texts.pairCell(
                      ranks[row],
                      ranks[column],
                      Number.isNaN(value) ? texts.nothing : format(value),
                    )
                  }
                />
              )}
            </div>
          </div>
          <DataTable
            name={texts.communicationOfRanks}
            rows={data.rows}
            first="little_waiting"
            columns={[
              { key: "rank", label: texts.rank },
              { key: "host", label: texts.host, text: true },
              { key: "stage", label: texts.stage },
              {
                key: "communication_ms",
                label: texts.communication,
                show: (row) => formatNs(row.communication_ms * 1e6),
              },
              { key: "wait_ms", label: texts.waiting, show: (row) => formatNs(row.wait_ms * 1e6) },
              { key: "bytes", label: texts.traffic, show: (row) => formatBytes(row.bytes) },
              { key: "little_waiting", label: texts.suspicion },
            ]}
          />
          <DataTable
            name={texts.pairs}
            rows={rows}
            first="time_ms"
            columns={[
              { key: "source", label: texts.from },
              { key: "target", label: texts.to },
              { key: "time_ms", label: texts.time, show: (row) => formatNs(row.time_ms * 1e6) },
              { key: "bytes", label: texts.traffic, show: (row) => formatBytes(row.bytes) },
              {
                key: "bandwidth_gbps",
                label: texts.bandwidth,
                show: (row) => bandwidth(row.bandwidth_gbps),
              },
              { key: "calls", label: texts.calls },
              { key: "evidence", label: texts.evidence, text: true },
            ]}
          />
        </>
      )}
    </Panel>
  );
}

const NETWORK_HEIGHT = 420;

function Network({
  nodes,
  pairs,
  chosen,
  onChoose,
}: {
  nodes: RunTables["communication/nodes"]["rows"];
  pairs: RunTables["communication"]["rows"];
  chosen: ReadonlySet<number>;
  onChoose: (chosen: ReadonlySet<number>) => void;
}) {
  const theme = useTheme((state) => state.theme);
  const [canvas, width] = useCanvas(700, 100);
  const [lasso, setLasso] = useState<Point[]>([]);
  const [near, setNear] = useState(-1);
  const said = nodes.find(({ rank }) => rank === near);
  const drawn = useMemo<NetworkNode[]>(
    () =>
      nodes.map((node) => ({
        rank: node.rank,
        stage: node.stage,
        communication: node.communication_ms,
        suspicion: node.little_waiting,
      })),
    [nodes],
  );
  const links = useMemo(
    () => pairs.map(({ source, target, time_ms }) => ({ source, target, weight: time_ms })),
    [pairs],
  );
  const places = useMemo(() => placeRanks(drawn, width, NETWORK_HEIGHT), [drawn, width]);
  useEffect(() => {
    const context = clearCanvas(canvas.current, width, NETWORK_HEIGHT);
    if (!context) return;
    drawNetwork(context, {
      nodes: drawn,
      links,
      places,
      width,
      height: NETWORK_HEIGHT,
      theme,
      chosen,
      lasso,
      colours: makePalette(theme),
    });
  }, [canvas, drawn, links, places, width, theme, chosen, lasso]);
  const at = (event: React.PointerEvent): Point => {
    const box = event.currentTarget.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  return (
    <div className={styles["panel"]}>
      <div
        className={styles["canvas"]}
        style={{ height: NETWORK_HEIGHT }}
        data-testid="network"
        role="img"
        aria-label={texts.networkLabel}
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          setLasso([at(event)]);
        }}
        onPointerMove={(event) => {
          if (lasso.length > 0) setLasso([...lasso, at(event)]);
          setNear(findNear(drawn, places, at(event))?.rank ?? -1);
        }}
        onPointerLeave={() => setNear(-1)}
        onPointerUp={(event) => {
          const inside = findInside(drawn, places, lasso);
          const clicked = findNear(drawn, places, at(event));
          setLasso([]);
          if (inside.length > 0 || !clicked) onChoose(new Set(inside));
          else onChoose(toggleRank(chosen, clicked.rank));
        }}
      >
        <canvas ref={canvas} />
      </div>
      <p className={ui["muted"]} role="status">
        {said
          ? texts.nodeSaid(
              said.rank,
              formatNs(said.communication_ms * 1e6),
              formatNs(said.wait_ms * 1e6),
              formatBytes(said.bytes),
            )
          : texts.lassoHint}{" "}
        {chosen.size > 0 && (
          <button className={ui["link"]} type="button" onClick={() => onChoose(new Set())}>
            {texts.showAllRanks}
          </button>
        )}
      </p>
    </div>
  );
}

function toggleRank(chosen: ReadonlySet<number>, rank: number): ReadonlySet<number> {
  const next = new Set(chosen);
  if (!next.delete(rank)) next.add(rank);
  return next;
}

const axesOf = (ranks: readonly number[]) => ({
  row: (at: number) => String(ranks[at] ?? ""),
  column: (at: number) => String(ranks[at] ?? ""),
});
