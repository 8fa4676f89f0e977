/** Draws the step of a trace report with the charts of the page; the data stands in the file itself. */

import type { Theme } from "@/base/colour";
import { decodeCells } from "@/charts/marey/cells";
import type { DescribedBands } from "@/charts/marey/decode";
import { decodeBands, rowsOf } from "@/charts/marey/decode";
import { handleKey } from "@/charts/marey/keys";
import { kindColour, KINDS, makePalette } from "@/charts/marey/kinds";
import type { MareyRow } from "@/charts/marey/ranks";
import type { RowKind } from "@/charts/marey/rows";
import type { MareySource } from "@/charts/marey/stage";
import { MareyStage } from "@/charts/marey/stage";
import { formatNs } from "@/charts/marey/window";
import { KIND_WORDS } from "@/features/traces/marey/kindWords";
import { tracesTexts as texts } from "@/texts";

interface DrawnRow {
  kind: "rank" | "cluster" | "missing";
  rank: number;
  stage: number;
  count: number;
  outlier: boolean;
}

interface DrawnStep {
  step: number;
  length_ns: number;
  clock_error_us: number;
  left_out: number;
  rows: DrawnRow[];
  bands: string;
  cells: string;
}

const ROW_PX = 26;
const FRAME_PX = 24;
const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = (): Theme => (dark.matches ? "dark" : "light");

function decodeBase64(text: string): ArrayBuffer {
  return Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0)).buffer;
}

/** The rows with a header before each stage, where there are several. */
function makeRows({ rows, clock_error_us }: DrawnStep): MareyRow[] {
  const traced = new Set(rows.filter((row) => row.stage >= 0).map((row) => row.stage));
  const make = (kind: RowKind, label: string, row: DrawnRow, rank: number): MareyRow => ({
    kind,
    label,
    rank,
    group: row.stage,
    count: row.count,
    outlier: rank >= 0 && row.outlier,
    clockErrorNs: clock_error_us * 1e3,
    cluster: "",
    stream: -1,
    position: -1,
    spanGroup: -1,
  });
  return rows.flatMap((row, i) => {
    const own = make(row.kind, labelOf(row), row, row.rank);
    const begins = traced.size > 1 && row.stage >= 0 && rows[i - 1]?.stage !== row.stage;
    return begins ? [make("stage", texts.stageRow(row.stage), row, -1), own] : [own];
  });
}

function labelOf({ kind, rank, count }: DrawnRow): string {
  return kind === "cluster" ? texts.likeRank(count, rank) : texts.rankRow(rank);
}

/** What the view asks for, answered from the file. */
function makeSource(step: DrawnStep): MareySource {
  const [bands, cells] = [decodeBase64(step.bands), decodeCells(decodeBase64(step.cells))];
  const known = step.rows.filter((row) => row.kind !== "missing").map((row) => row.rank);
  const placeOf = new Map(known.map((rank, place) => [rank, place]));
  return {
    fetchCells: ({ rows }) =>
      Promise.resolve(
        cells && { cells, places: Int32Array.from(rows, (row) => placeOf.get(row.rank) ?? -1) },
      ),
    fetchBands: (wanted) =>
      Promise.resolve(
        decodeBands(
          bands,
          wanted,
          rowsOf(wanted).filter(({ row }) => row.rank >= 0),
        ),
      ),
    fetchSpans: () => Promise.resolve(null),
  };
}

function make(tag: string, name: string, text = ""): HTMLElement {
  const element = document.createElement(tag);
  element.className = name;
  element.textContent = text;
  return element;
}

/** Say what the pointer or the keyboard is at. */
function describe(stage: MareyStage, step: DrawnStep, interval: number, row: number): string {
  const bands = stage.bands as DescribedBands | null;
  const label = stage.layout.rows[row]?.label ?? "";
  const clock = texts.clockSaid(formatNs(step.clock_error_us * 1e3));
  const left = step.left_out > 0 ? ` ${texts.leftOut(step.left_out)}` : "";
  if (!bands || interval < 0) return `${label ? `${label}. ` : ""}${clock}${left}`;
  const { startNs, endNs } = bands.intervals;
  const batch = bands.microBatch[interval];
  return [
    texts.intervalSaid(
      label,
      bands.nameOf(interval),
      formatNs(endNs[interval] - startNs[interval]),
      formatNs(startNs[interval]),
    ),
    bands.module(interval),
    batch >= 0 ? texts.microBatch(batch) : "",
  ]
    .filter(Boolean)
    .join(" · ");
}

