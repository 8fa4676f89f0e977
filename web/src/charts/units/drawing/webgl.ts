/** The WebGL2 renderer: points zoomed out, indexed quads zoomed in; places are mixed in the shader. */

import type { Camera, Flash, Renderer, Scene } from "@/charts/units/drawing/scene";
import { drawnLayers, QUADS_FROM_PX, unitSide, visibleUnits } from "@/charts/units/drawing/scene";

// Instanced drawing costs twenty times as much per unit in software GL, so there is none of it here.
// Three small programs, because every instruction counts a hundred thousand times: units that stand
// still, units on their way, and boxes that fade in.
const VERTEX = (kind: "still" | "moving" | "box") => `#version 300 es
${kind === "moving" ? "layout(location=0) in vec2 from;" : ""}
layout(location=1) in vec2 to;
layout(location=2) in vec4 colour;
uniform vec4 view;
uniform float size;
${kind === "moving" ? "uniform float progress;" : ""}
${kind === "box" ? "uniform vec4 fade;" : ""}
out vec4 shade;
void main() {
  gl_Position = vec4(${kind === "moving" ? "mix(from, to, progress)" : "to"} * view.xy + view.zw, 0.0, 1.0);
  gl_PointSize = size;
  shade = ${kind === "box" ? "vec4(mix(fade.rgb, colour.rgb, fade.a), colour.a)" : "colour"};
}`;
const FRAGMENT = `#version 300 es
precision mediump float;
in vec4 shade;
out vec4 pixel;
void main() { pixel = shade; }`;

const FAR = 1e9;

/** A set of vertices with its own buffers. */
class Batch {
  readonly array: WebGLVertexArrayObject;
  private readonly buffers: WebGLBuffer[];

  constructor(private readonly gl: WebGL2RenderingContext) {
    this.array = gl.createVertexArray();
    this.buffers = [gl.createBuffer(), gl.createBuffer(), gl.createBuffer()];
    gl.bindVertexArray(this.array);
    this.buffers.forEach((buffer, i) => {
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.enableVertexAttribArray(i);
      if (i < 2) gl.vertexAttribPointer(i, 2, gl.FLOAT, false, 0, 0);
      else gl.vertexAttribPointer(i, 4, gl.UNSIGNED_BYTE, true, 0, 0);
    });
    gl.bindVertexArray(null);
  }

  set(slot: 0 | 1 | 2, data: Float32Array | Uint32Array): void {
    this.gl.bindBuffer(this.gl.ARRAY_BUFFER, this.buffers[slot]);
    this.gl.bufferData(this.gl.ARRAY_BUFFER, data, this.gl.DYNAMIC_DRAW);
  }

  dispose(): void {
    this.gl.deleteVertexArray(this.array);
    for (const buffer of this.buffers) this.gl.deleteBuffer(buffer);
  }
}

/** Growing arrays of quads: four corners each, ready for one upload. */
class QuadList {
  from = new Float32Array(0);
  to = new Float32Array(0);
  colours = new Uint32Array(0);
  count = 0;

  start(most: number): void {
    if (this.colours.length < most * 4) {
      this.from = new Float32Array(most * 8);
      this.to = new Float32Array(most * 8);
      this.colours = new Uint32Array(most * 4);
    }
    this.count = 0;
  }

  add(x0: number, y0: number, x1: number, y1: number, w: number, h: number, colour: number): void {
    const at = this.count++ * 8;
    const { from, to } = this;
    from[at] = from[at + 4] = x0;
    from[at + 2] = from[at + 6] = x0 + w;
    from[at + 1] = from[at + 3] = y0;
    from[at + 5] = from[at + 7] = y0 + h;
    to[at] = to[at + 4] = x1;
    to[at + 2] = to[at + 6] = x1 + w;
    to[at + 1] = to[at + 3] = y1;
    to[at + 5] = to[at + 7] = y1 + h;
    const four = at >> 1;
    const { colours } = this;
    colours[four] = colours[four + 1] = colours[four + 2] = colours[four + 3] = colour;
  }
}

