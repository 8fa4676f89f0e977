/** The overview of a cluster in a notebook: one square per GPU. */

import type { Document } from "@/api/documents";
import { readMessage } from "@/api/wire";
import type { Attribute } from "@/base/attributes";
import { attributeList, lowIsNotable } from "@/base/attributes";
import { Cluster } from "@/base/live/cluster";
import type { Theme } from "@/base/colour";
import { packed } from "@/base/colour";
import { valueAt } from "@/base/columns";
import { formatCount, formatValue } from "@/base/format";
import type { Predicate } from "@/base/predicate";
import { select } from "@/base/predicate";
import type { ClusterState, Units } from "@/base/units";
import { buildUnits } from "@/base/units";
import type { UnitLayout } from "@/charts/units/layout";
import { layoutUnits } from "@/charts/units/layout";
import type { ColourMemory, Legend } from "@/charts/units/drawing/paint";
import { paintUnits, towards } from "@/charts/units/drawing/paint";
import type { Plan } from "@/charts/units/plan";
import { planLayout } from "@/charts/units/plan";
import { Stage } from "@/charts/units/drawing/stage";
import {
  groupPredicate,
  layerOf,
  selectionMarks,
  unitPredicate,
  unitsPredicate,
} from "@/charts/units/targets";
import type { View } from "@/charts/units/view";
import { newLayer, parseView } from "@/charts/units/view";
import { button, choice, frame, make } from "@/features/notebook/elements";
import type { Model } from "@/features/notebook/model";
import { notebookTexts as texts } from "@/texts";

const HEIGHT = 420;
const GROUPS = ["host", "partition", "rack", "workload", "user", "project", "state", "model"];
const DIM: Record<Theme, number> = { dark: packed([24, 30, 37]), light: packed([234, 238, 242]) };

/** Draw the cluster of a model into an element; the answer undoes it. */
export function renderCluster(model: Model, host: HTMLElement): () => void {
  const view = new ClusterWidget(model, host);
  return () => view.close();
}

interface Drawn {
  units: Units;
  plan: Plan;
  layout: UnitLayout;
  view: View;
}

class ClusterWidget {
  private readonly root: HTMLElement;
  private readonly place = make("div", { class: "stage" });
  private readonly overlay = make("canvas", { tabindex: "0", role: "application" });
  private readonly said = make("div", { class: "said", role: "status", "aria-live": "polite" });
  private readonly bar = make("div", { class: "bar" });
  private readonly legend = make("div", { class: "legend" });
  private readonly stage: Stage;
  private readonly observer: ResizeObserver;
  private readonly memory: ColourMemory = new Map();
  private attributes: ReadonlyMap<string, Attribute> = new Map();
  private state: ClusterState | null = null;
  private drawn: Drawn | null = null;
  private dragged: { x: number; y: number; lasso: boolean; moved: boolean } | null = null;
  private width = 0;
  private readonly listeners: [string, () => void][];

