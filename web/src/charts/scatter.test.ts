import { expect, test } from "vitest";
import { ellipse, inside, scatterScales, ticks } from "@/charts/scatter";

test("every point of the ellipse is at the limit's distance", () => {
  const [a, b, d] = [4, 1.5, 2];
  const determinant = a * d - b * b;
  for (const [x, y] of ellipse({
    centre: [10, 20],
    covariance: [
      [a, b],
      [b, d],
    ],
    limit: 3,
  })) {
    const [u, v] = [x - 10, y - 20];
    expect(Math.sqrt((d * u * u - 2 * b * u * v + a * v * v) / determinant)).toBeCloseTo(3, 6);
  }
});

test("a metric without spread has no ellipse", () => {
  expect(
    ellipse({
      centre: [1, 1],
      covariance: [
        [0, 0],
        [0, 1],
      ],
      limit: 3,
    }),
  ).toEqual([]);
});

test("places and values are each other's inverse", () => {
  const scales = scatterScales({ x: [0, 100], y: [50, 400] }, 400, 300);
  expect(scales.valueX(scales.x(42))).toBeCloseTo(42);
  expect(scales.valueY(scales.y(123))).toBeCloseTo(123);
});

test("a brush takes what lies in it, gaps never", () => {
  const points = {
    gpu: [0, 1, 2],
    time_ms: [1, 2, 3],
    x: [1, 5, null],
    y: [1, 5, 1],
    score: [0, 0, 0],
  };
  expect(inside(points, { x: [0, 2], y: [0, 2] })).toEqual([0]);
});

test("ticks are round and within", () => {
  expect(ticks(0, 100, 5)).toEqual([0, 20, 40, 60, 80, 100]);
  expect(ticks(3, 3, 5)).toEqual([3]);
});
