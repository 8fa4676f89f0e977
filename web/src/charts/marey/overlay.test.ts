import { expect, it } from "vitest";
import { makePalette } from "@/charts/marey/kinds";
import type { Overlay } from "@/charts/marey/overlay";
import { drawOverlay } from "@/charts/marey/overlay";
import { layoutRows } from "@/charts/marey/rows";
import { makeStep } from "@/charts/marey/synthetic";

/** A canvas that only keeps the texts written on it. */
function makeContext(texts: string[]): CanvasRenderingContext2D {
  const calls: Record<string, unknown> = {
    fillText: (text: string) => texts.push(text),
    measureText: (text: string) => ({ width: 6 * text.length }),
  };
  return new Proxy(calls, {
    get: (kept, name: string) => kept[name] ?? (() => undefined),
    set: () => true,
  }) as unknown as CanvasRenderingContext2D;
}

/** The texts drawn with the pointer on row 1, whose clock is this far off. */
function drawnTexts(clockErrorNs: number): string[] {
  const rows = makeStep(4, 10, []).rows.map((row) => ({ ...row, clockErrorNs }));
  const texts: string[] = [];
  const overlay: Overlay = {
    layout: layoutRows(rows, 20),
    scroll: 0,
    window: { fromNs: 0, toNs: 1e6 },
    width: 800,
    height: 80,
    gutter: 100,
    palette: makePalette("light"),
    intervals: null,
    nameOf: () => "",
    microBatch: null,
    operator: -1,
    followed: -1,
    focusRow: -1,
    cursor: { timeNs: 5e5, row: 1 },
    marked: null,
    memory: new Map(),
    missingLabel: "not recorded",
    steps: [],
  };
  drawOverlay(makeContext(texts), overlay);
  return texts;
}

it("says the clock's error at the pointer, and nothing where clocks agree", () => {
  expect(drawnTexts(12_000)).toContain("±12\u2009µs");
  expect(drawnTexts(0).some((text) => text.startsWith("±"))).toBe(false);
});
