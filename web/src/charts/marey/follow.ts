/** Following one micro-batch through the stages: it stays as it is, everything else turns pale. */

import { mixed } from "@/charts/marey/cells";
import type { Picture } from "@/charts/marey/image/picture";

const PALE = 0.2;

/** One per interval: 1 where it belongs to the micro-batch; null where none is followed. */
export function findFollowed(microBatch: Int32Array | null, followed: number): Uint8Array | null {
  if (!microBatch || followed < 0) return null;
  return Uint8Array.from(microBatch, (batch) => (batch === followed ? 1 : 0));
}

/** Turn what is painted so far pale. */
export function fadePicture({ pixels }: Picture, ground: number): void {
  for (let i = 0; i < pixels.length; i++)
    if (pixels[i] !== ground) pixels[i] = mixed(pixels[i], ground, 255 * PALE);
}

/** The largest number of a micro-batch, or −1. */
export const largestBatch = (microBatch: Int32Array): number =>
  microBatch.reduce((most, batch) => Math.max(most, batch), -1);
