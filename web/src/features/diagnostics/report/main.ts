/** Draws a report's pictures with the charts of the page; the data stands in the file itself. */

import { prepareCanvas } from "@/charts/canvas";
import type { Theme } from "@/base/colour";
import { ramp } from "@/base/colour";
import { formatTime } from "@/base/format";
import { layoutTree } from "@/charts/dendrogram";
import { drawLife, PHASE_COLOURS } from "@/charts/life";
import type { PlotKind } from "@/charts/multiples";
import { cellSize, drawMultiples, layoutMultiples } from "@/charts/multiples";
import { drawScatter, scatterScales } from "@/charts/scatter";
import type { Span } from "@/charts/span";
import { within } from "@/charts/span";
import type { Timeline } from "@/charts/timeline";
import { drawTimeline } from "@/charts/timeline";
import { cssOf, numberColour } from "@/features/diagnostics/colours";
import type { Bands, Clusters, Diagnosis, Outliers } from "@/features/diagnostics/documents";
import { labelOf, ordered } from "@/charts/gpuOrder";
import { timelineStyle, token } from "@/features/diagnostics/painting";
import { lifeOf, marksOf, shadesOf } from "@/features/diagnostics/words";
import { diagnosticsTexts as texts } from "@/texts";

interface Report {
  diagnosis: Diagnosis;
  clusters: Clusters | null;
  bands: Bands | null;
  outliers: Outliers | null;
}

const theme: Theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
const STRIPS_FROM = 256;

function place(name: string): { element: HTMLElement; width: number } | null {
  const element = document.querySelector<HTMLElement>(`[data-picture="${name}"]`);
  return element ? { element, width: Math.max(240, element.clientWidth) } : null;
}

function canvasIn(
  element: HTMLElement,
  width: number,
  height: number,
): CanvasRenderingContext2D | null {
  const canvas = document.createElement("canvas");
  element.append(canvas);
  return prepareCanvas(canvas, width, height);
}

function svgIn(element: HTMLElement): SVGSVGElement {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  element.append(svg);
  return svg;
}

function life({ diagnosis }: Report): void {
  const at = place("life");
  if (!at || diagnosis.life.length === 0) return;
  const found = lifeOf(diagnosis);
  drawLife(svgIn(at.element), found);
  const ends = document.createElement("p");
  ends.className = "muted";
  ends.textContent = texts.fromTo(
    formatTime(found.spans[0].from),
    formatTime(found.spans[found.spans.length - 1].to),
  );
  at.element.append(ends);
  const legend = document.createElement("p");
  for (const phase of new Set(found.spans.map((span) => span.phase))) {
    const mark = document.createElement("i");
    mark.style.background = PHASE_COLOURS[phase] ?? "";
    legend.append(mark, ` ${phase}  `);
  }
  at.element.append(legend);
}

function multiples({ clusters }: Report): void {
  const at = place("multiples");
  if (!at || !clusters || clusters.gpus.length === 0) return;
  const kind: PlotKind =
    clusters.gpus.length > STRIPS_FROM
      ? "strip"
      : clusters.method === "histogram"
        ? "histogram"
        : "timeline";
  const plots = ordered(clusters.gpus, "index").map((row) => ({
    id: row.gpu,
    group: row.host,
    label: labelOf(row, "index", true),
    counts: row.counts,
    line: row.line,
    colour: numberColour(row.cluster),
    slots: [],
  }));
  const layout = layoutMultiples(plots, at.width, cellSize(plots.length, kind, 1), kind);
  const context = canvasIn(at.element, at.width, layout.height + 2);
  if (!context) return;
  const colours = {
    ground: token("--raised"),
    line: token("--line"),
    text: token("--muted"),
    selected: token("--selected"),
  };
  drawMultiples(context, layout, {
    kind,
    limits: clusters.limits,
    shared: true,
    selected: new Set(),
    lit: null,
    focus: -1,
    ramp: ramp(null, false, theme),
    colours,
  });
}

function tree({ clusters }: Report): void {
  const at = place("tree");
  if (!at || !clusters?.tree) return;
  const [width, height] = [Math.min(360, at.width), 150];
  const drawn = layoutTree(clusters.tree, width, height);
  const svg = svgIn(at.element);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", String(width));
  for (const elbow of drawn.elbows) {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", elbow.path);
    path.style.stroke =
      elbow.cluster === null ? "var(--muted)" : cssOf(numberColour(elbow.cluster));
    svg.append(path);
  }
}

function timelines({ diagnosis, bands }: Report): void {
  const at = place("timeline");
  if (!at || !bands) return;
  const charts: Timeline[] = [];
  for (const band of bands.bands) {
    const host = document.createElement("div");
    const readout = document.createElement("p");
    readout.className = "readout";
    at.element.append(host, readout);
    const whole: Span = [band.time_ms[0], band.time_ms[band.time_ms.length - 1]];
    const view = (span: Span | null) =>
      charts.forEach((chart) => chart.show(span && within(span, whole)));
    const data = {
      label: band.label,
      unit: band.unit,
      range: band.unit === "%" ? ([0, 100] as const) : null,
      band,
      lines: [],
      marks: marksOf(diagnosis),
      lit: [],
      shades: shadesOf(diagnosis),
      window: null,
    };
    charts.push(
      drawTimeline(
        host,
        data,
        timelineStyle(theme),
        { width: at.width, height: 170 },
        { brush: view, view, tell: (text) => (readout.textContent = text) },
      ),
    );
  }
}

function scatter({ clusters, outliers }: Report): void {
  const at = place("scatter");
  if (!at || !outliers) return;
  const [width, height] = [Math.min(560, at.width), 300];
  const context = canvasIn(at.element, width, height);
  if (!context) return;
  const clusterOf = new Map(
    clusters?.clusters.flatMap((cluster) => cluster.gpus.map((gpu) => [gpu, cluster.id] as const)),
  );
  const label = (one: { label: string; unit: string }) =>
    `${one.label}${one.unit ? ` (${one.unit})` : ""}`;
  const many = outliers.samples > outliers.points.x.length;
  drawScatter(
    context,
    { ...outliers, density: many ? outliers.density : null },
    scatterScales(outliers.limits, width, height),
    { x: label(outliers.x), y: label(outliers.y) },
    {
      colourOf: (gpu) => cssOf(numberColour(clusterOf.get(outliers.gpus[gpu]?.gpu) ?? 0)),
      faded: () => false,
      colours: {
        line: token("--line"),
        text: token("--muted"),
        density: token("--muted"),
        outlier: token("--alert"),
      },
    },
  );
}

const data = JSON.parse(document.getElementById("data")?.textContent ?? "null") as Report | null;
if (data) for (const draw of [life, multiples, tree, timelines, scatter]) draw(data);
document.documentElement.dataset["drawn"] = "1";
