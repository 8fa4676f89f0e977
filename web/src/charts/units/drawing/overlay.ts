/** What lies over the units: labels, words inside large units, and the marks of hovering and selecting. */

import type { Theme } from "@/base/colour";
import type { Frame } from "@/charts/units/camera";
import type { Label, LabelOptions, UprightLabel } from "@/charts/units/labels";
import { letterMeasure, placeLabels, placeUprightLabels } from "@/charts/units/labels";
import type { UnitLayout } from "@/charts/units/layout";
import { unitsWithin } from "@/charts/units/pick";
import type { PlacedRules, RuleCounts } from "@/charts/units/rules";
import { drawRules, placeRules } from "@/charts/units/rules";
import type { Camera } from "@/charts/units/drawing/scene";
import type { Picture } from "@/charts/units/drawing/stage";

/** A group or one unit, by its place in the layout. */
export type Mark = { group: number } | { position: number };

export interface OverlayMarks {
  hover: Mark | null;
  selected: readonly Mark[];
  /** The rectangle being drawn, in screen pixels: x, y, width, height. */
  lasso: readonly [number, number, number, number] | null;
}

export interface Overlay {
  picture: Picture;
  camera: Camera;
  frame: Frame;
  ratio: number;
  theme: Theme;
  marks: OverlayMarks;
  labelOpacity: number;
  /** Words inside units, and all of the labels, are only drawn when nothing moves. */
  words: boolean;
  /** Rules with a place, and the colour of each place. */
  rules: { counts: RuleCounts; colours: readonly string[] } | null;
}

export const FONT = '"Inter", "Segoe UI", system-ui, "Helvetica Neue", "DejaVu Sans", sans-serif';
const INK: Record<Theme, { text: string; muted: string; hover: string; selected: string }> = {
  dark: { text: "#dfe6ec", muted: "#93a1af", hover: "#ffffff", selected: "#ffd166" },
  light: { text: "#1b242d", muted: "#566371", hover: "#10161c", selected: "#b25d00" },
};
const WORDS_FROM_PX = 30;
const MOST_LABELS = 220;
// A frame in motion has two milliseconds; the rest of the labels come when it rests.
const MOST_MOVING_LABELS = 90;
const MOST_WORDS = 900;
const MOST_OUTLINES = 600;
const MOST_RULED = 600;
const MOST_MOVING_RULED = 160;
const RULE_GROUND: Record<Theme, string> = {
  dark: "rgb(14 18 23 / 78%)",
  light: "rgb(255 255 255 / 82%)",
};

let measured: ReturnType<typeof letterMeasure> | null = null;

function measureText(context: CanvasRenderingContext2D): ReturnType<typeof letterMeasure> {
  measured ??= letterMeasure((letter) => {
    context.font = `100px ${FONT}`;
    return context.measureText(letter).width / 100;
  });
  return measured;
}

/** What the overlay shows: marks of rules, for pointing at them, and the names that are written. */
export interface Placed {
  rules: PlacedRules | null;
  names: readonly WrittenName[];
}

/** A name on the canvas as it is written, and which group it names. */
export interface WrittenName {
  group: number;
  text: string;
}

/** Draw the overlay on its own canvas; says what stands where. */
export function drawOverlay(canvas: HTMLCanvasElement, overlay: Overlay): Placed {
  const context = canvas.getContext("2d");
  if (!context) return { rules: null, names: [] };
  context.setTransform(overlay.ratio, 0, 0, overlay.ratio, 0, 0);
  context.clearRect(0, 0, overlay.frame.width, overlay.frame.height);
  if (overlay.words && overlay.camera.scale >= WORDS_FROM_PX) drawWords(context, overlay);
  const { rules, picture, camera, frame, words, labelOpacity, theme } = overlay;
  const placed =
    rules && labelOpacity > 0
      ? placeRules(
          picture.layout,
          rules.counts,
          camera,
          frame,
          words ? MOST_RULED : MOST_MOVING_RULED,
        )
      : null;
  const names: WrittenName[] = [];
  if (labelOpacity > 0) {
    const options = labelOptions(context, overlay, placed);
    const labels = placeLabels(picture.layout, options);
    drawLabels(context, labels, overlay);
    const named = new Set(labels.map((label) => label.group));
    const upright = placeUprightLabels(picture.layout, options, named);
    drawUprightLabels(context, upright, overlay);
    for (const { group, text, detail } of labels)
      names.push({ group, text: detail ? `${text} ${detail}` : text });
    names.push(...upright);
  }
  if (rules && placed) {
    context.globalAlpha = labelOpacity;
    drawRules(context, placed, rules.colours, RULE_GROUND[theme]);
    context.globalAlpha = 1;
  }
  drawMarks(context, overlay);
  return { rules: placed, names };
}

function labelOptions(
  context: CanvasRenderingContext2D,
  { picture, camera, frame, words }: Overlay,
  placed: PlacedRules | null,
): LabelOptions {
  return {
    camera,
    ...frame,
    nameOf: picture.nameOf,
    detailOf: picture.detailOf,
    measure: measureText(context),
    most: words ? MOST_LABELS : MOST_MOVING_LABELS,
    ...(placed ? { leftOf: placed.leftOf } : {}),
  };
}

