/** A buffer of pixels that drawing functions write to and a canvas shows. */

export interface Picture {
  width: number;
  height: number;
  pixels: Uint32Array;
}

export function makePicture(width: number, height: number, colour: number): Picture {
  const pixels = new Uint32Array(Math.max(0, width * height));
  return { width, height, pixels: pixels.fill(colour) };
}

/** The picture as image data, sharing its memory. */
export function imageOf({ width, height, pixels }: Picture): ImageData {
  const bytes = new Uint8ClampedArray(pixels.buffer as ArrayBuffer, 0, width * height * 4);
  return new ImageData(bytes, width, height);
}
