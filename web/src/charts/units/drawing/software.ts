/** The renderer for machines without a GPU driver: plain pixels, filled on the CPU. */

import type { Camera, Flash, Renderer, Scene } from "@/charts/units/drawing/scene";
import { drawnLayers, unitSide } from "@/charts/units/drawing/scene";
import { chartsTexts as texts } from "@/texts";

/** A renderer on a canvas that works everywhere. */
export function createSoftwareRenderer(canvas: HTMLCanvasElement): Renderer {
  const context = canvas.getContext("2d", { alpha: false });
  if (!context) throw new Error(texts.thisBrowserSupportsNeitherWebgl2Nor);
  return new SoftwareRenderer(canvas, context);
}

class SoftwareRenderer implements Renderer {
  readonly kind = "software";
  private image: ImageData = new ImageData(1, 1);
  private pixels = new Uint32Array(this.image.data.buffer);
  private scene: Scene | null = null;
  private ratio = 1;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly context: CanvasRenderingContext2D,
  ) {}

  resize(width: number, height: number, pixelRatio: number): void {
    this.ratio = pixelRatio;
    this.canvas.width = Math.max(1, Math.round(width * pixelRatio));
    this.canvas.height = Math.max(1, Math.round(height * pixelRatio));
    this.image = new ImageData(this.canvas.width, this.canvas.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  setScene(scene: Scene): void {
    this.scene = scene;
  }

  setColours(colours: Uint32Array): void {
    if (this.scene) this.scene.colours = colours;
  }

  draw(camera: Camera, progress: number, flashes: readonly Flash[]): void {
    const { scene } = this;
    if (!scene) return;
    this.pixels.fill(scene.background);
    const scale = camera.scale * this.ratio;
    const { x, y, w, h, colours } = scene.boxes;
    for (const [first, end] of drawnLayers(scene.boxes, camera.scale)) {
      for (let g = first; g < end; g++)
        this.fill(
          (x[g] - camera.x) * scale,
          (y[g] - camera.y) * scale,
          w[g] * scale,
          h[g] * scale,
          colours[g],
        );
    }
    const side = unitSide(scene, camera.scale);
    for (let i = 0; i < scene.count; i++)
      this.drawUnit(scene, i, camera, progress, side, scene.colours[i]);
    for (const { position, strength } of flashes) {
      this.drawUnit(
        scene,
        position,
        camera,
        progress,
        side,
        lightened(scene.colours[position], strength),
      );
    }
    this.context.putImageData(this.image, 0, 0);
  }

  finish(): void {
    this.context.getImageData(0, 0, 1, 1);
  }

  dispose(): void {
    this.scene = null;
  }

  private drawUnit(
    scene: Scene,
    i: number,
    camera: Camera,
    progress: number,
    side: number,
    colour: number,
  ): void {
    const scale = camera.scale * this.ratio;
    const x = scene.fromX[i] + (scene.toX[i] - scene.fromX[i]) * progress;
    const y = scene.fromY[i] + (scene.toY[i] - scene.fromY[i]) * progress;
    const share = scene.share ? scene.share[i] : 1;
    this.fill(
      (x - camera.x) * scale,
      (y - camera.y) * scale,
      Math.max(1, share * side * scale),
      Math.max(1, side * scale),
      colour,
    );
  }

  private fill(x: number, y: number, w: number, h: number, colour: number): void {
    const { width, height } = this.image;
    const left = Math.max(0, Math.round(x));
    const right = Math.min(width, Math.max(left + 1, Math.round(x + w)));
    const top = Math.max(0, Math.round(y));
    const bottom = Math.min(height, Math.max(top + 1, Math.round(y + h)));
    if (x + w < 0 || left >= width) return;
    for (let row = top; row < bottom; row++)
      this.pixels.fill(colour, row * width + left, row * width + right);
  }
}

function lightened(colour: number, strength: number): number {
  const mix = (c: number) => Math.round(c + (255 - c) * strength * 0.9);
  return (
    ((255 << 24) |
      (mix((colour >> 16) & 255) << 16) |
      (mix((colour >> 8) & 255) << 8) |
      mix(colour & 255)) >>>
    0
  );
}
