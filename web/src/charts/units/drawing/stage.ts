/** The canvas at work: a camera over a picture, units in motion, labels on top. No React, no network. */

import type { Theme } from "@/base/colour";
import { packed } from "@/base/colour";
import type { Frame, Rect } from "@/charts/units/camera";
import {
  absoluteCamera,
  between,
  ease,
  fitCamera,
  relativeCamera,
  zoomAround,
} from "@/charts/units/camera";
import type { UnitLayout } from "@/charts/units/layout";
import type { Identity } from "@/charts/units/motion";
import { Places } from "@/charts/units/motion";
import type { Overlay, OverlayMarks, Placed, WrittenName } from "@/charts/units/drawing/overlay";
import { drawOverlay } from "@/charts/units/drawing/overlay";
import type { Hit } from "@/charts/units/pick";
import { pick, unitsWithin } from "@/charts/units/pick";
import type { PlacedRules, RuleSpot } from "@/charts/units/rules";
import { ruleAt } from "@/charts/units/rules";
import type { Camera, Flash, Renderer, Scene } from "@/charts/units/drawing/scene";
import { createSoftwareRenderer } from "@/charts/units/drawing/software";
import { createWebglRenderer } from "@/charts/units/drawing/webgl";

/** A laid-out view, ready to be shown. */
export interface Picture {
  layout: UnitLayout;
  identity: Identity;
  /** Packed colour per unit (not per place). */
  colours: Uint32Array;
  nameOf: (group: number, layer: number) => string;
  detailOf: (group: number) => string;
  /** A word inside a unit that is large enough for one. */
  wordOf: (unit: number) => string;
}

export interface StageOptions {
  reducedMotion: boolean;
  /** Draw on the CPU even where WebGL2 is there. */
  software?: boolean;
  onCamera?: (relative: [number, number, number], settled: boolean) => void;
}

const MOVE_MS = 750;
const FLIGHT_MS = 650;
const FLASH_MS = 900;
const MOST_FLASHES = 4000;

const BOX_COLOURS: Record<Theme, { background: number; boxes: number[] }> = {
  dark: {
    background: packed([14, 18, 23]),
    boxes: [
      packed([14, 18, 23]),
      packed([23, 30, 38]),
      packed([32, 41, 51]),
      packed([41, 52, 64]),
      packed([49, 62, 76]),
    ],
  },
  light: {
    background: packed([250, 251, 252]),
    boxes: [
      packed([250, 251, 252]),
      packed([239, 242, 246]),
      packed([227, 232, 238]),
      packed([215, 222, 230]),
      packed([204, 212, 222]),
    ],
  },
};

export class Stage {
  camera: Camera = { scale: 1, x: 0, y: 0 };
  readonly renderer: Renderer;
  private frame: Frame = { width: 1, height: 1 };
  private ratio = 1;
  private theme: Theme = "dark";
  private picture: Picture | null = null;
  private scene: Scene | null = null;
  private readonly places = new Places();
  private moveStart = -Infinity;
  private flight: { from: Camera; to: Camera; start: number; ms: number } | null = null;
  private flashes: { gpu: number; start: number }[] = [];
  private positionOfGpu = new Int32Array(0);
  private marks: OverlayMarks = { hover: null, selected: [], lasso: null };
  private rules: Overlay["rules"] = null;
  private placed: Placed = { rules: null, names: [] };
  private atFit = true;
  private asked = 0;
  private lastCameraMs = -Infinity;
  private labelsFade = true;
  private awaited: [number, number, number] | null = null;

  constructor(
    canvas: HTMLCanvasElement,
    private readonly overlay: HTMLCanvasElement,
    private readonly options: StageOptions,
  ) {
    this.renderer =
      (options.software ? null : createWebglRenderer(canvas)) ?? createSoftwareRenderer(canvas);
  }

  get world(): Rect {
    return { x: 0, y: 0, w: this.picture?.layout.width ?? 1, h: this.picture?.layout.height ?? 1 };
  }

