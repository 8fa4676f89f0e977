/** The bivariate calling-context tree in a notebook. */

import { prepareCanvas } from "@/charts/canvas";
import { continuousScheme } from "@/base/colour";
import type { BivariateLayout } from "@/charts/calltree/bivariate";
import { drawBivariate, itemAt, layoutBivariate } from "@/charts/calltree/bivariate";
import type { CallTree, Metric } from "@/charts/calltree/tree";
import { METRICS, nameOf, pathOf, rowsOfPaths, valueOf } from "@/charts/calltree/tree";
import type { TreeState } from "@/charts/calltree/visible";
import { metricHistogram, visibleItems } from "@/charts/calltree/visible";
import { drawBars } from "@/charts/bars";
import type { Facts } from "@/features/notebook/decode";
import { decodeTree, readMarks } from "@/features/notebook/decode";
import { button, choice, frame, make, tokenOf } from "@/features/notebook/elements";
import { formatMetric } from "@/base/times";
import type { Model } from "@/features/notebook/model";
import { notebookTexts as texts } from "@/texts";

const BINS = 40;
const MOST_ITEMS = 600;
const MOST_TABLE_ROWS = 100;
/** What a selection may weigh on its way to Python. */
const LARGEST_MESSAGE = 90_000;
const ALL: TreeState = { collapsed: new Set(), folded: new Set(), prune: null };

/** Draw the tree of a model into an element; the answer undoes it. */
export function renderTree(model: Model, host: HTMLElement): () => void {
  const view = new TreeView(model, host);
  return () => view.close();
}

class TreeView {
  private readonly root: HTMLElement;
  private readonly canvas = make("canvas", { tabindex: "0", role: "application" });
  private readonly bars = make("canvas", { "aria-hidden": "true" });
  private readonly low = range(texts.lowest, 0);
  private readonly high = range(texts.highest, BINS);
  private readonly legend = make("div", { class: "legend" });
  private readonly said = make("div", { class: "said", role: "status", "aria-live": "polite" });
  private readonly rows = make("div", { class: "rows" });
  private readonly pickers: { set: (value: string) => void }[];
  private tree: CallTree | null = null;
  private layout: BivariateLayout | null = null;
  private state: TreeState = ALL;
  private selected = new Set<number>();
  private hovered = -1;
  private edges: number[] = [0, 1];
  private readonly listeners: [string, () => void][];

  constructor(
    private readonly model: Model,
    host: HTMLElement,
  ) {
    this.root = frame(host);
    this.canvas.setAttribute("aria-label", texts.treeHelp);
    const options = METRICS.map((metric) => [metric, texts.metrics[metric]] as const);
    const [colour, area] = (["colour", "area"] as const).map((what) =>
      choice(texts[what], options, this.metric(what), (value) => {
        model.set(what, value);
        model.save_changes();
        this.draw();
      }),
    );
    this.pickers = [colour, area];
    this.buildPage([colour.element, area.element]);
    this.listen();
    this.listeners = [
      ["change:_data", () => void this.load()],
      ["change:_marked", () => this.readMarked()],
      ["change:_view", () => this.readView()],
      ["change:colour", () => this.draw()],
      ["change:area", () => this.draw()],
    ];
    for (const [event, action] of this.listeners) model.on(event, action);
    void this.load();
  }

  close(): void {
    for (const [event, action] of this.listeners) this.model.off(event, action);
  }

  private metric(what: "colour" | "area"): Metric {
    const value = this.model.get(what) as Metric;
    return METRICS.includes(value) ? value : "inclusive";
  }

  private buildPage(pickers: HTMLElement[]): void {
    const prune = make(
      "div",
      { class: "prune", role: "group", "aria-label": texts.prune },
      make("span", {}, texts.prune),
      this.bars,
      this.low,
      this.high,
    );
    const bar = make(
      "div",
      { class: "bar" },
      ...pickers,
      prune,
      button(texts.collapse, () => this.toggle("collapsed")),
      button(texts.fold, () => this.toggle("folded")),
      button(texts.expandAll, () => this.change(ALL)),
      button(texts.selectShown, () => this.selectShown()),
      button(texts.clear, () => this.select([], false)),
    );
    const scroll = make("div", { class: "scroll" }, this.canvas);
    this.root.append(bar, this.legend, scroll, this.said, this.rows);
  }

  private listen(): void {
    const place = (event: MouseEvent) =>
      this.layout ? itemAt(this.layout, event.offsetX, event.offsetY) : -1;
    this.canvas.addEventListener("mousemove", (event) => this.hover(place(event)));
    this.canvas.addEventListener("mouseleave", () => this.hover(-1));
    this.canvas.addEventListener("click", (event) => {
      const at = place(event);
      if (at >= 0) this.pick(at, event.shiftKey || event.metaKey || event.ctrlKey);
    });
    this.canvas.addEventListener("dblclick", (event) => this.open(place(event)));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    for (const slider of [this.low, this.high])
      slider.addEventListener("input", () => this.pruneBySliders());
  }

