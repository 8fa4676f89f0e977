import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { joins, paintBands } from "@/charts/marey/bands";
import { barOf, decodeCells, lineOf, mixed, paintCells } from "@/charts/marey/cells";
import { findHit, findOperator } from "@/charts/marey/hit";
import { isAbove, KIND_CODES, makePalette } from "@/charts/marey/kinds";
import type { Picture } from "@/charts/marey/image/picture";
import { makePicture } from "@/charts/marey/image/picture";
import { detailOf, fitRowPx, layoutRows, rowAt, visibleRows } from "@/charts/marey/rows";
import { computeSsim } from "@/charts/marey/image/ssim";
import { countCells, cutIntervals, makeStep } from "@/charts/marey/synthetic";
import type { SyntheticStep } from "@/charts/marey/synthetic";
import type { TimeWindow } from "@/charts/marey/window";
import { clampWindow, formatNs, spanNs, timeTicks, zoomWindow } from "@/charts/marey/window";

const palette = makePalette("dark");
const WIDTH = 800;
const SAMPLES = 8;

/** The picture as the page draws it: cells below, bands of what is wide enough above. */
function drawPicture(step: SyntheticStep, window: TimeWindow, height: number): Picture {
  const layout = layoutRows(step.rows, height / step.ranks);
  const picture = makePicture(WIDTH, height, palette.ground);
  const ranks = step.rows.map((row) => row.rank);
  const paint = { picture, layout, scroll: 0, window, palette };
  const places = Int32Array.from(ranks);
  paintCells(countCells(step, ranks, window, WIDTH), places, paint, [0, step.ranks]);
  if (layout.rowPx >= 3) {
    const intervals = cutIntervals(step.intervals, window, (spanNs(window) / WIDTH) * 0.5);
    paintBands(intervals, { ...paint, ...palette });
  }
  return picture;
}

/** The same drawn naively: every interval and every quadrilateral, sampled eight times per pixel and averaged. */
function drawNaively(step: SyntheticStep, window: TimeWindow, height: number): Picture {
  const layout = layoutRows(step.rows, height / step.ranks);
  const picture = makePicture(WIDTH, height, palette.ground);
  const { begin, startNs, endNs, kind } = step.intervals;
  const scale = (WIDTH * SAMPLES) / spanNs(window);
  const at = (time: number) => (time - window.fromNs) * scale;
  for (let row = 0; row < step.ranks; row++) {
    const [top, bar, next] = barOf(layout, row, 0);
    for (let y = top; y < Math.min(height, next); y++) {
      const samples = new Uint32Array(WIDTH * SAMPLES).fill(palette.ground);
      const inGap = y >= bar;
      if (inGap && row + 1 >= step.ranks) continue;
      const share = inGap ? (y + 0.5 - bar) / (next - bar) : 0;
      for (const above of [false, true])
        for (let i = begin[row]; i < begin[row + 1]; i++) {
          if (isAbove(kind[i]) !== above) continue;
          const j = inGap ? i + step.operators : i;
          const from = at(startNs[i]) * (1 - share) + at(startNs[j]) * share;
          const to = at(endNs[i]) * (1 - share) + at(endNs[j]) * share;
          const colour = palette.kinds[kind[i]];
          const drawn = inGap ? mixed(colour, palette.ground, 127.5) : colour;
          samples.fill(drawn, Math.max(0, Math.round(from)), Math.max(0, Math.round(to)));
        }
      for (let x = 0; x < WIDTH; x++) picture.pixels[y * WIDTH + x] = average(samples, x * SAMPLES);
    }
  }
  return picture;
}

function average(samples: Uint32Array, from: number): number {
  let [r, g, b] = [0, 0, 0];
  for (let i = from; i < from + SAMPLES; i++) {
    r += samples[i] & 255;
    g += (samples[i] >> 8) & 255;
    b += (samples[i] >> 16) & 255;
  }
  return (0xff000000 | ((b / SAMPLES) << 16) | ((g / SAMPLES) << 8) | (r / SAMPLES)) >>> 0;
}