/** A renderer on a canvas, or null where there is no WebGL2. */
export function createWebglRenderer(canvas: HTMLCanvasElement): Renderer | null {
  const gl = canvas.getContext("webgl2", {
    alpha: false,
    antialias: false,
    depth: false,
    stencil: false,
  });
  return gl ? new WebglRenderer(gl) : null;
}

/** A program with its uniforms. */
class Program {
  private readonly program: WebGLProgram;
  private readonly at = new Map<string, WebGLUniformLocation | null>();

  constructor(
    private readonly gl: WebGL2RenderingContext,
    kind: "still" | "moving" | "box",
  ) {
    this.program = link(gl, VERTEX(kind));
    for (const name of ["view", "size", "progress", "fade"])
      this.at.set(name, gl.getUniformLocation(this.program, name));
  }

  /** Use it with the world's origin moved by `middle` cells, so that points stand in the middle of their unit. */
  use(camera: Camera, width: number, height: number, middle: number, size: number): void {
    const { gl } = this;
    gl.useProgram(this.program);
    const [x, y] = [(2 * camera.scale) / width, (-2 * camera.scale) / height];
    gl.uniform4f(
      this.at.get("view") ?? null,
      x,
      y,
      (middle - camera.x) * x - 1,
      (middle - camera.y) * y + 1,
    );
    gl.uniform1f(this.at.get("size") ?? null, size);
  }

  set(name: "progress" | "fade", ...values: number[]): void {
    const place = this.at.get(name) ?? null;
    if (values.length === 1) this.gl.uniform1f(place, values[0]);
    else this.gl.uniform4f(place, values[0], values[1], values[2], values[3]);
  }

  dispose(): void {
    this.gl.deleteProgram(this.program);
  }
}

class WebglRenderer implements Renderer {
  readonly kind = "webgl2";
  private readonly still: Program;
  private readonly moving: Program;
  private readonly box: Program;
  private readonly points: Batch;
  private readonly quads: Batch;
  private readonly boxes: Batch;
  private readonly lights: Batch;
  private readonly indices: WebGLBuffer;
  private indexed = 0;
  private readonly quadList = new QuadList();
  private readonly lightList = new QuadList();
  private scene: Scene | null = null;
  private split: Int32Array = new Int32Array(0);
  private width = 1;
  private height = 1;
  private ratio = 1;
  /** The screen and cell size that the quads were gathered for. */
  private gathered: {
    left: number;
    top: number;
    right: number;
    bottom: number;
    side: number;
  } | null = null;
  private splitSide = -1;

  constructor(private readonly gl: WebGL2RenderingContext) {
    this.still = new Program(gl, "still");
    this.moving = new Program(gl, "moving");
    this.box = new Program(gl, "box");
    this.points = new Batch(gl);
    this.quads = new Batch(gl);
    this.boxes = new Batch(gl);
    this.lights = new Batch(gl);
    this.indices = gl.createBuffer();
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
  }

  resize(width: number, height: number, pixelRatio: number): void {
    this.width = width;
    this.height = height;
    this.ratio = pixelRatio;
    const canvas = this.gl.canvas as HTMLCanvasElement;
    canvas.width = Math.max(1, Math.round(width * pixelRatio));
    canvas.height = Math.max(1, Math.round(height * pixelRatio));
    this.gl.viewport(0, 0, canvas.width, canvas.height);
    this.gathered = null;
  }

