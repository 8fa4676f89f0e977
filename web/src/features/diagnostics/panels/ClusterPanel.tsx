import type { MouseEvent } from "react";
import { useMemo } from "react";
import type { Metric } from "@/base/attributes";
import { formatCount } from "@/base/format";
import { Choice, Select, Slider, Toggle } from "@/base/ui/controls";
import { layoutTree } from "@/charts/dendrogram";
import type { PlotKind } from "@/charts/multiples";
import type { ColourNumbers } from "@/features/diagnostics/colours";
import { cssOf, numberColour } from "@/features/diagnostics/colours";
import type { Clusters } from "@/features/diagnostics/documents";
import type { Order } from "@/charts/gpuOrder";
import type { Method } from "@/features/diagnostics/store";
import { change, choose, usePicked } from "@/features/diagnostics/store";
import ui from "@/base/ui/ui.module.css";
import styles from "@/features/diagnostics/panels/ClusterPanel.module.css";
import partStyles from "@/features/diagnostics/parts.module.css";
import { diagnosticsTexts as texts } from "@/texts";

const PLOTS: { value: PlotKind | "auto"; label: string }[] = [
  { value: "auto", label: texts.auto },
  { value: "histogram", label: texts.histogram },
  { value: "timeline", label: texts.timeline },
  { value: "strip", label: texts.heatStrip },
];
const METHODS = [
  { value: "histogram", label: texts.histogramsJensenShannon },
  { value: "euclidean", label: texts.timelinesEuclidean },
  { value: "correlation", label: texts.timelinesCorrelation },
];
const ORDERS = [
  { value: "index", label: texts.gpuIndex },
  { value: "global_rank", label: texts.globalRank },
  { value: "local_rank", label: texts.localRank },
  { value: "difference", label: texts.mostUnusual },
];
const TREE = { width: 170, height: 150 };

/** What is drawn and how it is clustered; the clusters in words. */
export function ClusterPanel({
  clusters,
  numbers,
  metrics,
}: {
  clusters: Clusters;
  numbers: ColourNumbers;
  metrics: readonly Metric[];
}) {
  const {
    metric,
    method,
    plot,
    order,
    shared,
    nodes,
    zoom,
    clusters: asked,
  } = usePicked("metric", "method", "plot", "order", "shared", "nodes", "zoom", "clusters");
  // One GPU has nothing to be grouped or ordered with.
  const alone = clusters.gpus.length === 1;
  return (
    <div className={styles["cluster-panel"]}>
      <div className={partStyles["controls"]}>
        <Select
          label={texts.metric}
          value={metric}
          options={metrics.map((one) => ({ value: one.id, label: one.label }))}
          onChange={(value) => change({ metric: value, clusters: 0 })}
        />
        {!alone && (
          <Select
            label={texts.groupBySimilarity}
            value={method}
            options={METHODS}
            onChange={(value) => change({ method: value as Method, clusters: 0 })}
          />
        )}
        <Choice
          label={texts.plot}
          value={plot}
          options={PLOTS}
          onChange={(value) => change({ plot: value })}
        />
        {!alone && (
          <Select
            label={texts.order}
            value={order}
            options={ORDERS}
            onChange={(value) => change({ order: value as Order })}
          />
        )}
        <Slider
          label={texts.size}
          value={zoom}
          min={0.5}
          max={2.5}
          step={0.25}
          onChange={(value) => change({ zoom: value })}
        />
        <div className={styles["toggles"]} hidden={alone}>
          <Toggle
            label={texts.sameScaleForAll}
            checked={shared}
            onChange={(value) => change({ shared: value })}
          />
          <Toggle
            label={texts.nodesInsteadOfGpus}
            checked={nodes}
            onChange={(value) => change({ nodes: value })}
          />
        </div>
      </div>
      <div className={styles["clusters"]} hidden={alone}>
        <ul data-testid="clusters">
          {clusters.clusters.map((cluster) => (
            <li key={cluster.id}>
              <button
                type="button"
                data-testid="cluster"
                data-gpus={cluster.gpus.join()}
                onClick={(event) => choose(cluster.gpus, event.ctrlKey || event.metaKey)}
              >
                <i style={{ background: cssOf(numberColour(numbers.get(cluster.gpus[0]) ?? 0)) }} />
                <b>{formatCount(cluster.gpus.length)}</b> <span>{cluster.why}</span>
              </button>
            </li>
          ))}
        </ul>
        <p className={ui["muted"]}>
          {texts.cut(clusters.criterion)}
          {asked > 0 && (
            <>
              {" "}
              <button type="button" className={ui["link"]} onClick={() => change({ clusters: 0 })}>
                {texts.chooseAutomatically}
              </button>
            </>
          )}
        </p>
      </div>
      {!alone && <TreeView clusters={clusters} numbers={numbers} />}
    </div>
  );
}

function TreeView({ clusters, numbers }: { clusters: Clusters; numbers: ColourNumbers }) {
  const tree = useMemo(
    () => (clusters.tree ? layoutTree(clusters.tree, TREE.width, TREE.height) : null),
    [clusters.tree],
  );
  if (!tree) return null;
  const colour = (cluster: number | null) => {
    const first = clusters.clusters.find((one) => one.id === cluster)?.gpus[0];
    return first === undefined ? "var(--muted)" : cssOf(numberColour(numbers.get(first) ?? 0));
  };
  const count = Math.max(1, clusters.clusters.length);
  const cut = (event: MouseEvent<SVGSVGElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    change({
      clusters: Math.max(
        1,
        Math.min(64, tree.clustersAt(((event.clientX - box.left) / box.width) * TREE.width)),
      ),
    });
  };
  return (
    <figure className={styles["tree"]}>
      <svg
        viewBox={`0 0 ${TREE.width} ${TREE.height}`}
        width={TREE.width}
        height={TREE.height}
        onClick={cut}
        role="img"
        aria-label={texts.dendrogramOfGpusCutIntoClusters(clusters.gpus.length, count)}
      >
        {tree.elbows.map((elbow, i) => (
          <path key={i} d={elbow.path} style={{ stroke: colour(elbow.cluster) }} />
        ))}
        <line x1={tree.cutAt(count)} x2={tree.cutAt(count)} y1={0} y2={TREE.height} />
      </svg>
      <Slider
        label={texts.clustersOrClickTheDendrogram}
        value={count}
        min={1}
        max={Math.min(12, clusters.gpus.length)}
        onChange={(value) => change({ clusters: value })}
      />
    </figure>
  );
}