function drawLegend(legend: HTMLElement): void {
  legend.replaceChildren(
    ...KINDS.slice(1).map((kind) => {
      const key = make("span", "key");
      const mark = document.createElement("i");
      mark.style.background = kindColour(theme(), kind);
      key.append(mark, KIND_WORDS[kind]);
      return key;
    }),
    make("span", "key", texts.greySlant),
  );
}

/** Pointer and keyboard: drag moves, Ctrl and the wheel zooms, a click selects an operator. */
function listen(place: HTMLElement, stage: MareyStage, say: (text?: number, row?: number) => void) {
  let from: { x: number; moved: boolean } | null = null;
  const at = (event: MouseEvent): [number, number] => {
    const box = place.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const choose = (row: number, interval: number) => {
    stage.focus(row);
    stage.select(interval >= 0 ? (stage.bands?.intervals.operator[interval] ?? -1) : -1);
    say(interval, row);
  };
  place.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = { stage, choose, toggle: () => undefined, clear: () => stage.select(-1) };
    if (!handleKey(event.key, event.shiftKey, actions)) return;
    event.preventDefault();
    say(stage.selectedInterval(), stage.focusRow);
  });
  place.addEventListener("pointerdown", (event) => {
    from = { x: at(event)[0], moved: false };
    place.setPointerCapture(event.pointerId);
  });
  place.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    const hit = stage.hit(x, y);
    stage.cursor = hit && { timeNs: hit.timeNs, row: hit.row };
    if (from && (from.moved || Math.abs(x - from.x) > 4)) {
      stage.pan((from.x - x) / stage.plot.width);
      from = { x, moved: true };
    }
    say(hit?.interval, hit?.row);
    stage.draw();
  });
  place.addEventListener("pointerup", (event) => {
    const hit = stage.hit(...at(event));
    if (from && !from.moved && hit && stage.layout.rows[hit.row].rank >= 0)
      choose(hit.row, hit.interval);
    from = null;
  });
  place.addEventListener("dblclick", () => stage.back());
  place.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.altKey) return;
      event.preventDefault();
      const about = (at(event)[0] - stage.plot.gutter) / stage.plot.width;
      stage.zoom(Math.exp(event.deltaY / 400), Math.min(1, Math.max(0, about)));
    },
    { passive: false },
  );
}

/** Draw the step into the page. */
function drawStep(figure: HTMLElement, step: DrawnStep): void {
  const [place, legend, said] = [make("div", "marey"), make("div", "legend"), make("p", "said")];
  const [picture, marks] = [document.createElement("canvas"), document.createElement("canvas")];
  place.append(picture, marks);
  place.tabIndex = 0;
  place.setAttribute("role", "application");
  place.setAttribute("aria-label", texts.mareyLabel([step.step], step.rows.length));
  said.setAttribute("role", "status");
  const rows = makeRows(step);
  const height = FRAME_PX + Math.max(4, rows.length) * (rows.length > 24 ? ROW_PX / 2 : ROW_PX);
  place.style.height = `${height}px`;
  figure.append(legend, place, said);
  const stage = new MareyStage(
    picture,
    marks,
    makeSource(step),
    makePalette(theme()),
    texts.notTraced,
    {
      changed: () => {
        if (!stage.isLoaded) return;
        figure.dataset["bands"] = String(stage.bands?.intervals.startNs.length ?? 0);
        document.documentElement.dataset["drawn"] = "1";
      },
      failed: (error) => (said.textContent = String(error)),
    },
  );
  const resize = () => {
    const width = place.clientWidth;
    Object.assign(marks.style, { width: `${width}px`, height: `${height}px` });
    stage.resize(width, height);
  };
  const say = (interval = -1, row = -1) =>
    (said.textContent = describe(stage, step, interval, row));
  new ResizeObserver(resize).observe(place);
  resize();
  stage.setRows(rows, { fromNs: 0, toNs: step.length_ns });
  const paint = () => {
    drawLegend(legend);
    stage.setPalette(makePalette(theme()));
  };
  dark.addEventListener("change", paint);
  paint();
  listen(place, stage, say);
  say();
}

const figure = document.querySelector<HTMLElement>("[data-picture=marey]");
const data = JSON.parse(document.getElementById("data")?.textContent ?? "null") as DrawnStep | null;
if (figure && data) drawStep(figure, data);
