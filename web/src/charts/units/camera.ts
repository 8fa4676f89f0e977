/** Moving over the canvas: fit, zoom around a point, fly. */

import type { Camera } from "@/charts/units/drawing/scene";

export interface Frame {
  width: number;
  height: number;
}

export interface Rect {
  x: number;
  y: number;
  w: number;
  h: number;
}

const LARGEST_CELL_PX = 220;
/** Room around the picture, in pixels. */
const EDGE_PX = 18;

/** The camera that shows a rectangle of the world, whole and in the middle. */
export function fitCamera(rect: Rect, frame: Frame, edge = EDGE_PX): Camera {
  const width = Math.max(1, frame.width - 2 * edge);
  const height = Math.max(1, frame.height - 2 * edge);
  const scale = Math.min(
    width / Math.max(rect.w, 1e-6),
    height / Math.max(rect.h, 1e-6),
    LARGEST_CELL_PX / 2,
  );
  return {
    scale,
    x: rect.x + rect.w / 2 - frame.width / 2 / scale,
    y: rect.y + rect.h / 2 - frame.height / 2 / scale,
  };
}

/** Zoom by a factor while the world under a screen point stays there. */
export function zoomAround(
  camera: Camera,
  factor: number,
  at: { x: number; y: number },
  fitScale: number,
): Camera {
  const scale = Math.min(LARGEST_CELL_PX, Math.max(fitScale * 0.4, camera.scale * factor));
  return {
    scale,
    x: camera.x + at.x / camera.scale - at.x / scale,
    y: camera.y + at.y / camera.scale - at.y / scale,
  };
}

/** A camera between two others: places move straight, the scale evenly in ratio. */
export function between(from: Camera, to: Camera, t: number, frame: Frame): Camera {
  if (t >= 1) return to;
  const scale = from.scale * (to.scale / from.scale) ** t;
  const middle = (camera: Camera) => ({
    x: camera.x + frame.width / 2 / camera.scale,
    y: camera.y + frame.height / 2 / camera.scale,
  });
  const [a, b] = [middle(from), middle(to)];
  // While the scale changes, the middle must move at the pace of the scale, or the flight swings.
  const ratio = to.scale / from.scale;
  const pace = Math.abs(ratio - 1) < 1e-6 ? t : (1 - 1 / ratio ** t) / (1 - 1 / ratio);
  return {
    scale,
    x: a.x + (b.x - a.x) * pace - frame.width / 2 / scale,
    y: a.y + (b.y - a.y) * pace - frame.height / 2 / scale,
  };
}

/** The camera as zoom over fit and middle as a share of the picture: the same in every window. */
export function relativeCamera(
  camera: Camera,
  world: Rect,
  frame: Frame,
): [number, number, number] {
  const fit = fitCamera(world, frame);
  return [
    camera.scale / fit.scale,
    (camera.x + frame.width / 2 / camera.scale) / Math.max(1, world.w),
    (camera.y + frame.height / 2 / camera.scale) / Math.max(1, world.h),
  ];
}

/** The camera that such numbers mean in this window. */
export function absoluteCamera(
  [zoom, u, v]: readonly [number, number, number],
  world: Rect,
  frame: Frame,
): Camera {
  const scale = Math.min(LARGEST_CELL_PX, fitCamera(world, frame).scale * zoom);
  return {
    scale,
    x: u * Math.max(1, world.w) - frame.width / 2 / scale,
    y: v * Math.max(1, world.h) - frame.height / 2 / scale,
  };
}

/** Slow at both ends. */
export function ease(t: number): number {
  return t < 0.5 ? 4 * t * t * t : 1 - (-2 * t + 2) ** 3 / 2;
}
