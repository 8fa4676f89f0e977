/** The Marey view in a notebook: the page asks Python for what it shows. */

import type { Document } from "@/api/documents";
import { decodeCells } from "@/charts/marey/cells";
import type { DescribedBands } from "@/charts/marey/decode";
import { decodeBands, decodeSpans, rowsOf } from "@/charts/marey/decode";
import { handleKey } from "@/charts/marey/keys";
import { kindColour, KINDS, makePalette } from "@/charts/marey/kinds";
import type { MareyRow } from "@/charts/marey/ranks";
import { makeRows, printRanks } from "@/charts/marey/ranks";
import { CELLS_BELOW_PX } from "@/charts/marey/rows";
import type { MareySource, Wanted } from "@/charts/marey/stage";
import { MareyStage } from "@/charts/marey/stage";
import { formatNs } from "@/charts/marey/window";
import { button, choice, frame, make } from "@/features/notebook/elements";
import type { Model } from "@/features/notebook/model";
import { notebookTexts as words, tracesTexts as texts } from "@/texts";

type Step = Document<"TraceViewRows"> & { steps: number[]; order: string };

const HEIGHT = 360;
const GROUPED_FROM = 24;
const MOST_NAMED = 400;
const ORDERS = [
  ["stage", texts.orderStage],
  ["host", texts.orderHost],
  ["lateness", texts.orderLateness],
  ["cluster", texts.orderCluster],
] as const;
const KIND_WORDS = [
  texts.nothing,
  texts.compute,
  texts.collective,
  texts.send,
  texts.receive,
  texts.copy,
  texts.idlePeers,
  texts.idleHost,
  texts.idleInput,
  texts.idleOther,
];
const ROW_WORDS = {
  stage: texts.stageRow,
  host: (host: string) => host || texts.unknownHost,
  like: texts.likeRank,
  rank: texts.rankRow,
  missing: texts.missingRank,
  aside: () => "",
};

/** Draw the Marey view of a model into an element; the answer undoes it. */
export function renderMarey(model: Model, host: HTMLElement): () => void {
  const view = new MareyWidget(model, host);
  return () => view.close();
}

interface Answer {
  cells: ArrayBuffer;
  bands: ArrayBuffer;
  spans: ArrayBuffer;
}

class MareyWidget {
  private readonly root: HTMLElement;
  private readonly place = make("div", {
    class: "stage",
    tabindex: "0",
    role: "application",
  });
  private readonly said = make("div", { class: "said", role: "status", "aria-live": "polite" });
  private readonly bar = make("div", { class: "bar" });
  private readonly stage: MareyStage;
  private readonly observer: ResizeObserver;
  private readonly by = `${Math.random()}`;
  private turn = 0;
  private waiting: { turn: number; done: (answer: Answer) => void; fail: (e: Error) => void }[] =
    [];
  private open: ReadonlySet<string> = new Set();
  private dragged: { x: number; y: number; marks: boolean; moved: boolean } | null = null;
  private announced = "";
  private readonly listeners: [string, () => void][];

