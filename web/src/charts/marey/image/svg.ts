/** The Marey view as an SVG document: the cells as an embedded picture, bars, bands and names as shapes and text. */

import { joins } from "@/charts/marey/bands";
import { barOf } from "@/charts/marey/cells";
import { findFollowed } from "@/charts/marey/follow";
import { findOperator } from "@/charts/marey/hit";
import type { Overlay } from "@/charts/marey/overlay";
import { AXIS_PX } from "@/charts/marey/overlay";
import { detailOf, visibleRows } from "@/charts/marey/rows";
import { formatNs, pixelOf, spanNs, timeTicks } from "@/charts/marey/window";
import { cssColour } from "@/base/colour";

/** Text as it may stand in a document: names from traces are anybody's. */
export function escapeXml(text: string): string {
  return text
    .slice(0, 200)
    .replace(/[^\t\n\r\x20-\ud7ff\ue000-\ufffd]/g, "")
    .replace(/&/g, "&amp;")
    .replace(/</g, "&lt;")
    .replace(/>/g, "&gt;")
    .replace(/"/g, "&quot;");
}

/** Build the document; `image` is the address of the picture of cells, or empty for shapes only. */
export function makeSvg(overlay: Overlay, title: string, image: string): string {
  const { gutter, width, height, palette } = overlay;
  const [whole, tall] = [gutter + width, height + AXIS_PX];
  const ground = cssColour(palette.ground);
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${whole}" height="${tall}" ` +
      `viewBox="0 0 ${whole} ${tall}" font-family="sans-serif" font-size="11">`,
    `<title>${escapeXml(title)}</title>`,
    `<rect width="${whole}" height="${tall}" fill="${ground}"/>`,
    ...axisParts(overlay),
    `<svg x="0" y="${AXIS_PX}" width="${gutter}" height="${height}">`,
    ...rowParts(overlay),
    `</svg><svg x="${gutter}" y="${AXIS_PX}" width="${width}" height="${height}">`,
  ];
  if (image)
    parts.push(`<image width="${width}" height="${height}" href="${cleanAddress(image)}"/>`);
  parts.push(...bandParts(overlay), ...stepParts(overlay), "</svg></svg>");
  return parts.join("\n");
}

const cleanAddress = (address: string): string => address.replace(/[^\w+/=:;,.-]/g, "");

function axisParts({ window, width, gutter, palette }: Overlay): string[] {
  const ticks = timeTicks(window, width);
  const resolution = ticks.length > 1 ? ticks[1] - ticks[0] : spanNs(window);
  return ticks.map((tick) => {
    const x = (gutter + pixelOf(tick, window, width)).toFixed(1);
    return `<text x="${x}" y="${AXIS_PX - 7}" fill="${palette.muted}">${formatNs(tick, resolution)}</text>`;
  });
}

function rowParts({ layout, scroll, height, palette }: Overlay): string[] {
  const [first, last] = visibleRows(layout, scroll, height);
  const parts: string[] = [];
  for (let row = first; row < last; row++) {
    const { label, kind } = layout.rows[row];
    if (kind !== "stage" && detailOf(layout.height[row]) !== "labels") continue;
    const y = (layout.top[row] + layout.height[row] / 2 - scroll + 4).toFixed(1);
    const weight = kind === "stage" ? ' font-weight="bold"' : "";
    parts.push(`<text x="8" y="${y}" fill="${palette.text}"${weight}>${escapeXml(label)}</text>`);
  }
  return parts;
}

function stepParts({ steps, window, width, height, palette }: Overlay): string[] {
  return steps.map(({ label, timeNs }) => {
    const x = pixelOf(timeNs, window, width);
    const line = `<path d="M${x.toFixed(1)} 0V${height}" stroke="${palette.text}" stroke-dasharray="4 3"/>`;
    const text = `<text x="${(x + 4).toFixed(1)}" y="12" fill="${palette.text}">${escapeXml(label)}</text>`;
    return line + text;
  });
}

const PALE = 0.2;

function bandParts(overlay: Overlay): string[] {
  const { intervals, layout, scroll, window, width, palette } = overlay;
  if (!intervals) return [];
  const parts: string[] = [];
  const chosen = findFollowed(overlay.microBatch, overlay.followed);
  const px = (time: number) => pixelOf(time, window, width).toFixed(1);
  for (let r = 0; r + 1 < intervals.begin.length; r++) {
    const row = intervals.firstRow + r;
    const [top, bottom, next] = barOf(layout, row, scroll);
    for (let i = intervals.begin[r]; i < intervals.begin[r + 1]; i++) {
      const colour = cssColour(palette.kinds[intervals.kind[i]]);
      const strength = chosen && !chosen[i] ? PALE : 1;
      const opacity = strength < 1 ? ` fill-opacity="${strength}"` : "";
      const length = ((intervals.endNs[i] - intervals.startNs[i]) / spanNs(window)) * width;
      parts.push(
        `<rect x="${px(intervals.startNs[i])}" y="${top}" width="${Math.max(0.3, length).toFixed(1)}" ` +
          `height="${bottom - top}" fill="${colour}"${opacity}><title>${escapeXml(overlay.nameOf(i))}</title></rect>`,
      );
      const other = joins(layout, row)
        ? findOperator(intervals, row + 1, intervals.operator[i])
        : -1;
      if (other < 0 || intervals.operator[i] < 0) continue;
      const corners = [
        `${px(intervals.startNs[i])},${bottom}`,
        `${px(intervals.endNs[i])},${bottom}`,
        `${px(intervals.endNs[other])},${next}`,
        `${px(intervals.startNs[other])},${next}`,
      ];
      parts.push(
        `<polygon points="${corners.join(" ")}" fill="${colour}" fill-opacity="${0.5 * strength}"/>`,
      );
    }
  }
  return parts;
}