describe("the picture", () => {
  const step = makeStep(64, 240, [17]);

  it.each([
    ["the whole step", 0, 1],
    ["a tenth", 0.4, 0.5],
    ["a hundredth", 0.5, 0.51],
  ])("is like a naive drawing of all intervals at 64 ranks: %s", (_, from, to) => {
    const window = { fromNs: step.toNs * from, toNs: step.toNs * to };
    const similarity = computeSsim(drawPicture(step, window, 800), drawNaively(step, window, 800));
    expect(similarity).toBeGreaterThanOrEqual(0.99);
  });

  it("is far from the same a little later: the measure can tell", () => {
    const window = { fromNs: step.toNs * 0.4, toNs: step.toNs * 0.5 };
    const beside = { fromNs: step.toNs * 0.41, toNs: step.toNs * 0.51 };
    const similarity = computeSsim(drawPicture(step, window, 800), drawPicture(step, beside, 800));
    expect(similarity).toBeLessThan(0.98);
  });
});

describe("one slow rank among 1,024", () => {
  const slow = 389;
  const step = makeStep(1024, 64, [slow]);
  const calm = makeStep(1024, 64, []);

  it.each([1, 0.1, 0.02])("is seen at a window of %f of the step", (share) => {
    // Around the moment at which the slow rank comes to a collective.
    const middle = step.intervals.startNs[slow * step.operators + 31];
    const half = (step.toNs * share) / 2;
    const window = { fromNs: middle - half, toNs: middle + half };
    const layout = layoutRows(step.rows, 600 / 1024);
    const height = Math.ceil(layout.total);
    const picture = makePicture(WIDTH, height, palette.ground);
    const ranks = step.rows.map((row) => row.rank);
    const cells = countCells(step, ranks, window, WIDTH);
    const paint = { picture, layout, scroll: 0, window, palette };
    paintCells(cells, Int32Array.from(ranks), paint, [0, 1024]);
    const line = (rank: number) => {
      const y = Math.round(layout.top[rank]) + 1;
      return picture.pixels.slice(y * WIDTH, (y + 1) * WIDTH);
    };
    expect(layout.height[slow]).toBeGreaterThanOrEqual(3);
    const [here, beside] = [line(slow), line(slow - 40)];
    expect(here.filter((pixel, x) => pixel !== beside[x]).length).toBeGreaterThan(10);
  });

  it("is three pixels tall and drawn unlike its neighbours at any height of rows and any window", () => {
    const starts = Array.from(
      step.intervals.startNs.slice(slow * step.operators, (slow + 1) * step.operators),
    );
    const collectives = starts.filter((_, i) => step.intervals.kind[i] === KIND_CODES.collective);
    fc.assert(
      fc.property(
        fc.double({ min: 0.02, max: 6, noNaN: true }),
        fc.double({ min: 0, max: 2, noNaN: true }),
        fc.nat(collectives.length - 1),
        (rowPx, zoom, which) => {
          const layout = layoutRows(step.rows, rowPx);
          expect(layout.height[slow]).toBeGreaterThanOrEqual(3);
          const half = step.toNs / 10 ** zoom / 2;
          // Around the moment at which it comes to a collective where the others are already.
          const window = { fromNs: collectives[which] - half, toNs: collectives[which] + half };
          // A rank two lines of pixels above, however many share a line.
          const other = slow - Math.ceil(2 / rowPx) - 1;
          const near = [other, slow];
          const picture = makePicture(WIDTH, Math.ceil(layout.total), palette.ground);
          const paint = { picture, layout, scroll: 0, window, palette };
          const places = new Int32Array(1024).fill(-1);
          near.forEach((rank, i) => (places[rank] = i));
          paintCells(countCells(step, near, window, WIDTH), places, paint, [other, slow + 1]);
          const line = (y: number) => picture.pixels.slice(y * WIDTH, (y + 1) * WIDTH);
          const here = line(Math.round(layout.top[slow]) + 1);
          const beside = line(Math.round(layout.top[other]));
          expect(here.some((pixel, x) => pixel !== beside[x])).toBe(true);
        },
      ),
      { numRuns: 60 },
    );
  });

  it("is not seen where there is none", () => {
    const window = { fromNs: 0, toNs: calm.toNs };
    const picture = drawPicture(calm, window, 600);
    for (let x = 0; x < WIDTH; x++)
      expect(picture.pixels[100 * WIDTH + x]).toBe(picture.pixels[500 * WIDTH + x]);
  });

  it("is kept when lines of a thousand ranks are merged by the server", () => {
    const cells = {
      ...{ fromNs: 0, toNs: 100, lines: 2, bins: 4, ranks: 1024 },
      bounds: Uint32Array.of(0, 512, 1024),
      kinds: new Uint8Array(8).fill((KIND_CODES.compute << 4) | 15),
      deviations: new Uint8Array([0, 0, 0, 0, 0, 255, 0, 0]),
    };
    const rows = step.rows.map((row) => ({ ...row, outlier: false }));
    const layout = layoutRows(rows, 2 / 1024);
    const picture = makePicture(4, 2, palette.ground);
    const paint = { picture, layout, scroll: 0, window: { fromNs: 0, toNs: 100 }, palette };
    paintCells(
      cells,
      Int32Array.from(rows, (row) => row.rank),
      paint,
      [0, 1024],
    );
    expect(picture.pixels[4 + 1]).not.toBe(picture.pixels[4 + 2]);
    expect(picture.pixels[1]).toBe(picture.pixels[2]);
  });
});

