import fc from "fast-check";
import { expect, test } from "vitest";
import { lifeScale } from "@/charts/life";

const span = (phase: string, from: number, to: number) => ({ phase, from, to, text: "" });

test("waiting takes a fifth of the strip at most, and time never runs backwards", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 1e6 }),
      fc.integer({ min: 1, max: 1e6 }),
      (waited, ran) => {
        const place = lifeScale([
          span("waiting", 0, waited),
          span("training", waited, waited + ran),
        ]);
        expect(place(waited)).toBeLessThanOrEqual(200 + 1e-9);
        expect(place(waited + ran)).toBeCloseTo(1000);
        expect(place(waited / 2)).toBeLessThanOrEqual(place(waited));
        expect(place(waited)).toBeLessThanOrEqual(place(waited + ran / 2));
      },
    ),
  );
});

test("a life that is all waiting fills the strip", () => {
  expect(lifeScale([span("waiting", 0, 10)])(10)).toBe(1000);
});