  constructor(
    private readonly model: Model,
    host: HTMLElement,
  ) {
    this.root = frame(host);
    const canvas = make("canvas", { "aria-hidden": "true" });
    this.overlay.setAttribute("aria-label", texts.clusterHelp);
    this.place.style.height = `${HEIGHT}px`;
    this.place.append(canvas, this.overlay);
    this.root.append(this.bar, this.legend, this.place, this.said);
    // A page has few WebGL contexts, and a notebook may hold many views.
    this.stage = new Stage(canvas, this.overlay, { reducedMotion: true, software: true });
    this.stage.setTheme(this.theme);
    this.listen();
    this.listeners = [
      ["change:_data", () => void this.load()],
      ["change:layers", () => this.arrange()],
      ["change:colour", () => this.arrange()],
      ["change:view", () => this.arrange()],
      ["change:_query", () => this.mark()],
    ];
    for (const [event, action] of this.listeners) model.on(event, action);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.root);
    this.resize();
    void this.load();
  }

  close(): void {
    this.observer.disconnect();
    this.stage.dispose();
    for (const [event, action] of this.listeners) this.model.off(event, action);
  }

  private get theme(): Theme {
    return this.root.dataset["theme"] === "dark" ? "dark" : "light";
  }

  private resize(): void {
    const width = Math.max(300, this.root.clientWidth - 18);
    if (width === this.width) return;
    this.width = width;
    this.place.style.width = `${width}px`;
    for (const canvas of this.place.querySelectorAll("canvas"))
      Object.assign(canvas.style, {
        left: "0",
        top: "0",
        width: `${width}px`,
        height: `${HEIGHT}px`,
      });
    this.stage.resize(width, HEIGHT, window.devicePixelRatio || 1);
    this.arrange();
  }

  private async load(): Promise<void> {
    const data = this.model.get("_data") as DataView;
    if (!data || data.byteLength === 0) return;
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength).slice();
    const cluster = new Cluster();
    cluster.apply(await readMessage(bytes.buffer));
    this.attributes = this.readAttributes();
    this.state = cluster.state();
    this.arrange();
  }

  private readAttributes(): ReadonlyMap<string, Attribute> {
    const metrics = (this.model.get("_metrics") as Document<"MetricDocument">[])
      .filter((one) => one.live !== null && one.entity === "gpu")
      .map((one) => ({ ...one, id: one.metric, min: one.minimum, max: one.maximum }));
    return new Map(attributeList(metrics).map((one) => [one.id, one]));
  }

  /** The view that Python asks for: a whole document, or layers and a colour. */
  private view(): View {
    const document = this.model.get("view") as object | null;
    if (document) return parseView(document);
    const by = this.model.get("colour") as string;
    const attribute = this.attributes.get(by);
    const layers = (this.model.get("layers") as string[]).map((name) => ({
      ...newLayer(name),
      sort: { by: "name" },
    }));
    const reverse = attribute !== undefined && lowIsNotable(attribute);
    return parseView({ version: 1, layers, colour: { by, reverse } });
  }

  private arrange(): void {
    if (!this.state) return;
    let view: View;
    try {
      view = this.view();
    } catch (error) {
      this.said.textContent = error instanceof Error ? error.message : String(error);
      return;
    }
    const units = buildUnits(this.state, view);
    const size = { width: this.width - 36, height: HEIGHT - 36 };
    const plan = planLayout(view, units, this.attributes, size);
    const layout = layoutUnits(plan.request);
    this.drawn = { units, plan, layout, view };
    const { colours, legend } = this.paint();
    const ids = units.column("workload");
    this.stage.show({
      layout,
      identity: { gpu: units.gpu, waiting: (unit) => String(valueAt(ids, unit) ?? "") },
      colours,
      nameOf: (group, layer) => this.groupName(group, layer),
      detailOf: (group) => formatCount(layout.tree.weight[group]),
      wordOf: () => "",
    });
    this.root.dataset["units"] = String(layout.tree.order.length);
    this.fillBar();
    this.fillLegend(legend);
    this.mark();
  }

  private groupName(group: number, layer: number): string {
    const { drawn } = this;
    const code = drawn?.layout.tree.code[group] ?? -1;
    return (code < 0 ? "" : drawn?.plan.names[layer - 1]?.[code]) || texts.noGroup;
  }

  private paint(): { colours: Uint32Array; legend: Legend } {
    const { units, plan, view } = this.drawn as Drawn;
    const attribute = this.attributes.get(view.colour.by) ?? {
      id: view.colour.by,
      label: view.colour.by,
      kind: "text" as const,
      unit: "",
      description: "",
      min: null,
      max: null,
      metric: false,
    };
    const paint = paintUnits(units, {
      spec: view.colour,
      attribute,
      theme: this.theme,
      memory: this.memory,
      passing: plan.passing,
    });
    const query = this.query;
    if (query) {
      const chosen = select(query, units);
      for (let i = 0; i < units.rows; i++)
        if (!chosen[i]) paint.colours[i] = towards(paint.colours[i], DIM[this.theme], 0.5);
    }
    return paint;
  }

  private get query(): Predicate | null {
    return this.model.get("_query") as Predicate | null;
  }

  /** Mark what is selected, and say how many GPUs that are. */
  private mark(): void {
    const { drawn, query } = this;
    if (!drawn) return;
    const { layout, units } = drawn;
    this.stage.recolour(this.paint().colours);
    this.stage.setMarks({ selected: selectionMarks(layout, units, query ? [query] : []) });
    const chosen = query ? select(query, units).reduce((sum, one) => sum + one, 0) : 0;
    this.root.dataset["selected"] = String(chosen);
    this.said.textContent = texts.clusterSaid(
      formatCount(layout.tree.order.length),
      formatCount(chosen),
    );
  }

  private choose(query: Predicate | null): void {
    this.model.set("_query", query);
    this.model.save_changes();
    this.mark();
  }

  private fillBar(): void {
    const label = (id: string) => this.attributes.get(id)?.label ?? id;
    const layers = this.model.get("layers") as string[];
    const set = (name: string, value: unknown) => {
      this.model.set(name, value);
      this.model.save_changes();
      this.arrange();
    };
    const known = GROUPS.includes(layers[0]) ? GROUPS : [layers[0], ...GROUPS];
    const colours = [
      "state",
      ...[...this.attributes.values()].filter((one) => one.metric).map((one) => one.id),
    ];
    const pickers = this.model.get("view")
      ? []
      : [
          choice(
            texts.groupBy,
            known.map((id) => [id, label(id)] as const),
            layers[0],
            (value) => set("layers", [value, ...layers.slice(1).filter((one) => one !== value)]),
          ),
          choice(
            texts.colour,
            colours.map((id) => [id, label(id)] as const),
            this.model.get("colour") as string,
            (value) => set("colour", value),
          ),
        ];
    this.bar.replaceChildren(
      ...pickers.map((one) => one.element),
      button(texts.fit, () => this.stage.fit()),
      button(texts.clear, () => this.choose(null)),
    );
  }

  private fillLegend(legend: Legend): void {
    const css = (colour: number) =>
      `rgb(${colour & 255} ${(colour >> 8) & 255} ${(colour >> 16) & 255})`;
    const entry = (colour: number, text: string) => {
      const mark = make("i", { class: "kind" });
      mark.style.background = css(colour);
      return make("span", {}, mark, text);
    };
    if (legend.kind === "text") {
      this.legend.replaceChildren(
        ...legend.entries.slice(0, 12).map((one) => entry(one.colour, `${one.word} ${one.count}`)),
      );
      return;
    }
    const { attribute, scale, colours } = legend;
    const bar = make("i");
    const stops = [0, 64, 128, 192, 255].map((at) =>
      css(colours[at] ?? colours[colours.length - 1]),
    );
    bar.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
    const [low, high] = scale.domain;
    this.legend.replaceChildren(
      make(
        "span",
        {},
        `${attribute.label} ${formatValue(low)}`,
        bar,
        formatValue(high, attribute.unit),
      ),
      ...legend.states.map((one) => entry(one.colour, `${one.word} ${one.count}`)),
    );
  }

  private listen(): void {
    const { overlay } = this;
    const at = (event: MouseEvent): [number, number] => {
      const box = overlay.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    overlay.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      overlay.setPointerCapture(event.pointerId);
      const [x, y] = at(event);
      this.dragged = { x, y, lasso: event.shiftKey, moved: false };
    });
    overlay.addEventListener("pointermove", (event) => this.move(...at(event)));
    overlay.addEventListener("pointerup", (event) => this.drop(...at(event)));
    overlay.addEventListener("keydown", (event) => this.key(event));
    overlay.addEventListener(
      "wheel",
      (event) => {
        // Without a key the wheel scrolls the notebook.
        if (!event.ctrlKey && !event.altKey) return;
        event.preventDefault();
        this.stage.zoomAt(Math.exp(-event.deltaY / 400), ...at(event));
      },
      { passive: false },
    );
  }

  private move(x: number, y: number): void {
    const { dragged, drawn } = this;
    if (dragged && (dragged.moved || Math.abs(x - dragged.x) + Math.abs(y - dragged.y) > 4)) {
      dragged.moved = true;
      if (dragged.lasso)
        this.stage.setMarks({
          lasso: [
            Math.min(dragged.x, x),
            Math.min(dragged.y, y),
            Math.abs(x - dragged.x),
            Math.abs(y - dragged.y),
          ],
        });
      else {
        this.stage.panBy(x - dragged.x, y - dragged.y);
        [dragged.x, dragged.y] = [x, y];
      }
      return;
    }
    const hit = this.stage.pickAt(x, y);
    if (!hit || !drawn) return;
    if (hit.position >= 0) this.sayUnit(drawn.layout.tree.order[hit.position]);
    else if (hit.group > 0)
      this.said.textContent = this.groupName(hit.group, layerOf(drawn.layout, hit.group));
  }

  private sayUnit(unit: number): void {
    const { units, view } = this.drawn as Drawn;
    const facts = ["gpu", "state", "workload", "user", view.colour.by]
      .map((name) => [name, valueAt(units.column(name), unit)] as const)
      .filter(([, value]) => value !== null)
      .map(([name, value]) =>
        typeof value === "number"
          ? `${this.attributes.get(name)?.label ?? name} ${formatValue(value, this.attributes.get(name)?.unit)}`
          : String(value),
      );
    this.said.textContent = [...new Set(facts)].join(", ");
  }

  /** A click selects a GPU or, on a label, its group; a drag with Shift what it goes round. */
  private drop(x: number, y: number): void {
    const { dragged, drawn } = this;
    this.dragged = null;
    if (!dragged || !drawn) return;
    if (dragged.moved) {
      if (!dragged.lasso) return;
      this.stage.setMarks({ lasso: null });
      const [left, right] = [Math.min(dragged.x, x), Math.max(dragged.x, x)];
      const [top, bottom] = [Math.min(dragged.y, y), Math.max(dragged.y, y)];
      this.choose(unitsPredicate(drawn.units, this.stage.unitsIn(left, top, right, bottom)));
      return;
    }
    const hit = this.stage.pickAt(x, y);
    if (!hit || (hit.position < 0 && hit.group === 0)) this.choose(null);
    else if (hit.position >= 0)
      this.choose(unitPredicate(drawn.units, drawn.layout.tree.order[hit.position]));
    else this.choose(groupPredicate(drawn.layout, drawn.plan, hit.group));
  }

  /** Arrow keys go through the groups, Enter selects the one that is said. */
  private key(event: KeyboardEvent): void {
    const { drawn } = this;
    if (!drawn) return;
    const groups = drawn.layout.tree.groups;
    const moves: Record<string, number> = {
      ArrowRight: 1,
      ArrowDown: 1,
      ArrowLeft: -1,
      ArrowUp: -1,
    };
    if (event.key in moves && groups > 1) {
      const step =
        this.focus < 1 && moves[event.key] < 0 ? groups - 1 : this.focus + moves[event.key];
      this.focus = ((step - 1 + (groups - 1)) % (groups - 1)) + 1;
      this.stage.setMarks({ hover: { group: this.focus } });
      this.said.textContent = this.groupName(this.focus, layerOf(drawn.layout, this.focus));
    } else if (event.key === "Enter" && this.focus > 0)
      this.choose(groupPredicate(drawn.layout, drawn.plan, this.focus));
    else if (event.key === "Escape") this.choose(null);
    else if (event.key === "+" || event.key === "-")
      this.stage.zoomAt(event.key === "+" ? 1.4 : 1 / 1.4);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private focus = 0;
}
