import { describe, expect, it } from "vitest";
import { continuousScheme } from "@/base/colour";
import { makePicture } from "@/charts/marey/image/picture";
import { cellAt, chooseTicks, paintMatrix, rangeOf } from "@/charts/matrix";

describe("a matrix", () => {
  const matrix = { rows: 1024, columns: 3, values: new Float64Array(1024 * 3).fill(1) };
  matrix.values[500 * 3 + 1] = 9;
  const scheme = continuousScheme("marey", "dark");

  it("keeps the one cell that stands out when rows are thinner than pixels", () => {
    const picture = makePicture(30, 64, 0);
    paintMatrix(matrix, picture, scheme, rangeOf(matrix));
    const y = Math.floor((500 * 64) / 1024);
    expect(picture.pixels[y * 30 + 15]).not.toBe(picture.pixels[y * 30 + 2]);
    expect(picture.pixels[15]).toBe(picture.pixels[2]);
  });

  it("leaves out what is not there", () => {
    const holes = { rows: 1, columns: 2, values: Float64Array.of(NaN, 2) };
    const picture = makePicture(2, 1, 7);
    paintMatrix(holes, picture, scheme, rangeOf(holes));
    expect(picture.pixels[0]).toBe(7);
    expect(picture.pixels[1]).not.toBe(7);
    expect(rangeOf({ rows: 0, columns: 0, values: new Float64Array() })).toEqual([0, 0]);
  });

  it("knows which cell is at a point", () => {
    expect(cellAt(matrix, 0.5, 0.999)).toEqual({ row: 1022, column: 1 });
    expect(cellAt(matrix, 1, 0)).toBeNull();
  });

  it("names every row that there is room for, and never two over each other", () => {
    expect(chooseTicks(4, 48, 12)).toEqual([0, 1, 2, 3]);
    expect(chooseTicks(16, 96, 12)).toEqual([0, 2, 4, 6, 8, 10, 12, 14]);
    for (const count of [1, 3, 100, 1024, 16_384]) {
      const ticks = chooseTicks(count, 500, 12);
      expect(ticks[0]).toBe(0);
      expect(ticks.every((tick) => tick < count)).toBe(true);
      for (let i = 1; i < ticks.length; i++)
        expect(((ticks[i] - ticks[i - 1]) * 500) / count).toBeGreaterThanOrEqual(12);
    }
  });
});
