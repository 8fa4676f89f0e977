/** From the cluster's state and a view to a picture on the stage: plan, lay out, paint, and again when it changes. */

import type { Attribute } from "@/base/attributes";
import type { Change } from "@/base/live/cluster";
import type { Theme } from "@/base/colour";
import { packed } from "@/base/colour";
import { valueAt } from "@/base/columns";
import { formatCount, formatValue } from "@/base/format";
import type { Predicate } from "@/base/predicate";
import { select } from "@/base/predicate";
import { slotColour } from "@/base/verdicts/slots";
import { isVerdictField } from "@/base/verdicts/verdicts";
import type { ClusterState, Units } from "@/base/units";
import { buildUnits } from "@/base/units";
import type { UnitLayout } from "@/charts/units/layout";
import type { ColourMemory, Legend } from "@/charts/units/drawing/paint";
import { paintUnits, towards } from "@/charts/units/drawing/paint";
import type { Plan } from "@/charts/units/plan";
import { planLayout } from "@/charts/units/plan";
import { countRules } from "@/charts/units/rules";
import type { Stage } from "@/charts/units/drawing/stage";
import type { View } from "@/charts/units/view";
import { attributesOf } from "@/charts/units/view";
import { Identities } from "@/features/overview/drawing/identities";
import type { Layouts } from "@/features/overview/drawing/layouts";
import { layerOf, selectionMarks } from "@/charts/units/targets";
import { overviewTexts as texts } from "@/texts";

export interface Drawn {
  legend: Legend;
  /** Units on the canvas, and units before the filter. */
  shown: number;
  total: number;
  layoutMs: number;
  units: Units;
  plan: Plan;
  layout: UnitLayout;
}

/** Two layouts of changing data are at least this far apart. */
const REARRANGE_MS = 2_500;

/** A window whose width over height changed by more than this has its picture packed anew. */
const MOST_BENT = 2;

const DIM: Record<Theme, number> = { dark: packed([24, 30, 37]), light: packed([234, 238, 242]) };

