/**
 * The Marey view on two canvases: the picture below, names and marks above.
 *
 * It asks a source for the cells and intervals of what is seen and a bit around it, draws what it has in the meantime,
 * and knows nothing of pages: the web app, a report or a notebook hand in a source and are told what changes.
 */

import type { Intervals } from "@/charts/marey/bands";
import { paintBands } from "@/charts/marey/bands";
import type { Cells } from "@/charts/marey/cells";
import { paintCells } from "@/charts/marey/cells";
import type { Hit } from "@/charts/marey/hit";
import { fadePicture, findFollowed, largestBatch } from "@/charts/marey/follow";
import { findHit, findOperator } from "@/charts/marey/hit";
import type { Palette } from "@/charts/marey/kinds";
import type { MemoryLine, Overlay, StepMark } from "@/charts/marey/overlay";
import { AXIS_PX, drawOverlay } from "@/charts/marey/overlay";
import { imageOf, makePicture } from "@/charts/marey/image/picture";
import type { Row, RowLayout } from "@/charts/marey/rows";
import { CELLS_BELOW_PX, fitRowPx, layoutRows, scrollTo, visibleRows } from "@/charts/marey/rows";
import type { Spans } from "@/charts/marey/spans";
import { paintSpans } from "@/charts/marey/spans";
import { makeSvg } from "@/charts/marey/image/svg";
import type { TimeWindow } from "@/charts/marey/window";
import { clampWindow, panWindow, spanNs, zoomWindow } from "@/charts/marey/window";

/** What is asked of a source: rows of the picture from first to last (exclusive), in a window. */
export interface Wanted {
  rows: readonly Row[];
  first: number;
  last: number;
  window: TimeWindow;
  width: number;
  height: number;
  /** Intervals shorter than this need not come. */
  leastNs: number;
}

/** Intervals with what is told about them. */
export interface Bands {
  intervals: Intervals;
  microBatch: Int32Array;
  nameOf: (interval: number) => string;
}

/** Cells with the place of each row of the picture in them. */
export interface PlacedCells {
  cells: Cells;
  places: Int32Array;
}

export interface MareySource {
  fetchCells: (wanted: Wanted, signal: AbortSignal) => Promise<PlacedCells | null>;
  fetchBands: (wanted: Wanted, signal: AbortSignal) => Promise<Bands | null>;
  fetchSpans: (wanted: Wanted, signal: AbortSignal) => Promise<Spans | null>;
}

export interface StageEvents {
  /** The window, the rows or what is loaded changed. */
  changed: () => void;
  failed: (error: unknown) => void;
}

export const GUTTER_PX = 150;
const NARROW_GUTTER_PX = 84;
/** More rows than this are shown as cells only: their bands would be thinner than can be seen. */
const MOST_BAND_ROWS = 320;

export class MareyStage {
  window: TimeWindow = { fromNs: 0, toNs: 1 };
  limits: TimeWindow = { fromNs: 0, toNs: 1 };
  layout: RowLayout = layoutRows([], 1);
  scroll = 0;
  bands: Bands | null = null;
  operator = -1;
  /** The micro-batch that is followed, −1 for none; and the largest number seen so far. */
  followed = -1;
  largestBatch = -1;
  focusRow = -1;
  cursor: { timeNs: number; row: number } | null = null;
  marked: TimeWindow | null = null;
  loading = 0;
  readonly memory = new Map<number, MemoryLine>();
  /** Where steps begin, if several share the axis. */
  steps: readonly StepMark[] = [];
  /** Script time of the last frame. */
  frameMs = 0;
  private width = 1;
  private height = 1;
  private gutter = GUTTER_PX;
  private cells: PlacedCells | null = null;
  private spans: Spans | null = null;
  private rowPx: number | null = null;
  private frame = 0;
  private asked = 0;
  /** Whether what is seen now was answered. */
  private answered = false;
  private abort = new AbortController();
  private readonly past: TimeWindow[] = [];

  constructor(
    private readonly picture: HTMLCanvasElement,
    private readonly marks: HTMLCanvasElement,
    private readonly source: MareySource,
    private palette: Palette,
    private readonly missingLabel: string,
    private readonly events: StageEvents,
  ) {}

  /** Whether everything that was asked for has come and is drawn. */
  get isLoaded(): boolean {
    return this.answered && this.loading === 0 && this.frame === 0;
  }

  get plot(): { width: number; height: number; gutter: number } {
    return { width: this.width, height: this.height, gutter: this.gutter };
  }

