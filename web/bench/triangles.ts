/** Every interval of a step as two triangles, and two for the band to the next row: what a plain WebGL drawing does. */

import type { Palette } from "@/charts/marey/kinds";
import type { SyntheticStep } from "@/charts/marey/synthetic";
import { spanNs } from "@/charts/marey/window";

export interface Triangles {
  gl: WebGL2RenderingContext;
  /** Quadrilaterals. */
  count: number;
}

const VERTEX = `#version 300 es
in vec2 place; in vec4 colour; out vec4 shade;
void main() { shade = colour; gl_Position = vec4(place * 2.0 - 1.0, 0.0, 1.0); }`;
const FRAGMENT = `#version 300 es
precision mediump float; in vec4 shade; out vec4 result;
void main() { result = shade; }`;
const BAR = 0.6;

export function prepareTriangles(
  canvas: HTMLCanvasElement,
  step: SyntheticStep,
  palette: Palette,
): Triangles {
  const gl = canvas.getContext("webgl2");
  if (!gl) throw new Error("There is no WebGL2 here.");
  const count = fill(gl, step, palette);
  const program = gl.createProgram();
  for (const [kind, source] of [
    [gl.VERTEX_SHADER, VERTEX],
    [gl.FRAGMENT_SHADER, FRAGMENT],
  ] as const) {
    const shader = gl.createShader(kind)!;
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  gl.useProgram(program);
  const [place, colour] = ["place", "colour"].map((name) => gl.getAttribLocation(program, name));
  gl.enableVertexAttribArray(place);
  gl.vertexAttribPointer(place, 2, gl.FLOAT, false, 12, 0);
  gl.enableVertexAttribArray(colour);
  gl.vertexAttribPointer(colour, 4, gl.UNSIGNED_BYTE, true, 12, 8);
  return { gl, count };
}

/** Upload four corners per quadrilateral and six indices. */
function fill(gl: WebGL2RenderingContext, step: SyntheticStep, { kinds }: Palette): number {
  const { startNs, endNs, kind } = step.intervals;
  const { ranks, operators } = step;
  const count = startNs.length + (ranks - 1) * operators;
  const corners = new ArrayBuffer(count * 4 * 12);
  const [places, colours] = [new Float32Array(corners), new Uint32Array(corners)];
  const indices = new Uint32Array(count * 6);
  const x = (time: number) => (time - step.fromNs) / spanNs(step);
  let quad = 0;
  const add = (edges: readonly number[], colour: number) => {
    const [topFrom, topTo, top, bottomFrom, bottomTo, bottom] = edges;
    [topFrom, top, topTo, top, bottomFrom, bottom, bottomTo, bottom].forEach((value, i) => {
      places[(quad * 4 + (i >> 1)) * 3 + (i & 1)] = value;
    });
    for (let corner = 0; corner < 4; corner++) colours[(quad * 4 + corner) * 3 + 2] = colour;
    indices.set(
      [0, 1, 2, 1, 2, 3].map((corner) => quad * 4 + corner),
      quad * 6,
    );
    quad++;
  };
  for (let i = 0; i < startNs.length; i++) {
    const rank = Math.floor(i / operators);
    const [top, bar, next] = [rank, rank + BAR, rank + 1].map((row) => 1 - row / ranks);
    const [from, to, colour] = [x(startNs[i]), x(endNs[i]), kinds[kind[i]]];
    add([from, to, top, from, to, bar], colour);
    const below = i + operators;
    if (below < startNs.length)
      add([from, to, bar, x(startNs[below]), x(endNs[below]), next], colour);
  }
  for (const [target, data] of [
    [gl.ARRAY_BUFFER, corners],
    [gl.ELEMENT_ARRAY_BUFFER, indices],
  ] as const) {
    gl.bindBuffer(target, gl.createBuffer());
    gl.bufferData(target, data, gl.STATIC_DRAW);
  }
  return count;
}

/** Draw and read a pixel back: without that the call returns before anything is drawn. */
export function drawTriangles({ gl, count }: Triangles): void {
  gl.clear(gl.COLOR_BUFFER_BIT);
  gl.drawElements(gl.TRIANGLES, count * 6, gl.UNSIGNED_INT, 0);
  gl.readPixels(600, 400, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
}