export class Engine {
  private view: View | null = null;
  private state: ClusterState | null = null;
  private theme: Theme = "dark";
  private selection: readonly Predicate[] = [];
  /** The rule of each place, and the one whose units are lit. */
  private slots: readonly (string | null)[] = [];
  private lit: string | null = null;
  private readonly memory: ColourMemory = new Map();
  private drawn: Drawn | null = null;
  private shape = "";
  private stretch: number | undefined;
  private readonly identities = new Identities();
  /** Width over height of the window when the picture was last packed. */
  private packedAspect = 0;
  private arrangedMs = -Infinity;
  /** Whether the picture waits to be arranged anew. */
  pending = false;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly stage: Stage,
    private readonly layouts: Layouts,
    private readonly attributes: ReadonlyMap<string, Attribute>,
    private readonly publish: (drawn: Drawn) => void,
  ) {}

  get current(): Drawn | null {
    return this.drawn;
  }

  setView(view: View): void {
    const shape = shapeOf(view);
    if (shape !== this.shape) this.stretch = undefined;
    this.shape = shape;
    this.view = view;
    this.arrange(false);
  }

  setTheme(theme: Theme): void {
    this.theme = theme;
    this.stage.setTheme(theme);
    this.repaint();
    this.markRules();
  }

  /** Which rules are marked on the groups, by place. */
  setRules(slots: readonly (string | null)[]): void {
    if (slots.join("\0") === this.slots.join("\0")) return;
    this.slots = slots;
    this.markRules();
  }

  /** Light the units that violate a rule: all others step back. */
  light(field: string | null): void {
    if (field === this.lit) return;
    this.lit = field;
    this.repaint();
  }

  setSelection(selection: readonly Predicate[]): void {
    this.selection = selection;
    this.repaint();
    this.markSelection();
  }

  /** The window changed its size: the picture is packed anew only where its shape fits no more. */
  resize(): void {
    const { width, height } = this.stage.size;
    const change = width / Math.max(1, height) / this.packedAspect;
    const bent = this.stage.isFitted && (change > MOST_BENT || change < 1 / MOST_BENT);
    if (bent || !this.drawn) this.repack();
    else this.arrange(true);
  }

  /** Pack everything anew, largest first. */
  repack(): void {
    this.stretch = undefined;
    this.arrange(false);
  }

  dispose(): void {
    clearTimeout(this.timer);
  }

  setState(state: ClusterState, change: Change): void {
    this.state = state;
    if (change.structure || this.layoutDependsOn(change.metrics)) this.arrangeSoon();
    else this.repaint();
    if (change.metrics.some(isVerdictField)) this.markRules();
    if (change.rows.length > 0) this.stage.flash(change.rows);
  }

  /** Where a predicate's units stand, as one rectangle of the world. */
  rectOf(predicate: Predicate): { x: number; y: number; w: number; h: number } | null {
    if (!this.drawn) return null;
    const { units, layout } = this.drawn;
    const chosen = select(predicate, units);
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    layout.tree.order.forEach((unit, i) => {
      if (!chosen[unit]) return;
      left = Math.min(left, layout.x[i]);
      top = Math.min(top, layout.y[i]);
      right = Math.max(right, layout.x[i] + 1);
      bottom = Math.max(bottom, layout.y[i] + 1);
    });
    return left <= right ? { x: left, y: top, w: right - left, h: bottom - top } : null;
  }

  private layoutDependsOn(metrics: readonly string[]): boolean {
    const { view } = this;
    if (!view) return false;
    const colourOnly = new Set([view.colour.by]);
    const needed = attributesOf({ ...view, colour: { ...view.colour, by: "state" } });
    // Waiting and running times grow by themselves; bins of them are looked at anew with every tick.
    return (
      needed.some(
        (name) => metrics.includes(name) || name === "waiting_s" || name === "running_s",
      ) && !needed.every((name) => colourOnly.has(name) && !metrics.includes(name))
    );
  }

  /** The eye needs time to follow: changes of the data are gathered, the first one is shown at once. */
  private arrangeSoon(): void {
    const wait = this.arrangedMs + REARRANGE_MS - performance.now();
    clearTimeout(this.timer);
    if (wait <= 0 || !this.drawn) {
      this.arrange(true);
      return;
    }
    this.repaint();
    this.pending = true;
    this.timer = setTimeout(() => this.arrange(true), wait);
  }

  private arrange(sameView: boolean): void {
    const { view, state, stage } = this;
    if (!view || !state || stage.size.width < 2) return;
    clearTimeout(this.timer);
    this.arrangedMs = performance.now();
    const units = buildUnits(state, view);
    const plan = planLayout(view, units, this.attributes, {
      width: stage.size.width - 36,
      height: stage.size.height - 36,
    });
    const ids = this.identities.of(plan.names, units);
    if (!sameView) this.packedAspect = stage.size.width / Math.max(1, stage.size.height);
    this.pending = true;
    this.layouts.ask({
      request: { ...plan.request, ids, ...(this.stretch && { stretch: this.stretch }) },
      anew: !sameView,
      done: ({ layout, ms }) => {
        this.pending = false;
        this.stretch = layout.stretch;
        this.show(view, units, plan, layout, ms, sameView);
      },
    });
  }

  private show(
    view: View,
    units: Units,
    plan: Plan,
    layout: UnitLayout,
    layoutMs: number,
    sameView: boolean,
  ): void {
    const paint = this.paint(view, units, plan.passing);
    this.drawn = {
      legend: paint.legend,
      shown: layout.tree.order.length,
      total: units.rows,
      layoutMs,
      units,
      plan,
      layout,
    };
    const waitingIds = units.column("workload");
    this.stage.show(
      {
        layout,
        identity: { gpu: units.gpu, waiting: (unit) => String(valueAt(waitingIds, unit) ?? "") },
        colours: paint.colours,
        nameOf: (group, layer) => this.groupName(group, layer),
        detailOf: (group) => formatCount(Math.round(layout.tree.weight[group] * 10) / 10),
        wordOf: (unit) => this.unitWord(unit),
      },
      sameView,
    );
    this.markSelection();
    this.markRules();
    this.publish(this.drawn);
  }

  private repaint(): void {
    const { view, state, drawn } = this;
    if (!view || !state || !drawn) return;
    const units = buildUnits(state, view);
    const paint = this.paint(view, units, select({ and: view.filter }, units));
    // Rows that came or went wait for their layout; until then the old picture keeps its colours, but the legend
    // counts the same tick as the numbers above it.
    if (units.rows !== drawn.units.rows) {
      this.drawn = { ...drawn, legend: paint.legend };
      this.publish(this.drawn);
      return;
    }
    this.drawn = { ...drawn, units, legend: paint.legend };
    this.stage.recolour(paint.colours);
    this.publish(this.drawn);
  }

  private paint(
    view: View,
    units: Units,
    passing: Uint8Array,
  ): { colours: Uint32Array; legend: Legend } {
    const attribute = this.attributes.get(view.colour.by) ?? fallback(view.colour.by);
    const paint = paintUnits(units, {
      spec: view.colour,
      attribute,
      theme: this.theme,
      memory: this.memory,
      passing,
    });
    const dim = DIM[this.theme];
    const { colours } = paint;
    if (view.others === "fade")
      for (let i = 0; i < units.rows; i++)
        if (!passing[i]) colours[i] = towards(colours[i], dim, 0.72);
    const lit = this.lit === null ? undefined : units.column(this.lit);
    // Codes 0 and 1 of a verdict are its violations.
    if (lit?.kind === "text")
      for (let i = 0; i < units.rows; i++)
        if (lit.codes[i] !== 0 && lit.codes[i] !== 1) colours[i] = towards(colours[i], dim, 0.7);
    if (this.selection.length > 0) {
      const chosen = select({ or: [...this.selection] }, units);
      for (let i = 0; i < units.rows; i++)
        if (!chosen[i]) colours[i] = towards(colours[i], dim, 0.5);
    }
    return paint;
  }

  private markSelection(): void {
    if (this.drawn)
      this.stage.setMarks({
        selected: selectionMarks(this.drawn.layout, this.drawn.units, this.selection),
      });
  }

  private markRules(): void {
    const { drawn, slots } = this;
    if (!drawn) return;
    const columns = slots.map((field) => {
      const column = field === null ? undefined : drawn.units.column(field);
      return column?.kind === "text" ? column : null;
    });
    const counts = countRules(drawn.layout, columns);
    this.stage.setRules(
      counts && { counts, colours: slots.map((_, slot) => slotColour(slot, this.theme)) },
    );
  }

  /** What a group is called; a workload by its name and id. */
  groupName(group: number, layer: number): string {
    const { drawn, view } = this;
    const code = drawn?.layout.tree.code[group] ?? -1;
    const by = view?.layers[layer - 1]?.by ?? "";
    if (!drawn || code < 0) return absentName(by);
    const name = drawn.plan.names[layer - 1][code] ?? "";
    if (by !== "workload") return name;
    const unit = drawn.layout.tree.order[drawn.layout.tree.firstUnit[group]];
    const called = valueAt(drawn.units.column("name"), unit);
    return called ? `${called} · ${name}` : name;
  }

  /** What a group or a unit is, in a sentence for those who do not see it. */
  describe(mark: { group: number } | { position: number }): string {
    const { drawn } = this;
    if (!drawn) return "";
    const { layout, units } = drawn;
    if ("group" in mark)
      return texts.groupSaid(
        this.groupName(mark.group, layerOf(layout, mark.group)),
        formatCount(Math.round(layout.tree.weight[mark.group])),
      );
    const unit = layout.tree.order[mark.position];
    const value = (name: string) => String(valueAt(units.column(name), unit) ?? "");
    return texts.unitSaid(value("gpu"), value("name") || value("workload"), this.unitWord(unit));
  }

  private unitWord(unit: number): string {
    const { drawn, view } = this;
    if (!drawn || !view) return "";
    const attribute = this.attributes.get(view.colour.by);
    const value = valueAt(drawn.units.column(view.colour.by), unit);
    if (typeof value === "number") return formatValue(value, attribute?.unit === "s" ? "s" : "");
    const index = valueAt(drawn.units.column("index"), unit);
    return index === null ? "" : String(index);
  }
}

/** What a view's shape depends on: another filter or colour keeps the shape. */
function shapeOf(view: View): string {
  return JSON.stringify([view.units, view.waiting_unit, view.layers, view.unit]);
}

function fallback(id: string): Attribute {
  return {
    id,
    label: id.replace("attributes.", ""),
    kind: "text",
    unit: "",
    description: "",
    min: null,
    max: null,
    metric: false,
  };
}

/** What units without a value are called, by the attribute they have none of. */
function absentName(by: string): string {
  if (["user", "project", "workload", "experiment", "name", "qos"].includes(by))
    return texts.noWorkload;
  if (["host", "rack", "gpu", "model"].includes(by)) return texts.notPlacedYet;
  return texts.noSuchValue(by.replace("attributes.", "").replaceAll("_", " "));
}