  /** Show other rows, or the same anew. */
  setRows(rows: readonly Row[], limits: TimeWindow): void {
    const fresh = limits.toNs !== this.limits.toNs;
    const rank = this.layout.rows[this.focusRow]?.rank;
    this.limits = limits;
    if (fresh && spanNs(this.window) <= 1) this.window = limits;
    else this.window = clampWindow(this.window, limits);
    this.cells = this.bands = this.spans = null;
    this.memory.clear();
    this.layout = layoutRows(rows, this.rowPx ?? fitRowPx(rows, this.height));
    this.focusRow = rank === undefined ? -1 : rows.findIndex((row) => row.rank === rank);
    this.moveScroll(0);
    this.load();
  }

  setPalette(palette: Palette): void {
    this.palette = palette;
    this.draw();
  }

  resize(width: number, height: number): void {
    this.gutter = width < 640 ? NARROW_GUTTER_PX : GUTTER_PX;
    this.width = Math.max(50, Math.floor(width - this.gutter));
    this.height = Math.max(40, Math.floor(height - AXIS_PX));
    const ratio = devicePixelRatio || 1;
    this.marks.width = Math.round(width * ratio);
    this.marks.height = Math.round(height * ratio);
    this.picture.width = this.width;
    this.picture.height = this.height;
    Object.assign(this.picture.style, {
      left: `${this.gutter}px`,
      top: `${AXIS_PX}px`,
      width: `${this.width}px`,
      height: `${this.height}px`,
    });
    if (this.rowPx === null) this.setRowPx(null);
    else this.load();
  }

  /** Pixels per row; null lets all rows fit. */
  setRowPx(rowPx: number | null): void {
    this.rowPx = rowPx === null ? null : Math.min(80, Math.max(0.05, rowPx));
    const { rows } = this.layout;
    const middle = this.layout.total > 0 ? (this.scroll + this.height / 2) / this.layout.total : 0;
    this.layout = layoutRows(rows, this.rowPx ?? fitRowPx(rows, this.height));
    this.scroll = 0;
    this.moveScroll(middle * this.layout.total - this.height / 2);
    this.load();
  }

  scaleRows(factor: number): void {
    this.setRowPx(this.layout.rowPx * factor);
  }

  setWindow(window: TimeWindow, remember = false): void {
    if (remember) this.past.push(this.window);
    this.window = clampWindow(window, this.limits);
    this.load();
  }

  zoom(factor: number, about = 0.5): void {
    this.setWindow(zoomWindow(this.window, factor, about, this.limits));
  }

  pan(share: number): void {
    this.setWindow(panWindow(this.window, share, this.limits));
  }

  /** Move the window, as little as needed, so that a span of time is seen; one that is wider stays as it is. */
  reveal(span: TimeWindow): void {
    const { fromNs, toNs } = this.window;
    if (span.toNs > fromNs && span.fromNs < toNs) return;
    const length = spanNs(this.window);
    const middle = (span.fromNs + span.toNs) / 2;
    this.setWindow({ fromNs: middle - length / 2, toNs: middle + length / 2 });
  }

  /** Go back to the window before the last mark, or to all. */
  back(): void {
    this.setWindow(this.past.pop() ?? this.limits);
  }

  moveScroll(by: number): void {
    const most = Math.max(0, this.layout.total - this.height);
    const scroll = Math.min(most, Math.max(0, this.scroll + by));
    if (scroll === this.scroll) return;
    this.scroll = scroll;
    this.load();
  }

  focus(row: number): void {
    if (row < 0 || row >= this.layout.rows.length) return;
    this.focusRow = row;
    this.moveScroll(scrollTo(this.layout, row, this.scroll, this.height) - this.scroll);
    this.draw();
  }

  select(operator: number): void {
    this.operator = operator;
    this.draw();
  }

  /** Let one micro-batch stand out on all rows; −1 ends that. */
  follow(microBatch: number): void {
    if (this.followed === microBatch) return;
    this.followed = microBatch;
    this.draw();
  }

  /** The selected operator's interval on the row that has the focus, or −1. */
  selectedInterval(): number {
    if (!this.bands || this.operator < 0 || this.focusRow < 0) return -1;
    return findOperator(this.bands.intervals, this.focusRow, this.operator);
  }

  hit(x: number, y: number): Hit | null {
    const view = {
      layout: this.layout,
      scroll: this.scroll,
      window: this.window,
      width: this.width,
    };
    const point = { x: x - this.gutter, y: y - AXIS_PX };
    if (point.y < 0) return null;
    return findHit(point, view, this.bands?.intervals ?? null);
  }

  timeAt(x: number): number {
    return this.window.fromNs + ((x - this.gutter) / this.width) * spanNs(this.window);
  }

