import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  absoluteCamera,
  between,
  fitCamera,
  relativeCamera,
  zoomAround,
} from "@/charts/units/camera";

const frame = { width: 1000, height: 600 };
const world = { x: 0, y: 0, w: 300, h: 200 };
const cameras = fc.record({
  scale: fc.double({ min: 0.5, max: 50, noNaN: true }),
  x: fc.double({ min: -50, max: 250, noNaN: true }),
  y: fc.double({ min: -50, max: 150, noNaN: true }),
});

describe("the camera", () => {
  test("fits a rectangle whole and in the middle", () => {
    const camera = fitCamera(world, frame);
    expect(camera.x + frame.width / 2 / camera.scale).toBeCloseTo(150);
    expect(world.w * camera.scale).toBeLessThanOrEqual(frame.width);
    expect(world.h * camera.scale).toBeLessThanOrEqual(frame.height);
  });

  test("keeps the world under the pointer while zooming", () => {
    fc.assert(
      fc.property(cameras, fc.double({ min: 0.5, max: 2, noNaN: true }), (camera, factor) => {
        const at = { x: 400, y: 100 };
        const next = zoomAround(camera, factor, at, 0.1);
        expect(next.x + at.x / next.scale).toBeCloseTo(camera.x + at.x / camera.scale, 6);
        expect(next.y + at.y / next.scale).toBeCloseTo(camera.y + at.y / camera.scale, 6);
      }),
    );
  });

  test("comes back from its relative numbers", () => {
    fc.assert(
      fc.property(cameras, (camera) => {
        const back = absoluteCamera(relativeCamera(camera, world, frame), world, frame);
        expect(back.scale).toBeCloseTo(camera.scale, 6);
        expect(back.x).toBeCloseTo(camera.x, 6);
      }),
    );
  });

  test("flies from its start to its end", () => {
    fc.assert(
      fc.property(cameras, cameras, (from, to) => {
        expect(between(from, to, 0, frame).x).toBeCloseTo(from.x, 6);
        expect(between(from, to, 1, frame)).toEqual(to);
        expect(between(from, to, 0.999999, frame).x).toBeCloseTo(to.x, 1);
      }),
    );
  });
});
