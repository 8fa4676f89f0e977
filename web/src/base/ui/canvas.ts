/** A canvas as wide as what holds it, sharp on every screen. */

import type { RefObject } from "react";
import { useEffect, useRef, useState } from "react";

/** A canvas, and the width of the element that it lies in. */
export function useCanvas(
  usual: number,
  least: number,
): [RefObject<HTMLCanvasElement | null>, number] {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(usual);
  useEffect(() => {
    const element = canvas.current?.parentElement;
    if (!element) return;
    const watch = new ResizeObserver(() => setWidth(Math.max(least, element.clientWidth)));
    watch.observe(element);
    return () => watch.disconnect();
  }, [least]);
  return [canvas, width];
}

/** An empty canvas of this size to draw on, in pixels of the page unless a ratio is given. */
export function clearCanvas(
  canvas: HTMLCanvasElement | null,
  width: number,
  height: number,
  ratio = devicePixelRatio || 1,
): CanvasRenderingContext2D | null {
  const context = canvas?.getContext("2d");
  if (!canvas || !context) return null;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