  setScene(scene: Scene): void {
    this.scene = scene;
    this.gathered = null;
    this.splitSide = -1;
    this.split = splitUnits(scene);
    const from = new Float32Array(scene.count * 2);
    const to = new Float32Array(scene.count * 2);
    for (let i = 0; i < scene.count; i++) {
      from[2 * i] = scene.fromX[i];
      from[2 * i + 1] = scene.fromY[i];
      to[2 * i] = scene.toX[i];
      to[2 * i + 1] = scene.toY[i];
    }
    for (const i of this.split) from[2 * i] = to[2 * i] = FAR;
    this.points.set(0, from);
    this.points.set(1, to);
    this.points.set(2, scene.colours);
    this.uploadBoxes(scene);
  }

  setColours(colours: Uint32Array): void {
    if (!this.scene) return;
    this.scene.colours = colours;
    this.points.set(2, colours);
    this.gathered = null;
    this.splitSide = -1;
  }

  draw(camera: Camera, progress: number, flashes: readonly Flash[]): void {
    const { gl, scene } = this;
    if (!scene) return;
    const [r, g, b] = [
      scene.background & 255,
      (scene.background >> 8) & 255,
      (scene.background >> 16) & 255,
    ].map((c) => c / 255);
    gl.clearColor(r, g, b, 1);
    gl.clear(gl.COLOR_BUFFER_BIT);
    this.box.use(camera, this.width, this.height, 0, 1);
    this.box.set("fade", r, g, b, Math.min(1, 0.25 + progress));
    for (const [first, end] of drawnLayers(scene.boxes, camera.scale))
      this.drawBatch(this.boxes, first, end - first);
    const side = unitSide(scene, camera.scale);
    const asPoints = camera.scale < QUADS_FROM_PX;
    const program = progress < 1 ? this.moving : this.still;
    program.use(
      camera,
      this.width,
      this.height,
      asPoints ? side / 2 : 0,
      Math.max(1, side * camera.scale * this.ratio),
    );
    if (progress < 1) program.set("progress", progress);
    if (asPoints) this.drawPoints(scene, camera, side, program);
    else this.drawQuads(scene, camera, side);
    if (flashes.length > 0) this.drawFlashes(scene, camera, flashes, side, progress);
  }

  finish(): void {
    this.gl.readPixels(0, 0, 1, 1, this.gl.RGBA, this.gl.UNSIGNED_BYTE, new Uint8Array(4));
  }

  dispose(): void {
    for (const batch of [this.points, this.quads, this.boxes, this.lights]) batch.dispose();
    this.gl.deleteBuffer(this.indices);
    for (const program of [this.still, this.moving, this.box]) program.dispose();
  }

  private drawPoints(scene: Scene, camera: Camera, side: number, program: Program): void {
    const { gl } = this;
    gl.bindVertexArray(this.points.array);
    gl.drawArrays(gl.POINTS, 0, scene.count);
    if (this.split.length === 0) return;
    if (this.splitSide !== side) {
      this.splitSide = side;
      this.gathered = null;
      this.fillQuads(scene, this.split, side);
    }
    program.use(camera, this.width, this.height, 0, 1);
    this.drawBatch(this.quads, 0, this.quadList.count);
  }

  private drawQuads(scene: Scene, camera: Camera, side: number): void {
    const right = camera.x + this.width / camera.scale;
    const bottom = camera.y + this.height / camera.scale;
    const held = this.gathered;
    if (
      !held ||
      held.left > camera.x ||
      held.top > camera.y ||
      held.right < right ||
      held.bottom < bottom ||
      held.side !== side
    ) {
      // A quarter of a screen more on every side, so that panning does not gather on every frame.
      const more = 0.25;
      const wide = {
        scale: camera.scale,
        x: camera.x - (more * this.width) / camera.scale,
        y: camera.y - (more * this.height) / camera.scale,
      };
      const [w, h] = [this.width * (1 + 2 * more), this.height * (1 + 2 * more)];
      this.fillQuads(scene, visibleUnits(scene, wide, w, h), side);
      this.gathered = {
        left: wide.x,
        top: wide.y,
        right: wide.x + w / camera.scale,
        bottom: wide.y + h / camera.scale,
        side,
      };
      this.splitSide = -1;
    }
    this.drawBatch(this.quads, 0, this.quadList.count);
  }

