import { describe, expect, it } from "vitest";
import fc from "fast-check";
import type { Flow } from "@/charts/sankey/layout";
import { layoutSankey, nodeAt } from "@/charts/sankey/layout";

const SIZE = { width: 900, height: 500, labels: 120 };
const flow = (source: number, target: number, value: number, loop = false): Flow => ({
  source,
  target,
  value,
  loop,
  ofTarget: null,
});
const node = (name: string, value: number) => ({ name, value });

describe("the layout of a Sankey", () => {
  it("puts callers left of what they call, heights by time", () => {
    const layout = layoutSankey(
      [node("main", 100), node("load", 30), node("solve", 70)],
      [flow(0, 1, 30), flow(0, 2, 70)],
      SIZE,
    );
    expect(layout.nodes[0].x).toBeLessThan(layout.nodes[1].x);
    expect(layout.nodes[2].height / layout.nodes[1].height).toBeCloseTo(7 / 3, 1);
    expect(nodeAt(layout, layout.nodes[2].x + 1, layout.nodes[2].y + 1)).toBe(2);
  });

  it("draws recursion and cycles as loops and never fails", () => {
    const layout = layoutSankey(
      [node("a", 10), node("b", 10), node("c", 10)],
      [flow(0, 1, 5), flow(1, 2, 5), flow(2, 0, 5), flow(1, 1, 3)],
      SIZE,
    );
    expect(layout.flows.filter((one) => one.loop)).toHaveLength(2);
  });

  it("gives every node a visible height, whatever the graph", () => {
    const graph = fc.integer({ min: 1, max: 40 }).chain((count) =>
      fc.record({
        values: fc.array(fc.double({ min: 0, max: 1e12, noNaN: true }), {
          minLength: count,
          maxLength: count,
        }),
        flows: fc.array(
          fc.tuple(fc.nat(count - 1), fc.nat(count - 1), fc.double({ min: 0, max: 1e12 })),
          { maxLength: 120 },
        ),
      }),
    );
    fc.assert(
      fc.property(graph, ({ values, flows }) => {
        const layout = layoutSankey(
          values.map((value, i) => node(String(i), value)),
          flows.map(([a, b, value]) => flow(a, b, value)),
          SIZE,
        );
        for (const one of layout.nodes) {
          expect(one.height).toBeGreaterThanOrEqual(1);
          expect(Number.isFinite(one.x) && Number.isFinite(one.y)).toBe(true);
          expect(one.y + one.height).toBeLessThanOrEqual(SIZE.height + 1);
        }
        for (const one of layout.flows)
          expect(
            one.loop || layout.nodes[one.flow.source].x < layout.nodes[one.flow.target].x,
          ).toBe(true);
      }),
      { numRuns: 60 },
    );
  });

  it("has heights at 3,000 nodes", () => {
    const many = Array.from({ length: 3000 }, (_, i) => node(String(i), 1 + (i % 7)));
    const flows = many.slice(1).map((_, i) => flow(Math.floor(i / 12), i + 1, 1));
    const layout = layoutSankey(many, flows, SIZE);
    expect(Math.min(...layout.nodes.map((one) => one.height))).toBeGreaterThan(1);
  });
});
