import { describe, expect, it } from "vitest";
import { makePalette } from "@/charts/marey/kinds";
import type { Overlay } from "@/charts/marey/overlay";
import { layoutRows } from "@/charts/marey/rows";
import { escapeXml, makeSvg } from "@/charts/marey/image/svg";
import { makeStep } from "@/charts/marey/synthetic";

const step = makeStep(3, 8, []);
const overlay: Overlay = {
  layout: layoutRows(step.rows, 20),
  scroll: 0,
  window: step,
  width: 400,
  height: 60,
  gutter: 80,
  palette: makePalette("light"),
  intervals: step.intervals,
  nameOf: () => "<script>alert(1)</script>",
  microBatch: null,
  operator: -1,
  followed: -1,
  focusRow: -1,
  cursor: null,
  marked: null,
  memory: new Map(),
  missingLabel: "",
  steps: [],
};

describe("the picture as SVG", () => {
  it("has a bar per interval, a band per pair of neighbours and the rows' names", () => {
    const text = makeSvg(overlay, "step 1", "");
    expect(text.match(/<rect x=/g)).toHaveLength(24);
    expect(text.match(/<polygon/g)).toHaveLength(16);
    expect(text).toContain(">rank 2</text>");
  });

  it("takes names from traces as text only", () => {
    const text = makeSvg(overlay, 'a"><b', 'data:x" onload="y');
    expect(text).not.toContain("<script");
    expect(text).not.toContain('onload="');
    expect(escapeXml("a\u0000<".repeat(300)).length).toBeLessThan(800);
  });
});