  get element(): HTMLCanvasElement {
    return this.overlay;
  }

  get current(): Picture | null {
    return this.picture;
  }

  /** Whether everything is in view, and stays so. */
  get isFitted(): boolean {
    return this.atFit;
  }

  get size(): Frame {
    return this.frame;
  }

  resize(width: number, height: number, ratio: number): void {
    this.keepCentre({ width, height });
    this.frame = { width, height };
    this.ratio = ratio;
    this.renderer.resize(width, height, ratio);
    this.overlay.width = Math.max(1, Math.round(width * ratio));
    this.overlay.height = Math.max(1, Math.round(height * ratio));
    if (this.atFit) {
      this.camera = fitCamera(this.world, this.frame);
      this.flight = null;
    }
    this.invalidate();
  }

  /** What is in the middle of the window, or will be, stays there when the window changes its size. */
  private keepCentre({ width, height }: Frame): void {
    const [dx, dy] = [(this.frame.width - width) / 2, (this.frame.height - height) / 2];
    if (this.frame.width < 2) return;
    const moved = (camera: Camera): Camera => ({
      ...camera,
      x: camera.x + dx / camera.scale,
      y: camera.y + dy / camera.scale,
    });
    this.camera = moved(this.camera);
    if (this.flight)
      this.flight = { ...this.flight, from: moved(this.flight.from), to: moved(this.flight.to) };
  }

  setTheme(theme: Theme): void {
    this.theme = theme;
    if (this.scene && this.picture) {
      this.scene.background = BOX_COLOURS[theme].background;
      this.scene.boxes.colours = boxColours(this.picture.layout, theme);
      this.renderer.setScene(this.scene);
    }
    this.invalidate();
  }

  /** Show a new picture; units move there from where they are. Labels stay lit where only the data changed. */
  show(picture: Picture, sameView = false): void {
    this.labelsFade = !sameView;
    // They counted the groups of the picture before.
    this.rules = null;
    this.rememberPlaces();
    const first = this.picture === null;
    this.picture = picture;
    const { layout } = picture;
    const still = this.options.reducedMotion || first;
    const paths = still
      ? { fromX: layout.x, fromY: layout.y }
      : this.places.paths(layout, picture.identity);
    this.scene = {
      count: layout.x.length,
      ...paths,
      toX: layout.x,
      toY: layout.y,
      share: layout.share,
      gap: layout.gap,
      colours: inOrder(picture.colours, layout.tree.order),
      boxes: {
        x: layout.groupX,
        y: layout.groupY,
        w: layout.groupW,
        h: layout.groupH,
        colours: boxColours(layout, this.theme),
        layerStart: layout.tree.layerStart,
      },
      background: BOX_COLOURS[this.theme].background,
    };
    this.renderer.setScene(this.scene);
    this.moveStart = still ? -Infinity : performance.now();
    this.positionOfGpu = positions(picture);
    this.marks = { ...this.marks, hover: null };
    if (this.awaited) {
      this.camera = absoluteCamera(this.awaited, this.world, this.frame);
      this.atFit = false;
      this.awaited = null;
    } else if (this.atFit) {
      const fit = fitCamera(this.world, this.frame);
      if (still) this.camera = fit;
      else this.fly(fit, MOVE_MS, true);
    }
    this.invalidate();
  }

  /** New colours for the same picture. */
  recolour(colours: Uint32Array): void {
    if (!this.picture || !this.scene) return;
    this.picture.colours = colours;
    this.renderer.setColours(inOrder(colours, this.picture.layout.tree.order));
    this.invalidate();
  }

  /** Light up the units of these GPUs for a moment. */
  flash(gpus: ArrayLike<number>): void {
    if (this.options.reducedMotion) return;
    const start = performance.now();
    for (let i = 0; i < Math.min(gpus.length, MOST_FLASHES); i++)
      this.flashes.push({ gpu: gpus[i], start });
    if (this.flashes.length > MOST_FLASHES) this.flashes = this.flashes.slice(-MOST_FLASHES);
    this.invalidate();
  }

