/** What charts with axes share: their width on the screen, round limits, and moments worth a label. */

import type { RefObject } from "react";
import { useEffect, useRef, useState } from "react";
import { formatDay, formatTimeOfDay } from "@/base/clock";
import { roundTicks } from "@/base/ui/ticks";

/** The width that an element has on the screen, so that text in a drawing keeps its size. */
export function useWidth(usual: number): [RefObject<HTMLElement | null>, number] {
  const box = useRef<HTMLElement>(null);
  const [width, setWidth] = useState(usual);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(() => {
      if (element.clientWidth > 0) setWidth(element.clientWidth);
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [box, width];
}

/** Round values from nought to one that is no smaller than the largest; of seconds, what clocks show. */
export function axisTicks(largest: number, unit = ""): number[] {
  if (!(largest > 0)) return [0, 1];
  const ticks = roundTicks(0, largest, unit, 3);
  const step = ticks.length > 1 ? ticks[1] : largest;
  while (ticks[ticks.length - 1] < largest * (1 - 1e-9)) ticks.push(ticks.length * step);
  return ticks;
}

/** Half a label of a moment, in pixels: one that is nearer to the edge of its chart would be cut. */
export const HALF_LABEL_PX = 24;

const HOUR_MS = 3_600_000;
const STEPS_H = [1 / 12, 1 / 6, 1 / 4, 1 / 2, 1, 2, 3, 6, 12, 24, 48, 168];

/** Moments for a time axis: round times of the reader's day, as many as have room. */
export function timeTicks(firstMs: number, lastMs: number, most: number): number[] {
  const hours = (lastMs - firstMs) / HOUR_MS;
  const step = (STEPS_H.find((each) => hours / each <= most) ?? 720) * HOUR_MS;
  const zone = new Date(firstMs).getTimezoneOffset() * 60_000;
  const begin = Math.ceil((firstMs - zone) / step) * step + zone;
  const ticks = [];
  for (let at = begin; at <= lastMs; at += step) ticks.push(at);
  return ticks;
}

/** A moment as an axis writes it: the hour, or the day where a day begins or days are shown. */
export function tickLabel(timeMs: number): string {
  const date = new Date(timeMs);
  return date.getHours() === 0 && date.getMinutes() === 0
    ? formatDay(timeMs)
    : formatTimeOfDay(timeMs);
}
