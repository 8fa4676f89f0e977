/** The ensemble-Sankey in a notebook. */

import { prepareCanvas } from "@/charts/canvas";
import { continuousScheme } from "@/base/colour";
import { formatMetric } from "@/base/times";
import type { SankeyLayout } from "@/charts/sankey/layout";
import { layoutSankey, nodeAt } from "@/charts/sankey/layout";
import type { SankeyDocument } from "@/charts/sankey/figures";
import { figuresOf, flowsOf, nodesOf, profileLabel } from "@/charts/sankey/figures";
import { drawSankey } from "@/charts/sankey/draw";
import { button, choice, frame, make, tokenOf } from "@/features/notebook/elements";
import type { Model } from "@/features/notebook/model";
import { notebookTexts as texts } from "@/texts";

const HEIGHT = 420;
const LABELS = 170;

type Splits = Record<"reveal" | "split_by_caller" | "split_by_callee", string[]>;

/** Draw the Sankey of a model into an element; the answer undoes it. */
export function renderSankey(model: Model, host: HTMLElement): () => void {
  const view = new SankeyView(model, host);
  return () => view.close();
}

class SankeyView {
  private readonly root: HTMLElement;
  private readonly canvas = make("canvas", { tabindex: "0", role: "application" });
  private readonly said = make("div", { class: "said", role: "status", "aria-live": "polite" });
  private readonly bar = make("div", { class: "bar" });
  private readonly rows = make("div", { class: "rows" });
  private layout: SankeyLayout | null = null;
  private hovered = -1;
  private readonly observer: ResizeObserver;
  private readonly redraw = () => this.draw();

  constructor(
    private readonly model: Model,
    host: HTMLElement,
  ) {
    this.root = frame(host);
    this.canvas.setAttribute("aria-label", texts.sankeyHelp);
    this.root.append(this.bar, this.canvas, this.said, this.rows);
    const place = (event: MouseEvent) =>
      this.layout ? nodeAt(this.layout, event.offsetX, event.offsetY) : -1;
    this.canvas.addEventListener("mousemove", (event) => this.hover(place(event)));
    this.canvas.addEventListener("click", (event) => this.select(place(event)));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    for (const name of ["_document", "_selected", "target"])
      model.on(`change:${name}`, this.redraw);
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.root);
  }

  close(): void {
    this.observer.disconnect();
    for (const name of ["_document", "_selected", "target"])
      this.model.off(`change:${name}`, this.redraw);
  }

  private get document(): SankeyDocument {
    return this.model.get("_document") as SankeyDocument;
  }

  private get selected(): number {
    return this.document.nodes.findIndex((node) => node.name === this.model.get("_selected"));
  }

  private hover(at: number): void {
    if (at === this.hovered) return;
    this.hovered = at;
    this.paint();
    const node = this.document.nodes[at];
    if (!node) return;
    const time = (value: number) => formatMetric("inclusive", value, this.document.unit);
    this.said.textContent = texts.supernode(
      node.name,
      node.call_sites,
      time(node.inclusive.mean),
      time(node.inclusive.min),
      time(node.inclusive.max),
    );
  }

  private select(at: number): void {
    this.model.set("_selected", this.document.nodes[at]?.name ?? "");
    this.model.save_changes();
    this.draw();
  }

  private key(event: KeyboardEvent): void {
    const count = this.document.nodes.length;
    const moves: Record<string, number> = {
      ArrowDown: 1,
      ArrowRight: 1,
      ArrowUp: -1,
      ArrowLeft: -1,
    };
    if (event.key in moves && count > 0)
      this.hover((this.hovered + moves[event.key] + count) % count);
    else if (event.key === "Enter") this.select(this.hovered);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private split(how: keyof Splits): void {
    const name = this.model.get("_selected") as string;
    if (!name) {
      this.said.textContent = texts.selectFirst;
      return;
    }
    const now = this.model.get("_splits") as Splits;
    const on = now[how].includes(name);
    const next = {
      ...now,
      [how]: on ? now[how].filter((one) => one !== name) : [...now[how], name],
    };
    this.model.set("_splits", next);
    this.model.save_changes();
  }

  private draw(): void {
    const { nodes, flows } = this.document;
    const width = Math.max(320, this.root.clientWidth - 18);
    this.layout = layoutSankey(nodesOf(nodes), flowsOf(flows), {
      width,
      height: HEIGHT,
      labels: LABELS,
    });
    this.root.dataset["nodes"] = String(nodes.length);
    this.root.dataset["selected"] = String(this.model.get("_selected"));
    this.fillBar();
    this.fillTable();
    this.paint();
  }

  private fillBar(): void {
    const profiles = this.document.profiles.map(
      (one) => [String(one.profile), profileLabel(one)] as const,
    );
    const target = choice(
      texts.target,
      [["", texts.noTarget], ...profiles],
      String(this.model.get("target") ?? ""),
      (value) => {
        this.model.set("target", value === "" ? null : Number(value));
        this.model.save_changes();
      },
    );
    const splits = (["reveal", "split_by_caller", "split_by_callee"] as const).map((how) =>
      button(texts.splits[how], () => this.split(how)),
    );
    this.bar.replaceChildren(
      target.element,
      ...splits,
      button(texts.unsplit, () => {
        this.model.set("_splits", { reveal: [], split_by_caller: [], split_by_callee: [] });
        this.model.save_changes();
      }),
    );
  }

  private fillTable(): void {
    const time = (value: number) => formatMetric("inclusive", value, this.document.unit);
    const heads = [
      texts.supernodes,
      texts.metrics.inclusive,
      texts.metrics.exclusive,
      texts.metrics.imbalance,
    ];
    const head = make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)));
    const lines = this.document.nodes.map((node, at) => {
      const name = button(node.name, () => this.select(at));
      name.setAttribute("aria-pressed", String(at === this.selected));
      return make(
        "tr",
        {},
        make("td", {}, name),
        make("td", {}, time(node.inclusive.mean)),
        make("td", {}, time(node.exclusive.mean)),
        make("td", {}, formatMetric("imbalance", node.inclusive.imbalance, "")),
      );
    });
    this.rows.replaceChildren(
      make("table", {}, make("thead", {}, head), make("tbody", {}, ...lines)),
    );
  }

  private paint(): void {
    if (!this.layout) return;
    const context = prepareCanvas(this.canvas, this.layout.width, HEIGHT);
    if (!context) return;
    const token = (name: string) => tokenOf(this.root, name);
    const dark = this.root.dataset["theme"] === "dark";
    drawSankey(
      context,
      this.layout,
      figuresOf(this.document),
      {
        ramp: continuousScheme(null, dark ? "dark" : "light"),
        text: token("--text"),
        muted: token("--muted"),
        ground: token("--panel"),
        line: token("--line-strong"),
        flow: token("--accent"),
        target: token("--selected"),
        selected: token("--alert"),
        font: `11.5px ${getComputedStyle(this.root).fontFamily}`,
      },
      { selected: this.selected, hovered: this.hovered },
    );
  }
}
