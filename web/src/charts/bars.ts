/** A histogram as bars, with a marked bin and a chosen range. */

export interface BarsStyle {
  bar: string;
  faded: string;
  mark: string;
  text: string;
  font: string;
}

/** Draw the counts from left to right; bars outside `range` are faded. */
export function drawBars(
  context: CanvasRenderingContext2D,
  counts: readonly number[],
  size: { width: number; height: number },
  style: BarsStyle,
  marks: { marked: number | null; range: readonly [number, number] | null; logarithmic?: boolean },
): void {
  const grow = marks.logarithmic ? (value: number) => Math.log1p(value) : (value: number) => value;
  const most = Math.max(1, ...counts.map(grow));
  const width = size.width / Math.max(1, counts.length);
  counts.forEach((count, bin) => {
    const height = count > 0 ? Math.max(1, (grow(count) / most) * (size.height - 4)) : 0;
    const inside = !marks.range || (bin >= marks.range[0] && bin <= marks.range[1]);
    context.fillStyle = bin === marks.marked ? style.mark : inside ? style.bar : style.faded;
    context.fillRect(bin * width, size.height - height, Math.max(1, width - 1), height);
    if (bin === marks.marked && count === 0)
      context.fillRect(bin * width, size.height - 2, Math.max(1, width - 1), 2);
  });
}
