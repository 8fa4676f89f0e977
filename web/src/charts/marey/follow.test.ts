import { describe, expect, it } from "vitest";
import { paintBands } from "@/charts/marey/bands";
import { barOf } from "@/charts/marey/cells";
import { fadePicture, findFollowed, largestBatch } from "@/charts/marey/follow";
import { makePalette } from "@/charts/marey/kinds";
import { makePicture } from "@/charts/marey/image/picture";
import { layoutRows } from "@/charts/marey/rows";
import { makeStep } from "@/charts/marey/synthetic";

describe("following a micro-batch", () => {
  const step = makeStep(4, 8, []);
  const palette = makePalette("light");
  const layout = layoutRows(step.rows, 20);
  const { startNs, endNs, kind, begin } = step.intervals;
  const batches = Int32Array.from(startNs, (_, i) => (i % 8 < 4 ? 0 : 1));

  const drawn = (followed: number) => {
    const picture = makePicture(800, 80, palette.ground);
    picture.pixels.fill(palette.kinds[1]);
    if (followed >= 0) fadePicture(picture, palette.ground);
    const chosen = findFollowed(batches, followed);
    paintBands(step.intervals, { picture, layout, scroll: 0, window: step, ...palette, chosen });
    return (i: number, row: number) => {
      const x = Math.floor((((startNs[i] + endNs[i]) / 2 - step.fromNs) / step.toNs) * 800);
      return picture.pixels[(barOf(layout, row, 0)[0] + 1) * 800 + x];
    };
  };

  it("keeps its colours on every row and takes those of the others", () => {
    const [all, one] = [drawn(-1), drawn(1)];
    for (let row = 0; row < 4; row++)
      for (let i = begin[row]; i < begin[row + 1]; i++)
        if (batches[i] === 1) expect(one(i, row)).toBe(all(i, row));
        else expect(one(i, row)).not.toBe(palette.kinds[kind[i]]);
  });

  it("knows which numbers there are", () => {
    expect(largestBatch(batches)).toBe(1);
    expect(largestBatch(new Int32Array())).toBe(-1);
    expect(findFollowed(batches, -1)).toBeNull();
  });
});