describe("bands", () => {
  const rows = makeStep(2, 8, []).rows;
  const layout = layoutRows(rows, 20);
  const draw = (shiftNs: number, clockErrorNs: number) => {
    const picture = makePicture(100, 40, palette.ground);
    const off = rows.map((row) => ({ ...row, clockErrorNs }));
    paintBands(
      {
        ...{ begin: Int32Array.of(0, 1, 2), firstRow: 0, operators: 1 },
        startNs: Float64Array.of(20, 20 + shiftNs),
        endNs: Float64Array.of(40, 40 + shiftNs),
        kind: Uint8Array.of(1, 1),
        operator: Int32Array.of(0, 0),
      },
      {
        picture,
        layout: { ...layout, rows: off },
        scroll: 0,
        window: { fromNs: 0, toNs: 100 },
        ...palette,
      },
    );
    return (x: number, y: number) => picture.pixels[y * 100 + x];
  };

  it("stand upright where ranks are in step", () => {
    const at = draw(0, 0);
    expect(at(30, 5)).toBe(palette.kinds[KIND_CODES.compute]);
    expect(at(30, 15)).toBe(at(30, 19));
    expect(at(30, 15)).not.toBe(palette.ground);
    expect(at(45, 15)).toBe(palette.ground);
  });

  it("slant where one is late", () => {
    const at = draw(30, 0);
    expect(at(22, 12)).not.toBe(palette.ground);
    expect(at(22, 19)).toBe(palette.ground);
    expect(at(60, 19)).not.toBe(palette.ground);
  });

  it("are grey where the slant is within the error of the clocks", () => {
    const [sure, unsure] = [draw(30, 5), draw(30, 20)];
    expect(sure(40, 16)).not.toBe(unsure(40, 16));
    const channels = unsure(40, 16);
    expect(Math.abs((channels & 255) - ((channels >> 8) & 255))).toBeLessThan(12);
  });

  it("never join two stages", () => {
    const apart = layoutRows([rows[0], { ...rows[1], group: 1 }], 20);
    expect(joins(layout, 0)).toBe(true);
    expect(joins(apart, 0)).toBe(false);
  });
});