  constructor(
    private readonly model: Model,
    host: HTMLElement,
  ) {
    this.root = frame(host);
    const picture = make("canvas", { "aria-hidden": "true" });
    const marks = make("canvas", { "aria-hidden": "true" });
    this.place.append(picture, marks);
    this.place.style.height = `${HEIGHT}px`;
    this.root.append(this.bar, this.legend(), this.place, this.said);
    this.stage = new MareyStage(picture, marks, this.source(), this.palette(), texts.notTraced, {
      changed: () => this.changed(),
      failed: (error) => this.say(error instanceof Error ? error.message : String(error)),
    });
    this.listen();
    this.listeners = [
      ["change:_document", () => this.readStep()],
      // marimo says of each trait that it changed before it has taken the next of the same message.
      ["change:_answered", () => setTimeout(() => this.readAnswer())],
      ["change:_where", () => this.readWhere()],
      ["change:_window", () => this.readWindow()],
    ];
    for (const [event, action] of this.listeners) model.on(event, action);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.root);
    this.resize();
    this.readStep();
  }

  close(): void {
    this.observer.disconnect();
    this.stage.dispose();
    for (const [event, action] of this.listeners) this.model.off(event, action);
  }

  private get step(): Step {
    return this.model.get("_document") as Step;
  }

  private palette() {
    return makePalette(this.root.dataset["theme"] === "dark" ? "dark" : "light");
  }

  private resize(): void {
    const width = Math.max(320, this.root.clientWidth - 18);
    this.place.style.width = `${width}px`;
    const marks = this.place.querySelectorAll("canvas")[1];
    Object.assign(marks.style, { left: "0", top: "0", width: `${width}px`, height: `${HEIGHT}px` });
    this.stage.resize(width, HEIGHT);
  }

  private readStep(): void {
    const { rows, start_ns, end_ns, order, clock_error_us, step } = this.step;
    const grouped = rows.length >= GROUPED_FROM;
    const made = makeRows(
      rows,
      { order, grouped, open: this.open, clockErrorNs: (clock_error_us ?? 0) * 1e3 },
      ROW_WORDS,
    );
    this.place.setAttribute("aria-label", texts.mareyLabel([step], rows.length));
    this.root.dataset["rows"] = String(made.length);
    this.fillBar();
    this.stage.setRows(made, { fromNs: 0, toNs: Math.max(1, end_ns - start_ns) });
    this.readWindow();
    this.readWhere();
  }

  private readWindow(): void {
    const window = this.model.get("_window") as number[];
    const { limits } = this.stage;
    const [fromNs, toNs] = window.length === 2 ? window : [limits.fromNs, limits.toNs];
    const now = this.stage.window;
    if (now.fromNs !== fromNs || now.toNs !== toNs) this.stage.setWindow({ fromNs, toNs });
  }

  /** Go to the rank that is selected; its operator is lit once its bands are here. */
  private readWhere(): void {
    const where = this.model.get("_where") as string;
    const rank = /\brank=(\d+)/.exec(where)?.[1];
    const operator = /\boperator=(\d+)/.exec(where)?.[1];
    const rows = this.stage.layout.rows;
    const row = rank === undefined ? -1 : rows.findIndex((one) => one.rank === Number(rank));
    if (row >= 0 && row !== this.stage.focusRow) this.stage.focus(row);
    this.stage.select(operator === undefined ? -1 : Number(operator));
    this.root.dataset["selected"] = where;
  }

  private fillBar(): void {
    const { steps, step, order } = this.step;
    const ask = (asked: object) => this.ask({ ...asked });
    const stepPicker = choice(
      texts.step,
      steps.map((one) => [String(one), String(one)] as const),
      String(step),
      (value) => ask({ what: "step", step: Number(value) }),
    );
    const orderPicker = choice(texts.order, ORDERS, order, (value) =>
      ask({ what: "order", order: value }),
    );
    this.bar.replaceChildren(
      stepPicker.element,
      orderPicker.element,
      button(texts.zoomIn, () => this.stage.zoom(0.6)),
      button(texts.zoomOut, () => this.stage.zoom(1 / 0.6)),
      button(texts.wholeStep, () => this.stage.setWindow(this.stage.limits, true)),
      button(texts.back, () => this.stage.back()),
      button(words.clear, () => this.clear()),
    );
  }

  private legend(): HTMLElement {
    const theme = this.root.dataset["theme"] === "dark" ? "dark" : "light";
    const entries = KINDS.slice(1).map((kind, i) => {
      const mark = make("i", { class: "kind" });
      mark.style.background = kindColour(theme, kind);
      return make("span", {}, mark, KIND_WORDS[i + 1]);
    });
    return make("div", { class: "legend" }, ...entries);
  }

  private clear(): void {
    this.stage.select(-1);
    this.set("_where", "");
  }

  private set(name: string, value: unknown): void {
    this.model.set(name, value);
    this.model.save_changes();
  }

  private ask(asked: object): number {
    const turn = ++this.turn;
    this.set("_asked", { by: this.by, turn, ...asked });
    return turn;
  }

  private readAnswer(): void {
    const { by, turn, error } = this.model.get("_answered") as {
      by: string;
      turn: number;
      error: string;
    };
    if (by !== this.by) return;
    const answered = this.waiting.filter((one) => one.turn <= turn);
    this.waiting = this.waiting.filter((one) => one.turn > turn);
    for (const one of answered)
      if (one.turn < turn) one.fail(new Error(words.overtaken));
      else if (error) one.fail(new Error(error));
      else
        one.done({
          cells: this.bytes("_cells"),
          bands: this.bytes("_bands"),
          spans: this.bytes("_spans"),
        });
  }

  private bytes(name: string): ArrayBuffer {
    const view = this.model.get(name) as DataView;
    return new Uint8Array(view.buffer, view.byteOffset, view.byteLength).slice().buffer;
  }

  /** The three questions of the stage go to Python as one. */
  private source(): MareySource {
    let last: { wanted: Wanted; answer: Promise<Answer | null> } | null = null;
    const answerOf = (wanted: Wanted): Promise<Answer | null> => {
      if (last?.wanted !== wanted) last = { wanted, answer: this.request(wanted) };
      return last.answer;
    };
    const seen = (wanted: Wanted) =>
      rowsOf(wanted).filter(({ row }) => row.rank >= 0 && row.kind !== "missing");
    return {
      fetchCells: async (wanted) => {
        const answer = await answerOf(wanted);
        const cells = answer && decodeCells(answer.cells);
        if (!cells) return null;
        const listed = seen(wanted);
        const named = listed.length <= MOST_NAMED;
        const first = Math.min(...listed.map(({ row }) => row.position));
        const places = new Int32Array(wanted.rows.length).fill(-1);
        listed.forEach(({ row, at }, i) => (places[at] = named ? i : row.position - first));
        return { cells, places };
      },
      fetchBands: async (wanted) => {
        const answer = await answerOf(wanted);
        if (!answer || answer.bands.byteLength === 0) return null;
        return decodeBands(answer.bands, wanted, this.tall(wanted));
      },
      fetchSpans: async (wanted) => {
        const clusters = rowsOf(wanted).filter(({ row }) => row.kind === "cluster");
        const answer = await answerOf(wanted);
        if (!answer || answer.spans.byteLength === 0) return null;
        return decodeSpans(answer.spans, clusters);
      },
    };
  }

  private tall(wanted: Wanted) {
    return rowsOf(wanted).filter(
      ({ row, at }) =>
        row.rank >= 0 && row.kind !== "missing" && this.stage.layout.height[at] >= CELLS_BELOW_PX,
    );
  }

  private request(wanted: Wanted): Promise<Answer | null> {
    const listed = rowsOf(wanted).filter(({ row }) => row.rank >= 0 && row.kind !== "missing");
    if (listed.length === 0) return Promise.resolve(null);
    const named = listed.length <= MOST_NAMED;
    const positions = listed.map(({ row }) => row.position);
    const turn = this.ask({
      from: Math.floor(wanted.window.fromNs),
      to: Math.ceil(wanted.window.toNs),
      width: wanted.width,
      height: named ? listed.length : wanted.height,
      ranks: named ? printRanks(listed.map(({ row }) => row.rank)) : "",
      first: Math.min(...positions),
      last: Math.max(...positions) + 1,
      bands: printRanks([...new Set(this.tall(wanted).map(({ row }) => row.rank))]),
      spans: listed.some(({ row }) => row.kind === "cluster"),
      least: Math.floor(wanted.leastNs),
    });
    return new Promise((done, fail) => this.waiting.push({ turn, done, fail }));
  }

  /** Say what is looked at, and tell Python the window once it rests. */
  private changed(): void {
    const { stage } = this;
    if (stage.loading === 0 && stage.bands)
      this.root.dataset["bands"] = String(stage.bands.intervals.startNs.length);
    const window = [stage.window.fromNs, stage.window.toNs];
    const whole = stage.window.fromNs <= 0 && stage.window.toNs >= stage.limits.toNs;
    const next = JSON.stringify(whole ? [] : window);
    if (stage.loading === 0 && next !== JSON.stringify(this.model.get("_window")))
      this.set("_window", whole ? [] : window);
    const bands = stage.bands as DescribedBands | null;
    const at = stage.selectedInterval();
    const row = stage.layout.rows[stage.focusRow];
    const span = texts.windowSaid(
      formatNs(stage.window.fromNs),
      formatNs(stage.window.toNs),
      formatNs(stage.window.toNs - stage.window.fromNs),
    );
    this.say((row ? `${this.describe(row.label, bands, at)}. ` : "") + span);
  }

  private describe(label: string, bands: DescribedBands | null, at: number): string {
    if (!bands || at < 0) return label;
    const { startNs, endNs } = bands.intervals;
    const [start, duration] = [formatNs(startNs[at]), formatNs(endNs[at] - startNs[at])];
    return texts.intervalSaid(label, bands.nameOf(at), duration, start);
  }

  private say(text: string): void {
    if (text === this.announced) return;
    this.announced = text;
    this.said.textContent = text;
  }

  private choose(row: number, interval: number): void {
    const { stage } = this;
    const bands = stage.bands;
    stage.focus(row);
    if (interval < 0 || !bands) return;
    const operator = bands.intervals.operator[interval];
    stage.select(operator);
    const name = bands.nameOf(interval).replaceAll("\\", "\\\\").replaceAll('"', '\\"');
    const rank = stage.layout.rows[row].rank;
    this.set("_where", `rank=${rank} and operator=${operator} and name="${name}"`);
    this.root.dataset["selected"] = this.model.get("_where") as string;
  }

  private toggle(row: number): void {
    const key = (this.stage.layout.rows[row] as MareyRow | undefined)?.cluster;
    if (!key) return;
    const open = new Set(this.open);
    if (!open.delete(key)) open.add(key);
    this.open = open;
    this.readStep();
  }

  private listen(): void {
    const { place } = this;
    place.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const done = handleKey(event.key, event.shiftKey, {
        stage: this.stage,
        toggle: (row) => this.toggle(row),
        choose: (row, interval) => this.choose(row, interval),
        clear: () => this.clear(),
      });
      if (!done) return;
      event.preventDefault();
      event.stopPropagation();
    });
    place.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      place.setPointerCapture(event.pointerId);
      const [x, y] = this.at(event);
      this.dragged = { x, y, marks: event.shiftKey, moved: false };
    });
    place.addEventListener("pointermove", (event) => this.move(event));
    place.addEventListener("pointerup", (event) => this.drop(event));
    place.addEventListener("dblclick", () => this.stage.back());
    place.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  private at(event: MouseEvent): [number, number] {
    const box = this.place.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  private move(event: PointerEvent): void {
    const [x, y] = this.at(event);
    const { stage, dragged } = this;
    const hit = stage.hit(x, y);
    stage.cursor = hit && { timeNs: hit.timeNs, row: hit.row };
    if (dragged && (dragged.moved || Math.abs(x - dragged.x) + Math.abs(y - dragged.y) > 4)) {
      dragged.moved = true;
      if (dragged.marks) {
        const [a, b] = [stage.timeAt(dragged.x), stage.timeAt(x)];
        stage.marked = { fromNs: Math.min(a, b), toNs: Math.max(a, b) };
      } else {
        stage.pan((dragged.x - x) / stage.plot.width);
        stage.moveScroll(dragged.y - y);
        [dragged.x, dragged.y] = [x, y];
      }
    }
    stage.draw();
  }

  private drop(event: PointerEvent): void {
    const { stage, dragged } = this;
    this.dragged = null;
    if (!dragged) return;
    if (dragged.marks && stage.marked) stage.setWindow(stage.marked, true);
    stage.marked = null;
    if (dragged.moved) return;
    const [x, y] = this.at(event);
    const hit = stage.hit(x, y);
    if (!hit || stage.layout.rows[hit.row].rank < 0) return;
    if (x < stage.plot.gutter) this.toggle(hit.row);
    this.choose(hit.row, hit.interval);
  }

  /** The wheel zooms only with Ctrl or Alt: without, it scrolls the notebook. */
  private wheel(event: WheelEvent): void {
    if (!event.ctrlKey && !event.altKey) return;
    event.preventDefault();
    const [x] = this.at(event);
    const about = (x - this.stage.plot.gutter) / this.stage.plot.width;
    this.stage.zoom(Math.exp(event.deltaY / 400), Math.min(1, Math.max(0, about)));
  }
}