  setMarks(marks: Partial<OverlayMarks>): void {
    this.marks = { ...this.marks, ...marks };
    this.invalidate();
  }

  /** Marks of rules on the groups of this picture. */
  setRules(rules: Overlay["rules"]): void {
    this.rules = rules;
    this.invalidate();
  }

  /** The mark of a rule under a point of the screen. */
  ruleAt(x: number, y: number): RuleSpot | null {
    return this.placed.rules && ruleAt(this.placed.rules, x, y);
  }

  /** Every mark of a rule that is drawn, as bars or as dots. */
  get ruleMarks(): PlacedRules | null {
    return this.placed.rules;
  }

  /** Every name that is written on the canvas. */
  get names(): readonly WrittenName[] {
    return this.placed.names;
  }

  pickAt(x: number, y: number): Hit | null {
    if (!this.picture) return null;
    return pick(
      this.picture.layout,
      this.camera.x + x / this.camera.scale,
      this.camera.y + y / this.camera.scale,
    );
  }

  /** Units (not places) inside a rectangle of the screen. */
  unitsIn(left: number, top: number, right: number, bottom: number): number[] {
    if (!this.picture) return [];
    const { layout } = this.picture;
    const { scale, x, y } = this.camera;
    return unitsWithin(
      layout,
      x + left / scale,
      y + top / scale,
      x + right / scale,
      y + bottom / scale,
    ).map((i) => layout.tree.order[i]);
  }

  panBy(dx: number, dy: number): void {
    this.flight = null;
    this.atFit = false;
    this.camera = {
      ...this.camera,
      x: this.camera.x - dx / this.camera.scale,
      y: this.camera.y - dy / this.camera.scale,
    };
    this.moved();
  }

  zoomAt(factor: number, x = this.frame.width / 2, y = this.frame.height / 2): void {
    this.flight = null;
    this.atFit = false;
    this.camera = zoomAround(
      this.camera,
      factor,
      { x, y },
      fitCamera(this.world, this.frame).scale,
    );
    this.moved();
  }

  /** Show everything. */
  fit(): void {
    this.atFit = true;
    this.fly(fitCamera(this.world, this.frame), FLIGHT_MS, true);
  }

  /** Fly to a part of the world, with some of its surroundings, beside what covers the right of the screen. */
  flyTo(rect: Rect, coveredPx = 0): void {
    const more = Math.max(rect.w, rect.h) * 0.35 + 1.5;
    const free = {
      width: Math.max(this.frame.width / 3, this.frame.width - coveredPx),
      height: this.frame.height,
    };
    this.fly(
      fitCamera(
        { x: rect.x - more, y: rect.y - more, w: rect.w + 2 * more, h: rect.h + 2 * more },
        free,
      ),
      FLIGHT_MS,
      false,
    );
  }

  /** Set the camera from its relative numbers, now or when there is a picture; null fits. */
  lookFrom(relative: [number, number, number] | null): void {
    if (relative === null) {
      if (!this.atFit) this.fit();
      return;
    }
    if (!this.picture) {
      this.awaited = relative;
      return;
    }
    this.fly(absoluteCamera(relative, this.world, this.frame), FLIGHT_MS, false);
  }

  /** How far units are on their way to their places, from 0 to 1. */
  get progress(): number {
    return Math.min(1, Math.max(0, (performance.now() - this.moveStart) / MOVE_MS));
  }

  invalidate(): void {
    if (this.asked === 0) this.asked = requestAnimationFrame(() => this.drawFrame());
  }

  dispose(): void {
    cancelAnimationFrame(this.asked);
    this.renderer.dispose();
  }

