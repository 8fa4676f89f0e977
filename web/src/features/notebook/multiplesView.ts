/** GPUs of a workload as small multiples in a notebook. */

import { prepareCanvas } from "@/charts/canvas";
import type { Document } from "@/api/documents";
import { categoryColours, DEFAULT_CATEGORICAL, ramp } from "@/base/colour";
import type { Column } from "@/base/columns";
import { textColumn } from "@/base/columns";
import { formatValue } from "@/base/format";
import type { Predicate } from "@/base/predicate";
import { select } from "@/base/predicate";
import { labelOf, ORDERS, ordered } from "@/charts/gpuOrder";
import type { Order } from "@/charts/gpuOrder";
import type { Multiple, MultiplesLayout, PlotKind } from "@/charts/multiples";
import { cellAt, cellSize, drawMultiples, headingAt, layoutMultiples } from "@/charts/multiples";
import { button, choice, frame, make, tokenOf } from "@/features/notebook/elements";
import type { Model } from "@/features/notebook/model";
import { notebookTexts as texts } from "@/texts";

type Clusters = Document<"GpuClusters">;

const STRIPS_FROM = 256;
const COLOURS = categoryColours(24, DEFAULT_CATEGORICAL);

/** Draw the GPUs of a model into an element; the answer undoes it. */
export function renderMultiples(model: Model, host: HTMLElement): () => void {
  const view = new MultiplesView(model, host);
  return () => view.close();
}

class MultiplesView {
  private readonly root: HTMLElement;
  private readonly canvas = make("canvas", { tabindex: "0", role: "application" });
  private readonly said = make("div", { class: "said", role: "status", "aria-live": "polite" });
  private readonly bar = make("div", { class: "bar" });
  private layout: MultiplesLayout | null = null;
  private focus = -1;
  private readonly observer: ResizeObserver;
  private readonly redraw = () => this.draw();