describe("rows", () => {
  const rows = makeStep(1024, 8, [5]).rows;

  it("show cells below three pixels, bands above, labels from twelve", () => {
    expect([2.9, 3, 11.9, 12].map(detailOf)).toEqual(["cells", "bands", "bands", "labels"]);
  });

  it("are found by their height", () => {
    const layout = layoutRows(rows, fitRowPx(rows, 700));
    expect(layout.total).toBeLessThan(705);
    for (const row of [0, 4, 5, 6, 700, 1023])
      expect(rowAt(layout, layout.top[row] + layout.height[row] / 2)).toBe(row);
    expect(rowAt(layout, -1)).toBe(-1);
    expect(rowAt(layout, layout.total)).toBe(-1);
    expect(visibleRows(layout, 0, 10_000)).toEqual([0, 1024]);
  });

  it("find what the pointer is at, and the same operator on the next row", () => {
    const step = makeStep(4, 16, []);
    const layout = layoutRows(step.rows, 20);
    const view = { layout, scroll: 0, window: step, width: 1000 };
    const middle = (step.intervals.startNs[16 + 3] + step.intervals.endNs[16 + 3]) / 2;
    const x = (middle / step.toNs) * 1000;
    const hit = findHit({ x, y: 25 }, view, step.intervals);
    expect(hit).toMatchObject({ row: 1, interval: 19 });
    expect(findOperator(step.intervals, 2, 3)).toBe(35);
    expect(findOperator(step.intervals, 9, 3)).toBe(-1);
    expect(findHit({ x: 0, y: 500 }, view, step.intervals)).toBeNull();
  });
});

describe("the server's cells", () => {
  const bytes = (lines: number, bins: number) => {
    const buffer = new ArrayBuffer(40 + 4 * (lines + 1) + 2 * lines * bins);
    const view = new DataView(buffer);
    new Uint8Array(buffer).set([0x4d, 0x43, 0x45, 0x4c]);
    view.setUint16(4, 1, true);
    view.setUint16(6, 2, true);
    view.setUint32(8, lines, true);
    view.setUint32(12, bins, true);
    view.setBigInt64(24, 5_000n, true);
    view.setUint32(32, 10, true);
    for (let line = 0; line <= lines; line++)
      view.setUint32(40 + 4 * line, Math.floor((line * 10) / lines), true);
    return buffer;
  };

  it("are read from their bytes, and refused when they are something else or cut", () => {
    expect(decodeCells(bytes(3, 4))).toMatchObject({ lines: 3, bins: 4, toNs: 5000, ranks: 10 });
    expect(decodeCells(bytes(3, 4).slice(0, 70))).toBeNull();
    expect(decodeCells(new ArrayBuffer(80))).toBeNull();
  });

  it("cover every rank once", () => {
    const cells = decodeCells(bytes(3, 4));
    const lines = Array.from({ length: 10 }, (_, place) => cells && lineOf(cells, place));
    expect(lines).toEqual([0, 0, 0, 1, 1, 1, 2, 2, 2, 2]);
  });
});

describe("windows of time", () => {
  const limits = { fromNs: 0, toNs: 1_000_000 };

  it("stay within what there is", () => {
    expect(clampWindow({ fromNs: -500_000, toNs: 0 }, limits)).toEqual({
      fromNs: 0,
      toNs: 500_000,
    });
    expect(zoomWindow(limits, 4, 0.5, limits)).toEqual(limits);
    expect(zoomWindow(limits, 1e-9, 0.5, limits)).toEqual({ fromNs: 500_000, toNs: 501_000 });
  });

  it("have ticks at round times, told in units that suit them", () => {
    expect(timeTicks({ fromNs: 0, toNs: 1000 }, 550)).toEqual([0, 200, 400, 600, 800, 1000]);
    expect([12, 1500, 2_345_678, 3.2e9].map((ns) => formatNs(ns))).toEqual([
      "12\u2009ns",
      "1.5\u2009µs",
      "2.35\u2009ms",
      "3.2\u2009s",
    ]);
  });
});