  private async load(): Promise<void> {
    const packed = this.model.get("_data") as DataView;
    if (!packed || packed.byteLength === 0) return;
    this.tree = await decodeTree(packed, this.model.get("_facts") as Facts);
    this.readView();
    this.readMarked();
    this.root.dataset["rows"] = String(this.tree.size);
  }

  private readMarked(): void {
    if (!this.tree) return;
    this.selected = readMarks(this.model.get("_marked") as DataView, this.tree.size);
    this.draw();
  }

  /** The state that Python or another view of the same model set. */
  private readView(): void {
    if (!this.tree) return;
    const view = this.model.get("_view") as {
      collapsed?: string[][];
      folded?: string[][];
      prune?: TreeState["prune"];
    };
    const rows = (paths?: string[][]) => new Set(rowsOfPaths(this.tree as CallTree, paths ?? []));
    this.state = {
      collapsed: rows(view.collapsed),
      folded: rows(view.folded),
      prune: view.prune ?? null,
    };
    this.draw();
  }

  private change(state: TreeState): void {
    this.state = state;
    const tree = this.tree;
    if (!tree) return;
    const paths = (rows: ReadonlySet<number>) => [...rows].map((row) => pathOf(tree, row));
    const view = {
      collapsed: paths(state.collapsed),
      folded: paths(state.folded),
      prune: state.prune,
    };
    if (JSON.stringify(view).length <= LARGEST_MESSAGE) {
      this.model.set("_view", view);
      this.model.save_changes();
    }
    this.draw();
  }

  private toggle(what: "collapsed" | "folded"): void {
    const next = new Set(this.state[what]);
    for (const row of this.selected) if (!next.delete(row)) next.add(row);
    if (this.selected.size === 0) this.say(texts.selectFirst);
    this.change({ ...this.state, [what]: next });
  }

  /** A double click opens or closes a subtree; on a surrogate it brings back what that hides. */
  private open(at: number): void {
    const item = this.layout?.items[at];
    if (!item) return;
    const collapsed = new Set(this.state.collapsed);
    const folded = new Set(this.state.folded);
    if (item.surrogate) {
      collapsed.delete(item.row);
      for (const row of folded) if (this.tree?.parent[row] === item.row) folded.delete(row);
    } else if (!collapsed.delete(item.row)) collapsed.add(item.row);
    this.change({ ...this.state, collapsed, folded });
  }

  private pruneBySliders(): void {
    const [low, high] = [Number(this.low.value), Number(this.high.value)];
    const whole = low <= 0 && high >= BINS;
    const prune = whole
      ? null
      : {
          metric: this.metric("area"),
          low: low <= 0 ? 0 : this.edges[Math.min(low, high)],
          high: this.edges[Math.max(low, high)],
        };
    this.change({ ...this.state, prune });
  }

  private selectShown(): void {
    const { prune } = this.state;
    if (prune) {
      const value = [prune.low, prune.high];
      this.send({ field: prune.metric, op: "between", value });
      return;
    }
    this.select(
      this.layout?.items.filter((one) => !one.surrogate).map((one) => one.row) ?? [],
      false,
    );
  }

  private pick(at: number, more: boolean): void {
    const item = this.layout?.items[at];
    if (!item) return;
    if (item.surrogate) {
      this.open(at);
      return;
    }
    this.select([item.row], more);
  }

  private select(rows: readonly number[], more: boolean): void {
    const next = more ? new Set(this.selected) : new Set<number>();
    for (const row of rows) if (!(more && next.delete(row))) next.add(row);
    const paths = this.tree ? [...next].map((row) => pathOf(this.tree as CallTree, row)) : [];
    if (this.send(paths.length > 0 ? { paths } : null)) {
      this.selected = next;
      this.draw();
    }
  }

  /** Tell Python a predicate; it answers with the rows it selects. */
  private send(query: object | null): boolean {
    if (JSON.stringify(query).length > LARGEST_MESSAGE) {
      this.say(texts.tooManyPaths);
      return false;
    }
    this.model.set("_query", query);
    this.model.save_changes();
    return true;
  }

  private key(event: KeyboardEvent): void {
    const count = this.layout?.items.length ?? 0;
    const moves: Record<string, number> = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in moves && count > 0)
      this.hover((this.hovered + moves[event.key] + count) % count);
    else if (event.key === "Enter" || event.key === " ") this.pick(this.hovered, event.shiftKey);
    else if (event.key === "c") this.open(this.hovered);
    else if (event.key === "f") this.toggle("folded");
    else if (event.key === "Escape") this.select([], false);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private hover(at: number): void {
    if (at === this.hovered) return;
    this.hovered = at;
    this.paint();
    const [tree, item] = [this.tree, this.layout?.items[at]];
    if (!tree || !item) return;
    if (item.surrogate) {
      const mean = formatMetric("exclusive", item.means?.exclusive ?? NaN, tree.unit);
      this.say(texts.hides(item.hidden, nameOf(tree, item.row), mean));
      return;
    }
    const values = METRICS.map(
      (metric) =>
        `${texts.metrics[metric]} ${formatMetric(metric, valueOf(tree, metric, item.row), tree.unit)}`,
    );
    this.say(`${pathOf(tree, item.row).slice(-4).join(" › ")}: ${values.join(", ")}`);
  }

