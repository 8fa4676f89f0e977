/** The picture as a file: SVG with every unit, or the pixels on screen. */

import { cssColour } from "@/base/colour";
import type { Theme } from "@/base/colour";
import { letterMeasure, placeLabels } from "@/charts/units/labels";
import { FONT } from "@/charts/units/drawing/overlay";
import type { Picture } from "@/charts/units/drawing/stage";
import { overviewTexts as texts } from "@/texts";

const INK: Record<Theme, { page: string; text: string; boxes: string[] }> = {
  dark: {
    page: "rgb(14 18 23)",
    text: "#dfe6ec",
    boxes: ["", "rgb(23 30 38)", "rgb(32 41 51)", "rgb(41 52 64)", "rgb(49 62 76)"],
  },
  light: {
    page: "rgb(250 251 252)",
    text: "#1b242d",
    boxes: ["", "rgb(239 242 246)", "rgb(227 232 238)", "rgb(215 222 230)", "rgb(204 212 222)"],
  },
};

/** The whole picture, whatever the camera shows; units of one colour share one path. */
export function pictureSvg(picture: Picture, theme: Theme, width = 1600): string {
  const { layout } = picture;
  const scale = width / Math.max(1, layout.width);
  const height = Math.ceil(layout.height * scale);
  const ink = INK[theme];
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" ` +
      `viewBox="0 0 ${width} ${height}" font-family="sans-serif">`,
    `<rect width="${width}" height="${height}" fill="${ink.page}"/>`,
    ...boxes(picture, scale, ink.boxes),
    ...units(picture, scale),
    ...labels(picture, scale, width, height, ink.text),
    "</svg>",
  ];
  return parts.join("\n");
}

function boxes({ layout }: Picture, scale: number, shades: readonly string[]): string[] {
  const { tree, groupX, groupY, groupW, groupH } = layout;
  const found: string[] = [];
  for (let layer = 1; layer <= tree.layers; layer++) {
    let path = "";
    for (let g = tree.layerStart[layer]; g < tree.layerStart[layer + 1]; g++)
      path += rectPath(groupX[g] * scale, groupY[g] * scale, groupW[g] * scale, groupH[g] * scale);
    found.push(`<path fill="${shades[Math.min(layer, shades.length - 1)]}" d="${path}"/>`);
  }
  return found;
}

function units({ layout, colours }: Picture, scale: number): string[] {
  const paths = new Map<number, string[]>();
  const side = (1 - layout.gap) * scale;
  for (let i = 0; i < layout.x.length; i++) {
    const colour = colours[layout.tree.order[i]];
    const list = paths.get(colour) ?? [];
    paths.set(colour, list);
    list.push(
      rectPath(
        layout.x[i] * scale,
        layout.y[i] * scale,
        layout.share ? layout.share[i] * side : side,
        side,
      ),
    );
  }
  return [...paths].map(
    ([colour, list]) => `<path fill="${cssColour(colour)}" d="${list.join("")}"/>`,
  );
}

function rectPath(x: number, y: number, w: number, h: number): string {
  return `M${x.toFixed(2)} ${y.toFixed(2)}h${w.toFixed(2)}v${h.toFixed(2)}h${(-w).toFixed(2)}z`;
}

function labels(
  picture: Picture,
  scale: number,
  width: number,
  height: number,
  colour: string,
): string[] {
  const canvas = document.createElement("canvas").getContext("2d");
  const measure = letterMeasure((letter) => {
    if (!canvas) return 0.6;
    canvas.font = `100px ${FONT}`;
    return canvas.measureText(letter).width / 100;
  });
  const placed = placeLabels(picture.layout, {
    camera: { scale, x: 0, y: 0 },
    width,
    height,
    nameOf: picture.nameOf,
    detailOf: picture.detailOf,
    measure,
    most: 2000,
  });
  return placed.map((label) => {
    const [x, y, size] = [label.x, label.y, label.size].map((number) => number.toFixed(1));
    const place = `x="${x}" y="${y}" font-size="${size}" dominant-baseline="middle"`;
    return `<text ${place} fill="${colour}">${escaped(label.text)}</text>`;
  });
}

/** Names from the cluster are text, in a file too. */
function escaped(text: string): string {
  // eslint-disable-next-line no-control-regex -- control characters are not allowed in XML at all, not even escaped
  const clean = text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");
  return clean
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");
}

/** What the canvases show now, as a PNG. */
export async function canvasPng(canvases: readonly HTMLCanvasElement[]): Promise<Blob> {
  const [first] = canvases;
  const joined = document.createElement("canvas");
  joined.width = first.width;
  joined.height = first.height;
  const context = joined.getContext("2d");
  for (const canvas of canvases) context?.drawImage(canvas, 0, 0);
  return new Promise((resolve, reject) =>
    joined.toBlob(
      (blob) => (blob ? resolve(blob) : reject(new Error(texts.theBrowserCouldNotMakeThe))),
      "image/png",
    ),
  );
}

/** Hand a file to the reader. */
export function download(name: string, content: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