/** Names along bars; one that stands on its bar gets a ground, so that it can be read on any colour. */
function drawUprightLabels(
  context: CanvasRenderingContext2D,
  labels: readonly UprightLabel[],
  { theme, labelOpacity }: Overlay,
): void {
  context.textBaseline = "middle";
  context.globalAlpha = labelOpacity;
  for (const { text, x, y, size, over } of labels) {
    context.save();
    context.translate(x, y);
    context.rotate(-Math.PI / 2);
    context.font = `500 ${size}px ${FONT}`;
    if (over) {
      context.fillStyle = RULE_GROUND[theme];
      context.fillRect(-3, -size * 0.7, context.measureText(text).width + 6, size * 1.4);
    }
    context.fillStyle = INK[theme].text;
    context.fillText(text, 0, 0);
    context.restore();
  }
  context.globalAlpha = 1;
}

/** Labels of one layer share a font, and setting fonts is what costs: so layer by layer, names then counts. */
function drawLabels(
  context: CanvasRenderingContext2D,
  labels: readonly Label[],
  { theme, labelOpacity, picture }: Overlay,
): void {
  context.textBaseline = "middle";
  context.globalAlpha = labelOpacity;
  const { layers } = picture.layout.tree;
  for (let layer = 1; layer <= layers; layer++) {
    const ours = labels.filter((label) => label.layer === layer);
    if (ours.length === 0) continue;
    const size = Math.round(ours[0].size * 2) / 2;
    context.font = `${layer === 1 && layers > 1 ? 600 : 450} ${size}px ${FONT}`;
    context.fillStyle = INK[theme].text;
    for (const label of ours) context.fillText(label.text, label.x, label.y);
    context.font = `${size * 0.86}px ${FONT}`;
    context.fillStyle = INK[theme].muted;
    context.textAlign = "right";
    for (const label of ours)
      if (label.detail) context.fillText(label.detail, label.x + label.width, label.y);
    context.textAlign = "left";
  }
  context.globalAlpha = 1;
}

function drawWords(context: CanvasRenderingContext2D, { picture, camera, frame }: Overlay): void {
  const { layout } = picture;
  const visible = unitsWithin(
    layout,
    camera.x,
    camera.y,
    camera.x + frame.width / camera.scale,
    camera.y + frame.height / camera.scale,
  );
  context.textAlign = "center";
  context.textBaseline = "middle";
  const size = Math.min(13, camera.scale * 0.3);
  context.font = `${size}px ${FONT}`;
  for (const i of visible.slice(0, MOST_WORDS)) {
    const unit = layout.tree.order[i];
    const share = layout.share ? layout.share[i] : 1;
    if (share * camera.scale < WORDS_FROM_PX) continue;
    const colour = picture.colours[unit];
    const light =
      0.2126 * (colour & 255) + 0.7152 * ((colour >> 8) & 255) + 0.0722 * ((colour >> 16) & 255);
    context.fillStyle = light > 120 ? "#10161c" : "#f3f6f8";
    const inner = 1 - layout.gap;
    context.fillText(
      picture.wordOf(unit),
      (layout.x[i] + (share * inner) / 2 - camera.x) * camera.scale,
      (layout.y[i] + inner / 2 - camera.y) * camera.scale,
      share * inner * camera.scale - 2,
    );
  }
  context.textAlign = "left";
}

function drawMarks(
  context: CanvasRenderingContext2D,
  { picture, camera, theme, marks }: Overlay,
): void {
  const ink = INK[theme];
  for (const mark of marks.selected.slice(0, MOST_OUTLINES))
    outline(context, picture.layout, camera, mark, ink.selected, 2);
  if (marks.hover) outline(context, picture.layout, camera, marks.hover, ink.hover, 1.5);
  if (marks.lasso) {
    context.strokeStyle = ink.selected;
    context.lineWidth = 1;
    context.setLineDash([4, 3]);
    context.strokeRect(...(marks.lasso as [number, number, number, number]));
    context.setLineDash([]);
  }
}

function outline(
  context: CanvasRenderingContext2D,
  layout: UnitLayout,
  camera: Camera,
  mark: Mark,
  colour: string,
  width: number,
): void {
  const rect = markRect(layout, mark);
  if (!rect) return;
  context.strokeStyle = colour;
  context.lineWidth = width;
  const [x, y] = [(rect.x - camera.x) * camera.scale, (rect.y - camera.y) * camera.scale];
  context.strokeRect(
    x - width / 2,
    y - width / 2,
    rect.w * camera.scale + width,
    rect.h * camera.scale + width,
  );
}

/** The rectangle of a mark in cells. */
function markRect(
  layout: UnitLayout,
  mark: Mark,
): { x: number; y: number; w: number; h: number } | null {
  if ("group" in mark) {
    if (mark.group >= layout.tree.groups) return null;
    return {
      x: layout.groupX[mark.group],
      y: layout.groupY[mark.group],
      w: layout.groupW[mark.group],
      h: layout.groupH[mark.group],
    };
  }
  if (mark.position >= layout.x.length) return null;
  const side = 1 - layout.gap;
  const share = layout.share ? layout.share[mark.position] : 1;
  return { x: layout.x[mark.position], y: layout.y[mark.position], w: share * side, h: side };
}