  private say(text: string): void {
    this.said.textContent = text;
  }

  private draw(): void {
    const tree = this.tree;
    if (!tree) return;
    const [colour, area] = [this.metric("colour"), this.metric("area")];
    this.pickers[0].set(colour);
    this.pickers[1].set(area);
    const { items, cut } = visibleItems(tree, this.state, MOST_ITEMS);
    this.layout = layoutBivariate(tree, items, colour, area);
    this.root.dataset["items"] = String(items.length);
    this.root.dataset["selected"] = String(this.selected.size);
    this.drawHistogram(tree, area);
    this.drawLegend(tree);
    this.paint();
    this.fillTable(tree);
    if (cut > 0) this.say(texts.cut(cut));
  }

  private ramp() {
    return continuousScheme(null, this.root.dataset["theme"] === "dark" ? "dark" : "light");
  }

  private drawHistogram(tree: CallTree, metric: Metric): void {
    const { edges, counts } = metricHistogram(tree, metric, BINS);
    this.edges = edges;
    const context = prepareCanvas(this.bars, 220, 40);
    const inside = [Number(this.low.value), Number(this.high.value) - 1] as const;
    if (context)
      drawBars(
        context,
        counts,
        { width: 220, height: 40 },
        {
          bar: tokenOf(this.root, "--accent"),
          faded: tokenOf(this.root, "--line-strong"),
          mark: tokenOf(this.root, "--selected"),
          text: tokenOf(this.root, "--muted"),
          font: "11px sans-serif",
        },
        { marked: null, range: inside, logarithmic: true },
      );
    const at = (slider: HTMLInputElement) =>
      formatMetric(metric, edges[Number(slider.value)] ?? NaN, tree.unit);
    this.low.setAttribute("aria-valuetext", at(this.low));
    this.high.setAttribute("aria-valuetext", at(this.high));
  }

  private drawLegend(tree: CallTree): void {
    if (!this.layout) return;
    const { colour, area } = this.layout;
    const stops = this.ramp().map(([r, g, b]) => `rgb(${r} ${g} ${b})`);
    const bar = make("i");
    bar.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
    const circles = [0.1, 1].flatMap((share) => {
      const mark = make("b");
      const size = `${Math.round(20 * Math.sqrt(share))}px`;
      [mark.style.width, mark.style.height] = [size, size];
      return [mark, formatMetric(area.metric, area.high * share, tree.unit)];
    });
    this.legend.replaceChildren(
      make(
        "span",
        {},
        `${texts.colour}: ${texts.metrics[colour.metric]} ${formatMetric(colour.metric, colour.low, tree.unit)}`,
        bar,
        formatMetric(colour.metric, colour.high, tree.unit),
      ),
      make("span", {}, `${texts.area}: ${texts.metrics[area.metric]}`, ...circles),
      make("span", {}, texts.surrogateLegend),
    );
  }

  private paint(): void {
    if (!this.tree || !this.layout) return;
    const context = prepareCanvas(this.canvas, this.layout.width, this.layout.height);
    if (!context) return;
    const token = (name: string) => tokenOf(this.root, name);
    drawBivariate(
      context,
      this.tree,
      this.layout,
      {
        ramp: this.ramp(),
        text: token("--text"),
        muted: token("--muted"),
        ground: token("--panel"),
        line: token("--line-strong"),
        selected: token("--selected"),
        font: `11.5px ${getComputedStyle(this.root).fontFamily}`,
      },
      { selected: this.selected, hovered: this.hovered, hides: texts.more },
    );
  }

  private fillTable(tree: CallTree): void {
    const head = make("tr", {}, make("th", { scope: "col" }, texts.callSite(this.selected.size)));
    for (const metric of METRICS) head.append(make("th", { scope: "col" }, texts.metrics[metric]));
    const body = [...this.selected].slice(0, MOST_TABLE_ROWS).map((row) => {
      const line = make("tr", {}, make("td", {}, pathOf(tree, row).join(" › ")));
      for (const metric of METRICS)
        line.append(make("td", {}, formatMetric(metric, valueOf(tree, metric, row), tree.unit)));
      return line;
    });
    this.rows.replaceChildren(
      make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)),
    );
  }
}

function range(label: string, value: number): HTMLInputElement {
  return make("input", {
    type: "range",
    min: "0",
    max: String(BINS),
    value: String(value),
    "aria-label": label,
  });
}
