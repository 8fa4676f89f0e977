/** Labels of groups: one per label band, shortened to fit, so that no two ever overlap. */

import type { UnitLayout } from "@/charts/units/layout";
import type { Camera } from "@/charts/units/drawing/scene";

export interface Label {
  group: number;
  layer: number;
  text: string;
  /** The count behind the name, where there is room for it. */
  detail: string;
  x: number;
  y: number;
  width: number;
  size: number;
}

export interface LabelOptions {
  camera: Camera;
  width: number;
  height: number;
  nameOf: (group: number, layer: number) => string;
  detailOf: (group: number) => string;
  /** Width of a text at a font size in pixels. */
  measure: (text: string, size: number) => number;
  /** How many at most; the largest groups are named first. */
  most: number;
  /** Where something else begins in a group's band, in pixels of the screen. */
  leftOf?: ReadonlyMap<number, number>;
}

const SMALLEST_PX = 9;
const LARGEST_PX = 22;
/** Between a name and its count, in sizes of the text. */
const GAP = 0.55;
/** Height of a band over the size of its text. */
const LINE = 1.3;

/** The labels that have room on this screen, outer layers first. */
export function placeLabels(layout: UnitLayout, options: LabelOptions): Label[] {
  const labels: Label[] = [];
  const { tree, bands } = layout;
  const { camera, width, height, most } = options;
  const right = camera.x + width / camera.scale;
  const bottom = camera.y + height / camera.scale;
  // Thousands of hosts need not be visited while none of their labels can be read.
  let deepest = tree.layers;
  while (deepest > 0 && (bands[deepest] * camera.scale) / LINE < SMALLEST_PX) deepest--;
  if (deepest > 0) visit(0, 0);
  return labels;

  function visit(group: number, layer: number): void {
    const first = tree.firstChild[group];
    for (let g = first; g < first + tree.childCount[group] && labels.length < most; g++) {
      if (layout.groupX[g] > right || layout.groupX[g] + layout.groupW[g] < camera.x) continue;
      if (layout.groupY[g] > bottom || layout.groupY[g] + layout.groupH[g] < camera.y) continue;
      const label = placeLabel(layout, g, layer + 1, options);
      if (label) labels.push(label);
      if (layer + 1 < deepest && layout.groupW[g] * camera.scale > 24) visit(g, layer + 1);
    }
  }
}

function placeLabel(
  layout: UnitLayout,
  group: number,
  layer: number,
  options: LabelOptions,
): Label | null {
  const { camera } = options;
  const band = layout.bands[layer] * camera.scale;
  const size = Math.min(LARGEST_PX, band / LINE);
  if (size < SMALLEST_PX) return null;
  const padding = layout.paddings[layer] * camera.scale;
  // A label stays on screen while any of its group is: it slides along its own band.
  const left = Math.max((layout.groupX[group] - camera.x) * camera.scale + padding + 1, 4);
  const end = Math.min(
    (layout.groupX[group] + layout.groupW[group] - camera.x) * camera.scale - padding,
    options.leftOf?.get(group) ?? Infinity,
  );
  const room = end - left;
  if (room < size * 1.4) return null;
  // The outermost labels are set in a heavier weight, which is wider.
  const heavier = layer === 1 ? 1.08 : 1;
  const text = shorten(
    options.nameOf(group, layer),
    room,
    (part) => options.measure(part, size) * heavier,
  );
  if (text === "") return null;
  // A bar whose name would be cut has it upright, whole.
  const isBar = layout.bars && layer === layout.tree.layers;
  if (isBar && (room < LEAST_ACROSS_PX || text !== options.nameOf(group, layer))) return null;
  const used = options.measure(text, size) * heavier;
  const count = options.detailOf(group);
  const detail = count && `· ${count}`;
  const detailWidth = options.measure(detail, size * 0.86);
  const fits = used + size * GAP + detailWidth < room;
  if (isBar && !fits) return null;
  return {
    group,
    layer,
    text,
    detail: fits ? detail : "",
    x: left,
    y: (layout.groupY[group] - camera.y) * camera.scale + padding + band / 2,
    width: fits ? used + size * GAP + detailWidth : used,
    size,
  };
}

