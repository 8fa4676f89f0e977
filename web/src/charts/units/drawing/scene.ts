/** What a renderer draws: units on their way from one place to another, over the boxes of their groups. */

/** Places in cells, colours packed as little-endian RGBA; unit arrays follow the layout's order. */
export interface Scene {
  count: number;
  fromX: Float32Array;
  fromY: Float32Array;
  toX: Float32Array;
  toY: Float32Array;
  /** Part of the cell's width; absent where every unit is a whole GPU. */
  share: Float32Array | null;
  /** Space between units as a share of a cell. */
  gap: number;
  colours: Uint32Array;
  boxes: Boxes;
  background: number;
}

/** Boxes of groups, parents before children; `layerStart` as in the group tree. */
export interface Boxes {
  x: Float32Array;
  y: Float32Array;
  w: Float32Array;
  h: Float32Array;
  colours: Uint32Array;
  layerStart: Int32Array;
}

/** The part of the world on screen: CSS pixels per cell, and the world place of the top left corner. */
export interface Camera {
  scale: number;
  x: number;
  y: number;
}

/** A unit that just changed, lit up for a moment. */
export interface Flash {
  position: number;
  /** From 1 (just now) to 0 (over). */
  strength: number;
}

export interface Renderer {
  readonly kind: "webgl2" | "software";
  resize(width: number, height: number, pixelRatio: number): void;
  setScene(scene: Scene): void;
  setColours(colours: Uint32Array): void;
  /** Draw with the units `progress` (0 to 1) of their way along. */
  draw(camera: Camera, progress: number, flashes: readonly Flash[]): void;
  /** Wait until what was drawn is finished; only benches need it. */
  finish(): void;
  dispose(): void;
}

/** From this cell size on units are drawn as quads: a point is dropped whole when its middle leaves the screen. */
export const QUADS_FROM_PX = 20;
/** Groups of a layer whose boxes are smaller than this on screen are not drawn. */
const SMALLEST_BOX_PX = 7;
/** The gap between units closes on small cells, where it would only make the picture darker. */
const GAP_FROM_PX = 2.2;

/** Side of a drawn unit in cells. */
export function unitSide(scene: Scene, scale: number): number {
  if (scale < GAP_FROM_PX) return 1;
  // A gap of less than half a pixel cannot be seen; one of more than a few pixels is wasted room.
  const gapPx = Math.min(Math.max(scene.gap * scale, 0.6), 6);
  return 1 - gapPx / scale;
}

/** Layers whose boxes are worth drawing at this scale, as a range of groups. */
export function* drawnLayers(boxes: Boxes, scale: number): Generator<[number, number]> {
  for (let layer = 1; layer + 1 < boxes.layerStart.length; layer++) {
    const first = boxes.layerStart[layer];
    const end = boxes.layerStart[layer + 1];
    if (end <= first) continue;
    // Siblings are of a kind: a few of them tell whether the layer can be seen.
    let largest = 0;
    const step = Math.max(1, Math.floor((end - first) / 16));
    for (let g = first; g < end; g += step)
      largest = Math.max(largest, Math.min(boxes.w[g], boxes.h[g]));
    if (largest * scale >= SMALLEST_BOX_PX) yield [first, end];
  }
}

let scratch = new Int32Array(0);

/** Units that touch the screen now or on their way, until the next call; a scan that costs less than drawing them. */
export function visibleUnits(
  scene: Scene,
  camera: Camera,
  width: number,
  height: number,
): Int32Array {
  const left = camera.x - 1;
  const top = camera.y - 1;
  const right = camera.x + width / camera.scale;
  const bottom = camera.y + height / camera.scale;
  if (scratch.length < scene.count) scratch = new Int32Array(scene.count);
  const found = scratch;
  let n = 0;
  const { fromX, fromY, toX, toY } = scene;
  for (let i = 0; i < scene.count; i++) {
    const x0 = Math.min(fromX[i], toX[i]);
    const x1 = Math.max(fromX[i], toX[i]);
    if (x1 < left || x0 > right) continue;
    const y0 = Math.min(fromY[i], toY[i]);
    const y1 = Math.max(fromY[i], toY[i]);
    if (y1 >= top && y0 <= bottom) found[n++] = i;
  }
  return found.subarray(0, n);
}
