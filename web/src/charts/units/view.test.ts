import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { View } from "@/charts/units/view";
import { attributesOf, parseView, printView, ViewError } from "@/charts/units/view";

const refusals: [string, unknown, RegExp][] = [
  ["a document that is not an object", 3, /At \$: 3 is not allowed; allowed: object/],
  ["a missing version", { layers: [] }, /'version' is missing/],
  ["a version of the future", { version: 9, layers: [] }, /At \$\.version: 9 .* allowed: 1/],
  ["an unknown key", { version: 1, layers: [], colors: {} }, /At \$\.colors.*allowed: .*colour/],
  [
    "an unknown operator",
    { version: 1, layers: [{ by: "host", layout: "grid" }] },
    /At \$\.layers\[0\]\.layout: "grid".*pack, fill_x, fill_y, list_x, list_y/,
  ],
  [
    "a number out of range",
    { version: 1, layers: [{ by: "host", label: 400 }] },
    /At \$\.layers\[0\]\.label: 400 .* 0 to 40/,
  ],
  [
    "a wrong condition",
    { version: 1, layers: [], filter: [{ field: "user", op: "like", value: "a" }] },
    /\$\.filter\[0\]\.op.*eq, ne/,
  ],
  [
    "an unknown attribute",
    { version: 1, layers: [{ by: "hosts" }] },
    /At \$\.layers\[0\]\.by: 'hosts'.*allowed: host, user, util, state/,
  ],
  [
    "an unknown attribute to colour by",
    { version: 1, layers: [], colour: { by: "flavour" } },
    /At \$\.colour\.by: 'flavour'/,
  ],
  [
    "a prototype name as a key",
    JSON.parse('{"version": 1, "layers": [], "__proto__": {"x": 1}, "constructor": 1}'),
    /constructor/,
  ],
];

describe("the view grammar", () => {
  test.each(refusals)("refuses %s with the place and what is allowed", (_, document, message) => {
    expect(() => parseView(document, ["host", "user", "util", "state"])).toThrow(ViewError);
    expect(() => parseView(document, ["host", "user", "util", "state"])).toThrow(message);
  });

  test("fills in every default", () => {
    const view = parseView({ version: 1, layers: [{ by: "host" }] });
    expect(view.layers[0]).toMatchObject({
      layout: "pack",
      size: "count",
      sort: { by: "name", order: "ascending" },
    });
    expect(view.units).toBe("gpus");
  });

  test("knows which attributes it needs", () => {
    const view = parseView({
      version: 1,
      layers: [{ by: "host", sort: { by: "util", aggregate: "mean" } }, { by: "user" }],
      colour: { by: "power" },
      filter: [{ field: "state", op: "eq", value: "idle" }],
    });
    expect(attributesOf(view).sort()).toEqual(["host", "power", "state", "user", "util"]);
  });

  test("prints what it parsed: parse and print are inverse", () => {
    const layers = fc.record({
      by: fc.constantFrom("host", "user", "util"),
      layout: fc.constantFrom("pack", "fill_x", "fill_y", "list_x", "list_y"),
      size: fc.constantFrom("uniform", "count"),
      label: fc.integer({ min: 0, max: 40 }),
      bins: fc.integer({ min: 2, max: 64 }),
    });
    const views = fc.record(
      {
        version: fc.constant(1),
        title: fc.string({ maxLength: 100 }),
        units: fc.constantFrom("gpus", "waiting", "both"),
        layers: fc.array(layers, { maxLength: 5 }),
        unit: fc.record({ layout: fc.constantFrom("pack", "fill_y"), across: fc.nat({ max: 9 }) }),
        colour: fc.record({
          by: fc.constant("util"),
          remap: fc.boolean(),
          min: fc.option(fc.integer()),
        }),
        filter: fc.array(fc.constant({ field: "user", op: "eq", value: "ada" }), { maxLength: 2 }),
        others: fc.constantFrom("hide", "fade"),
      },
      { requiredKeys: ["version", "layers"] },
    );
    fc.assert(
      fc.property(views, (document) => {
        const view: View = parseView(document);
        expect(parseView(JSON.parse(JSON.stringify(printView(view))))).toEqual(view);
      }),
    );
  });
});