  private fillQuads(scene: Scene, units: Int32Array, side: number): void {
    const list = this.quadList;
    list.start(units.length);
    const { fromX, fromY, toX, toY, share, colours } = scene;
    for (const i of units) {
      const width = share ? Math.max(share[i] - (1 - side), share[i] * side) : side;
      list.add(fromX[i], fromY[i], toX[i], toY[i], width, side, colours[i]);
    }
    this.upload(this.quads, list);
  }

  private drawFlashes(
    scene: Scene,
    camera: Camera,
    flashes: readonly Flash[],
    side: number,
    progress: number,
  ): void {
    const list = this.lightList;
    list.start(flashes.length);
    const { fromX, fromY, toX, toY, share } = scene;
    for (const { position: i, strength } of flashes) {
      list.add(
        fromX[i],
        fromY[i],
        toX[i],
        toY[i],
        share ? share[i] * side : side,
        side,
        (Math.round(strength * 230) << 24) | 0xffffff,
      );
    }
    this.upload(this.lights, list);
    this.moving.use(camera, this.width, this.height, 0, 1);
    this.moving.set("progress", progress);
    this.gl.enable(this.gl.BLEND);
    this.drawBatch(this.lights, 0, list.count);
    this.gl.disable(this.gl.BLEND);
  }

  private uploadBoxes(scene: Scene): void {
    const { x, y, w, h, colours } = scene.boxes;
    const list = new QuadList();
    list.start(x.length);
    for (let g = 0; g < x.length; g++) list.add(x[g], y[g], x[g], y[g], w[g], h[g], colours[g]);
    this.upload(this.boxes, list);
  }

  private upload(batch: Batch, list: QuadList): void {
    batch.set(0, list.from.subarray(0, list.count * 8));
    batch.set(1, list.to.subarray(0, list.count * 8));
    batch.set(2, list.colours.subarray(0, list.count * 4));
  }

  private drawBatch(batch: Batch, first: number, count: number): void {
    const { gl } = this;
    if (count === 0) return;
    this.indexUpTo(first + count);
    gl.bindVertexArray(batch.array);
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.indices);
    gl.drawElements(gl.TRIANGLES, count * 6, gl.UNSIGNED_INT, first * 24);
  }

  private indexUpTo(quads: number): void {
    if (quads <= this.indexed) return;
    this.indexed = Math.max(quads, this.indexed * 2, 4096);
    const indices = new Uint32Array(this.indexed * 6);
    for (let q = 0; q < this.indexed; q++)
      indices.set([4 * q, 4 * q + 1, 4 * q + 2, 4 * q + 2, 4 * q + 1, 4 * q + 3], 6 * q);
    this.gl.bindVertexArray(null);
    this.gl.bindBuffer(this.gl.ELEMENT_ARRAY_BUFFER, this.indices);
    this.gl.bufferData(this.gl.ELEMENT_ARRAY_BUFFER, indices, this.gl.STATIC_DRAW);
  }
}

function splitUnits(scene: Scene): Int32Array {
  if (!scene.share) return new Int32Array(0);
  const found: number[] = [];
  for (let i = 0; i < scene.count; i++) if (scene.share[i] < 0.999) found.push(i);
  return Int32Array.from(found);
}

function link(gl: WebGL2RenderingContext, vertex: string): WebGLProgram {
  const program = gl.createProgram();
  for (const [type, source] of [
    [gl.VERTEX_SHADER, vertex],
    [gl.FRAGMENT_SHADER, FRAGMENT],
  ] as const) {
    const shader = gl.createShader(type);
    if (!shader) throw new Error("The browser gave no shader.");
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS))
    throw new Error(gl.getProgramInfoLog(program) ?? "The shaders do not link.");
  return program;
}
