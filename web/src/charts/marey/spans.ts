/** Time-spans: when an operator of a whole group begins and ends, at the earliest, on average and at the latest. */

import { barOf } from "@/charts/marey/cells";
import { CoverageLine } from "@/charts/marey/coverage";
import type { Picture } from "@/charts/marey/image/picture";
import type { RowLayout } from "@/charts/marey/rows";
import type { TimeWindow } from "@/charts/marey/window";
import { spanNs } from "@/charts/marey/window";

/** One entry per row and operator: the spread of its starts and ends over the ranks behind the row. */
export interface Spans {
  row: Int32Array;
  kind: Uint8Array;
  operator: Int32Array;
  startMinNs: Float64Array;
  startMeanNs: Float64Array;
  startMaxNs: Float64Array;
  endMinNs: Float64Array;
  endMeanNs: Float64Array;
  endMaxNs: Float64Array;
}

/** How strong each of the nested tints is: all ranks' time, the mean's, what all have in common. */
const TINTS = [0.22, 0.3, 0.48] as const;

/** Draw the nested tints: pale from the first start to the last end, strong where all ranks are at it. */
export function paintSpans(
  spans: Spans,
  paint: {
    picture: Picture;
    layout: RowLayout;
    scroll: number;
    window: TimeWindow;
    kinds: Uint32Array;
  },
): void {
  const { picture, window } = paint;
  const scale = picture.width / spanNs(window);
  const px = (time: number) => (time - window.fromNs) * scale;
  const line = new CoverageLine(picture.width);
  let i = 0;
  while (i < spans.row.length) {
    const row = spans.row[i];
    line.clear();
    for (; i < spans.row.length && spans.row[i] === row; i++) {
      const colour = paint.kinds[spans.kind[i]];
      line.add(px(spans.startMinNs[i]), px(spans.endMaxNs[i]), colour, TINTS[0]);
      line.add(px(spans.startMeanNs[i]), px(spans.endMeanNs[i]), colour, TINTS[1]);
      line.add(px(spans.startMaxNs[i]), px(spans.endMinNs[i]), colour, TINTS[2]);
    }
    const [top, bottom] = barOf(paint.layout, row, paint.scroll);
    for (let y = Math.max(0, top); y < Math.min(picture.height, bottom); y++)
      line.over(picture.pixels, y * picture.width);
  }
}
