import fc from "fast-check";
import { expect, test } from "vitest";
import { lifeScale, mergeNarrow } from "@/charts/life";

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

test("phases too narrow to be told apart are drawn as the one that takes most of them", () => {
  // Five minutes of training, one of saving, for a fortnight: a thousandth of it is twenty minutes.
  const spans = Array.from({ length: 3360 }, (_, i) => [
    { phase: "training", from: i * 360, to: i * 360 + 300, text: `training ${i}` },
    { phase: "checkpoint", from: i * 360 + 300, to: (i + 1) * 360, text: `checkpoint ${i}` },
  ]).flat();
  const end = spans[spans.length - 1].to;
  const drawn = mergeNarrow(spans, (time) => (time / end) * 1000);
  expect(drawn.length).toBeLessThanOrEqual(260);
  // What is left over at the end may be less than that.
  expect(new Set(drawn.slice(0, -1).map((span) => span.phase))).toEqual(new Set(["training"]));
  expect([drawn[0].from, drawn[drawn.length - 1].to]).toEqual([0, end]);
  for (const [i, span] of drawn.slice(1).entries()) expect(span.from).toBe(drawn[i].to);
});

test("a phase wide enough is drawn as it is, between others too", () => {
  const stall = { phase: "stall", from: 100, to: 140, text: "stall" };
  const spans = [
    { phase: "training", from: 0, to: 99, text: "training" },
    { phase: "checkpoint", from: 99, to: 100, text: "checkpoint" },
    stall,
  ];
  expect(mergeNarrow(spans, (time) => time)).toEqual(spans);
});