  /** Draw now; true while something still moves. */
  drawFrame(now = performance.now()): boolean {
    this.asked = 0;
    if (!this.picture || !this.scene) return false;
    if (this.flight) this.stepFlight(now);
    const progress = Math.min(1, (now - this.moveStart) / MOVE_MS);
    this.renderer.draw(this.camera, ease(Math.max(0, progress)), this.liveFlashes(now));
    const moving = this.flight !== null || progress < 1;
    const settled = !moving && now - this.lastCameraMs > 140;
    this.placed = drawOverlay(this.overlay, {
      picture: this.picture,
      camera: this.camera,
      frame: this.frame,
      ratio: this.ratio,
      theme: this.theme,
      marks: this.marks,
      labelOpacity: progress < 1 && this.labelsFade ? Math.max(0, progress * 2 - 1) : 1,
      words: settled,
      rules: this.rules,
    });
    const again = moving || this.flashes.length > 0;
    if (again) this.invalidate();
    else if (!settled) setTimeout(() => this.invalidate(), 150);
    return again;
  }

  private fly(to: Camera, ms: number, toFit: boolean): void {
    this.atFit = toFit;
    if (this.options.reducedMotion) {
      this.camera = to;
      this.moved();
      return;
    }
    this.flight = { from: this.camera, to, start: performance.now(), ms };
    this.invalidate();
  }

  private stepFlight(now: number): void {
    const flight = this.flight;
    if (!flight) return;
    const t = Math.min(1, (now - flight.start) / flight.ms);
    this.camera = between(flight.from, flight.to, ease(t), this.frame);
    if (t >= 1) {
      this.flight = null;
      this.report(true);
    }
  }

  private moved(): void {
    this.lastCameraMs = performance.now();
    this.report(false);
    this.invalidate();
  }

  private report(settled: boolean): void {
    const relative: [number, number, number] = this.atFit
      ? [1, 0.5, 0.5]
      : relativeCamera(this.camera, this.world, this.frame);
    this.options.onCamera?.(relative, settled);
  }

  private liveFlashes(now: number): Flash[] {
    this.flashes = this.flashes.filter((flash) => now - flash.start < FLASH_MS);
    return this.flashes
      .map(({ gpu, start }) => ({
        position: this.positionOfGpu[gpu] ?? -1,
        strength: (1 - (now - start) / FLASH_MS) ** 1.5,
      }))
      .filter((flash) => flash.position >= 0);
  }

  private rememberPlaces(): void {
    if (!this.picture || !this.scene) return;
    const { fromX, fromY, toX, toY } = this.scene;
    const t = ease(Math.min(1, Math.max(0, (performance.now() - this.moveStart) / MOVE_MS)));
    const x = t >= 1 ? toX : toX.map((to, i) => fromX[i] + (to - fromX[i]) * t);
    const y = t >= 1 ? toY : toY.map((to, i) => fromY[i] + (to - fromY[i]) * t);
    this.places.remember(this.picture.layout, this.picture.identity, x, y);
  }
}

function inOrder(colours: Uint32Array, order: Int32Array): Uint32Array {
  const ordered = new Uint32Array(order.length);
  for (let i = 0; i < order.length; i++) ordered[i] = colours[order[i]];
  return ordered;
}

function positions({ layout, identity }: Picture): Int32Array<ArrayBuffer> {
  const { order } = layout.tree;
  let most = -1;
  for (const unit of order) most = Math.max(most, identity.gpu[unit]);
  const place = new Int32Array(most + 1).fill(-1);
  for (let i = 0; i < order.length; i++)
    if (identity.gpu[order[i]] >= 0) place[identity.gpu[order[i]]] = i;
  return place;
}

function boxColours({ tree }: UnitLayout, theme: Theme): Uint32Array {
  const colours = new Uint32Array(tree.groups);
  const shades = BOX_COLOURS[theme].boxes;
  for (let layer = 0; layer <= tree.layers; layer++) {
    colours.fill(
      shades[Math.min(layer, shades.length - 1)],
      tree.layerStart[layer],
      tree.layerStart[layer + 1],
    );
  }
  return colours;
}