  constructor(
    private readonly model: Model,
    host: HTMLElement,
  ) {
    this.root = frame(host);
    this.root.append(this.bar, make("div", { class: "scroll" }, this.canvas), this.said);
    this.canvas.addEventListener("mousemove", (event) => {
      if (this.layout) this.hover(cellAt(this.layout, event.offsetX, event.offsetY));
    });
    this.canvas.addEventListener("mouseleave", () => this.hover(-1));
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    for (const name of WATCHED) model.on(`change:${name}`, this.redraw);
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.root);
  }

  close(): void {
    this.observer.disconnect();
    for (const name of WATCHED) this.model.off(`change:${name}`, this.redraw);
  }

  private get clusters(): Clusters {
    return this.model.get("_document") as Clusters;
  }

  private get order(): Order {
    const order = this.model.get("order") as Order;
    return ORDERS.includes(order) ? order : "index";
  }

  private get kind(): PlotKind {
    if (this.clusters.gpus.length > STRIPS_FROM) return "strip";
    return this.clusters.method === "histogram" ? "histogram" : "timeline";
  }

  private get selected(): ReadonlySet<string> {
    const query = this.model.get("_query") as Predicate | null;
    return new Set(query ? chosenGpus(query, this.clusters) : []);
  }

  private set(name: string, value: unknown): void {
    this.model.set(name, value);
    this.model.save_changes();
  }

  private choose(gpus: readonly string[], more: boolean): void {
    const next = more ? new Set(this.selected) : new Set<string>();
    for (const gpu of gpus) if (!(more && next.delete(gpu))) next.add(gpu);
    this.set("_query", next.size > 0 ? { field: "gpu", op: "in", value: [...next] } : null);
    this.draw();
  }

  private click(event: MouseEvent): void {
    if (!this.layout) return;
    const more = event.shiftKey || event.ctrlKey || event.metaKey;
    const host = headingAt(this.layout, event.offsetX, event.offsetY);
    if (host !== null) {
      const gpus = this.clusters.gpus.filter((gpu) => gpu.host === host).map((gpu) => gpu.gpu);
      this.choose(gpus, more);
      return;
    }
    const cell = this.layout.cells[cellAt(this.layout, event.offsetX, event.offsetY)];
    if (cell) this.choose([cell.multiple.id], more);
  }

  private key(event: KeyboardEvent): void {
    const count = this.layout?.cells.length ?? 0;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 8, ArrowUp: -8 }[event.key];
    if (step !== undefined) this.hover(Math.max(0, Math.min(count - 1, this.focus + step)));
    else if (event.key === "Enter" || event.key === " ") {
      const cell = this.layout?.cells[this.focus];
      if (cell) this.choose([cell.multiple.id], event.shiftKey);
    } else if (event.key === "Escape") this.choose([], false);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private hover(at: number): void {
    if (at === this.focus) return;
    this.focus = at;
    this.paint();
    const id = this.layout?.cells[at]?.multiple.id;
    const row = this.clusters.gpus.find((gpu) => gpu.gpu === id);
    if (row)
      this.said.textContent = texts.plotOf(
        row.gpu,
        row.global_rank ?? "–",
        formatValue(row.median ?? NaN, this.clusters.unit),
        row.cluster + 1,
      );
  }

  private draw(): void {
    const { clusters, kind } = this;
    const boxed = this.order !== "difference";
    const multiples = ordered(clusters.gpus, this.order).map((row): Multiple => ({
      id: row.gpu,
      group: boxed ? row.host : "",
      label: labelOf(row, this.order, boxed),
      counts: row.counts,
      line: row.line,
      colour: COLOURS[row.cluster % COLOURS.length],
      slots: [],
    }));
    const width = Math.max(300, this.root.clientWidth - 36);
    this.layout = layoutMultiples(multiples, width, cellSize(multiples.length, kind, 1), kind);
    this.canvas.setAttribute("aria-label", texts.multiplesHelp(multiples.length, clusters.label));
    this.root.dataset["gpus"] = String(multiples.length);
    this.root.dataset["selected"] = String(this.selected.size);
    this.fillBar();
    this.said.textContent =
      clusters.gpus.length === 0
        ? texts.noSamples(clusters.label)
        : texts.multiplesSaid(
            clusters.label,
            formatValue(clusters.limits[0]),
            formatValue(clusters.limits[1], clusters.unit),
            clusters.clusters.length,
          );
    this.paint();
  }

  private fillBar(): void {
    const metrics = this.model.get("_choices") as [string, string][];
    const pickers = [
      choice(texts.metric, metrics, this.model.get("metric") as string, (value) =>
        this.set("metric", value),
      ),
      choice(texts.alike, texts.methods, this.model.get("method") as string, (value) =>
        this.set("method", value),
      ),
      choice(texts.order, texts.gpuOrders, this.order, (value) => {
        this.set("order", value);
        this.draw();
      }),
    ];
    this.bar.replaceChildren(
      ...pickers.map((one) => one.element),
      button(texts.clear, () => this.choose([], false)),
    );
  }

  private paint(): void {
    if (!this.layout) return;
    const width = Math.max(300, this.root.clientWidth - 36);
    const context = prepareCanvas(this.canvas, width, Math.max(1, this.layout.height));
    if (!context) return;
    const token = (name: string) => tokenOf(this.root, name);
    const theme = this.root.dataset["theme"] === "dark" ? "dark" : "light";
    drawMultiples(context, this.layout, {
      kind: this.kind,
      limits: this.clusters.limits as [number, number],
      shared: true,
      selected: this.selected,
      lit: null,
      focus: this.focus,
      ramp: ramp(null, false, theme),
      colours: {
        ground: token("--raised"),
        line: token("--line-strong"),
        text: token("--text"),
        selected: token("--selected"),
      },
    });
  }
}

const WATCHED = ["_document", "_query", "order"];

const TEXTS = ["gpu", "host"] as const;
const NUMBERS = ["index", "global_rank", "local_rank", "cluster", "difference", "median"] as const;

/** The GPUs that a predicate over their facts selects. */
function chosenGpus(query: Predicate, { gpus }: Clusters): string[] {
  const columns = new Map<string, Column>();
  for (const name of TEXTS) columns.set(name, textColumn(gpus.map((gpu) => gpu[name])));
  for (const name of NUMBERS)
    columns.set(name, {
      kind: "number",
      values: Float64Array.from(gpus, (gpu) => gpu[name] ?? NaN),
    });
  const chosen = select(query, { rows: gpus.length, columns });
  return gpus.filter((_, i) => chosen[i]).map((gpu) => gpu.gpu);
}
