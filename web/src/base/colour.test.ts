import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  buildScale,
  CATEGORICAL,
  categoryColours,
  CONTINUOUS,
  continuousScheme,
  interpolate,
  packed,
} from "@/base/colour";

const numbers = fc.array(fc.double({ min: 0, max: 1e4, noNaN: true }), {
  minLength: 1,
  maxLength: 200,
});
const specs = fc.record({
  scale: fc.constantFrom<"linear" | "log" | "quantile" | "quantize">(
    "linear",
    "log",
    "quantile",
    "quantize",
  ),
  min: fc.constant(null),
  max: fc.constant(null),
  bins: fc.integer({ min: 2, max: 12 }),
});

describe("colour scales", () => {
  test("never fall where the value grows, and stay within 0 and 1 inside the domain", () => {
    fc.assert(
      fc.property(numbers, specs, (values, spec) => {
        const scale = buildScale(spec, Float64Array.from(values), [null, null]);
        const places = [...values].sort((a, b) => a - b).map(scale.place);
        for (let i = 1; i < places.length; i++)
          expect(places[i]).toBeGreaterThanOrEqual(places[i - 1] - 1e-12);
        for (const place of places) {
          expect(place).toBeGreaterThanOrEqual(-1e-9);
          expect(place).toBeLessThanOrEqual(1 + 1e-9);
        }
      }),
    );
  });

  test("quantile steps hold about the same number of values each", () => {
    const values = Float64Array.from({ length: 1000 }, (_, i) => (i / 100) ** 3);
    const scale = buildScale({ scale: "quantile", min: null, max: null, bins: 4 }, values, [
      null,
      null,
    ]);
    const counts = [0, 0, 0, 0];
    for (const value of values) counts[Math.round(scale.place(value) * 3)]++;
    for (const count of counts) expect(Math.abs(count - 250)).toBeLessThan(10);
  });

  test("the user's minimum and maximum hold over the catalogue's and the data's", () => {
    const scale = buildScale(
      { scale: "linear", min: 10, max: 20, bins: 2 },
      Float64Array.from([0, 100]),
      [0, 50],
    );
    expect(scale.domain).toEqual([10, 20]);
    expect(scale.place(15)).toBeCloseTo(0.5);
  });

  test("every continuous scheme is told apart in grey: lightness never turns back, except where it diverges", () => {
    const lightness = ([r, g, b]: readonly [number, number, number]) =>
      0.2126 * r + 0.7152 * g + 0.0722 * b;
    const schemes = Object.keys(CONTINUOUS).flatMap((name) => [
      [name, continuousScheme(name, "dark")] as const,
      [`${name} on light`, continuousScheme(name, "light")] as const,
    ]);
    for (const [name, scheme] of schemes) {
      if (name.startsWith("blue_orange")) continue;
      const steps = Array.from({ length: 20 }, (_, i) => lightness(interpolate(scheme, i / 19)));
      for (let i = 1; i < steps.length; i++) expect(steps[i], name).toBeGreaterThan(steps[i - 1]);
    }
  });

  test("categories keep distinct colours far beyond the scheme", () => {
    const count = CATEGORICAL["okabe_ito"].length * 4;
    expect(new Set(categoryColours(count, "okabe_ito").map((rgb) => packed(rgb))).size).toBe(count);
  });
});
