import { describe, expect, it } from "vitest";
import { calibrationPoints, forecastStrip } from "@/charts/forecast";

describe("forecasts as geometry", () => {
  it("puts every bar on one axis of time, and the present between them", () => {
    const strip = forecastStrip(
      [
        { madeMs: 0, lowMs: 600_000, middleMs: 1_200_000, highMs: 9_000_000 },
        { madeMs: 600_000, lowMs: 900_000, middleMs: 1_200_000, highMs: 1_500_000 },
      ],
      700_000,
      100,
      10,
    );
    expect(strip.fromMs).toBe(0);
    expect(strip.rows[0].x2).toBe(100);
    expect(strip.rows[1].x2 - strip.rows[1].x1).toBeLessThan(strip.rows[0].x2 - strip.rows[0].x1);
    expect(strip.rows[0].middle).toBe(strip.rows[1].middle);
    expect(strip.now).toBeGreaterThan(0);
    expect(strip.now).toBeLessThan(100);
  });

  it("places a perfect forecaster on the diagonal", () => {
    const points = [0.1, 0.5, 0.9].map((share) => ({ stated: share, achieved: share }));
    for (const { x, y } of calibrationPoints(points, 100)) expect(x + y).toBeCloseTo(100);
  });
});