  /** Draw in the next frame. */
  draw(): void {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      const start = performance.now();
      this.paint();
      this.frameMs = performance.now() - start;
      this.events.changed();
    });
  }

  /** Whether the page that held it is gone. */
  isDisposed = false;

  dispose(): void {
    this.isDisposed = true;
    this.abort.abort();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.asked);
  }

  /** The whole view as one canvas, for an image file. */
  compose(): HTMLCanvasElement {
    const canvas = document.createElement("canvas");
    const ratio = this.marks.width / (this.gutter + this.width);
    canvas.width = this.marks.width;
    canvas.height = this.marks.height;
    const context = canvas.getContext("2d");
    if (!context) return canvas;
    context.fillStyle = this.palette.panel;
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(
      this.picture,
      this.gutter * ratio,
      AXIS_PX * ratio,
      this.width * ratio,
      this.height * ratio,
    );
    context.drawImage(this.marks, 0, 0);
    return canvas;
  }

  svg(title: string): string {
    return makeSvg(this.overlay(), title, this.picture.toDataURL("image/png"));
  }

  private paint(): void {
    const { width, height, palette, layout, scroll, window } = this;
    const picture = makePicture(width, height, palette.ground);
    const paint = { picture, layout, scroll, window, palette };
    const seen = visibleRows(layout, scroll, height);
    if (this.cells) paintCells(this.cells.cells, this.cells.places, paint, seen);
    if (this.spans) paintSpans(this.spans, { ...paint, kinds: palette.kinds });
    if (this.followed >= 0) fadePicture(picture, palette.ground);
    const chosen = findFollowed(this.bands?.microBatch ?? null, this.followed);
    if (this.bands) paintBands(this.bands.intervals, { ...paint, ...palette, chosen });
    this.picture.getContext("2d")?.putImageData(imageOf(picture), 0, 0);
    const context = this.marks.getContext("2d");
    if (!context) return;
    const ratio = this.marks.width / (this.gutter + width);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    drawOverlay(context, this.overlay());
  }

  private overlay(): Overlay {
    return {
      layout: this.layout,
      scroll: this.scroll,
      window: this.window,
      width: this.width,
      height: this.height,
      gutter: this.gutter,
      palette: this.palette,
      intervals: this.bands?.intervals ?? null,
      nameOf: this.bands?.nameOf ?? (() => ""),
      microBatch: this.bands?.microBatch ?? null,
      operator: this.operator,
      followed: this.followed,
      focusRow: this.focusRow,
      cursor: this.cursor,
      marked: this.marked,
      memory: this.memory,
      missingLabel: this.missingLabel,
      steps: this.steps,
    };
  }

  /** Draw what there is, and soon ask for what is seen now. */
  private load(): void {
    this.draw();
    this.answered = false;
    clearTimeout(this.asked);
    this.asked = window.setTimeout(() => void this.ask(), 40);
  }

  private async ask(): Promise<void> {
    this.abort.abort();
    const { signal } = (this.abort = new AbortController());
    const [first, last] = visibleRows(this.layout, this.scroll, this.height);
    if (last <= first) return;
    const around = zoomWindow(this.window, 1.6, 0.5, this.limits);
    const stretch = spanNs(around) / spanNs(this.window);
    const wanted: Wanted = {
      rows: this.layout.rows,
      first,
      last,
      window: around,
      width: Math.round(this.width * stretch),
      height: this.height,
      leastNs: Math.floor((spanNs(this.window) / this.width) * 0.5),
    };
    this.loading++;
    try {
      await Promise.all([
        this.source.fetchCells(wanted, signal).then((cells) => this.take(signal, { cells })),
        this.source
          .fetchSpans(wanted, signal)
          .then((spans) => this.take(signal, { spans }))
          .catch(() => undefined),
        this.bandsWanted(first, last)
          ? this.source.fetchBands(wanted, signal).then((bands) => this.take(signal, { bands }))
          : Promise.resolve(this.take(signal, { bands: null })),
      ]);
    } catch (error) {
      if (!signal.aborted) this.events.failed(error);
    } finally {
      this.loading--;
      this.answered ||= !signal.aborted;
      if (!signal.aborted) this.events.changed();
    }
  }

  private bandsWanted(first: number, last: number): boolean {
    let count = 0;
    for (let row = first; row < last; row++) if (this.layout.height[row] >= CELLS_BELOW_PX) count++;
    return count > 0 && count <= MOST_BAND_ROWS && last - first <= 20_000;
  }

  private take(
    signal: AbortSignal,
    news: { cells?: PlacedCells | null; bands?: Bands | null; spans?: Spans | null },
  ): void {
    if (signal.aborted) return;
    if (news.cells !== undefined) this.cells = news.cells;
    if (news.bands !== undefined) this.bands = news.bands;
    if (news.bands)
      this.largestBatch = Math.max(this.largestBatch, largestBatch(news.bands.microBatch));
    if (news.spans !== undefined) this.spans = news.spans;
    this.draw();
  }
}
