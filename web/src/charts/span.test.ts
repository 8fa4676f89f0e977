import fc from "fast-check";
import { expect, test } from "vitest";
import { moved, within, zoomed } from "@/charts/span";

const spans = fc
  .tuple(fc.integer({ min: 0, max: 1e9 }), fc.integer({ min: 2_000, max: 1e8 }))
  .map(([from, length]) => [from, from + length] as const);

test("zooming in and out again about the same place gives the span back", () => {
  fc.assert(
    fc.property(
      spans,
      fc.double({ min: 0, max: 1, noNaN: true }),
      fc.double({ min: 0.2, max: 5, noNaN: true }),
      (span, about, factor) => {
        const back = zoomed(zoomed(span, factor, about), 1 / factor, about);
        expect(back[0]).toBeCloseTo(span[0], 0);
        expect(back[1]).toBeCloseTo(span[1], 0);
      },
    ),
  );
});

test("the place under the cursor stays where it is", () => {
  const [from, to] = zoomed([1000, 2000], 0.5, 0.25);
  expect(from + (to - from) * 0.25).toBeCloseTo(1250);
});

test("whatever is asked for, what is shown lies within what there is", () => {
  fc.assert(
    fc.property(spans, spans, fc.double({ min: -3, max: 3, noNaN: true }), (limits, asked, by) => {
      const shown = within(moved(asked, by), limits);
      if (shown === null) return;
      expect(shown[0]).toBeGreaterThanOrEqual(limits[0]);
      expect(shown[1]).toBeLessThanOrEqual(limits[1] + 1e-6);
      expect(shown[1] - shown[0]).toBeGreaterThanOrEqual(2_000 - 1e-6);
    }),
  );
});