/** Bars narrower than this have all of their names upright, so that they read alike. */
const LEAST_ACROSS_PX = 80;

/** A label that runs up a bar, from its foot or from where the bar ends. */
export interface UprightLabel {
  group: number;
  text: string;
  /** The middle of the bar, and where the text begins, in pixels of the screen. */
  x: number;
  y: number;
  size: number;
  /** Whether it stands on the bar itself, for want of room above. */
  over: boolean;
}

const UPRIGHT_PX = 11;
/** A name cut shorter than this says nothing. */
const LEAST_LETTERS = 8;

/** Names and counts of bars that are too narrow for a label across. */
export function placeUprightLabels(
  layout: UnitLayout,
  options: LabelOptions,
  across: ReadonlySet<number>,
): UprightLabel[] {
  if (!layout.bars) return [];
  const { tree } = layout;
  const labels: UprightLabel[] = [];
  for (let g = tree.layerStart[tree.layers]; g < tree.groups && labels.length < options.most; g++) {
    if (across.has(g)) continue;
    const label = placeUpright(layout, g, options);
    if (label) labels.push(label);
  }
  return labels;
}

function placeUpright(
  layout: UnitLayout,
  group: number,
  { camera, width, nameOf, detailOf, measure, leftOf }: LabelOptions,
): UprightLabel | null {
  const { tree, groupX, groupY, groupW, groupH } = layout;
  if (groupW[group] * camera.scale < UPRIGHT_PX) return null;
  const x = (groupX[group] + groupW[group] / 2 - camera.x) * camera.scale;
  if (x < 0 || x > width) return null;
  let end = Infinity;
  const first = tree.firstUnit[group];
  for (let i = first; i < first + tree.unitCount[group]; i++) end = Math.min(end, layout.y[i]);
  const [top, bottom] = [groupY[group], groupY[group] + groupH[group]];
  // Marks of rules stand at the top of a bar's room.
  const marks = leftOf?.has(group) ? layout.bands[tree.layers] * camera.scale : 0;
  const above = (end - top) * camera.scale - 8 - marks;
  const whole = (bottom - top) * camera.scale - 8;
  const full = `${nameOf(group, tree.layers)} · ${detailOf(group)}`;
  const over = measure(full, UPRIGHT_PX) > above;
  const text = shorten(full, over ? whole : above, (part) => measure(part, UPRIGHT_PX));
  if (text.length < Math.min(full.length, LEAST_LETTERS)) return null;
  const foot = over ? bottom : end;
  return { group, text, x, y: (foot - camera.y) * camera.scale - 4, size: UPRIGHT_PX, over };
}

/** A text cut in its middle to fit: the beginning says what it is, the end which one. */
export function shorten(text: string, room: number, measure: (text: string) => number): string {
  if (measure(text) <= room) return text;
  const letters = Array.from(text.slice(0, 400));
  let [low, high] = [0, letters.length - 1];
  while (low < high) {
    const keep = Math.ceil((low + high) / 2);
    if (measure(cut(letters, keep)) <= room) low = keep;
    else high = keep - 1;
  }
  return low >= 2 ? cut(letters, low) : "";
}

function cut(letters: readonly string[], keep: number): string {
  const tail = Math.floor(keep / 2);
  const head = keep - tail;
  return `${letters.slice(0, head).join("")}…${tail > 0 ? letters.slice(letters.length - tail).join("") : ""}`;
}

/** Widths by adding up letters, each measured once: a frame has no time to measure every label anew. */
export function letterMeasure(
  measureLetter: (letter: string) => number,
): (text: string, size: number) => number {
  const known = new Map<string, number>();
  return (text, size) => {
    let width = 0;
    for (const letter of text) {
      let one = known.get(letter);
      if (one === undefined) {
        one = measureLetter(letter);
        known.set(letter, one);
      }
      width += one;
    }
    return width * size;
  };
}
