import { readFileSync } from "node:fs";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { Column } from "@/base/columns";
import { numberColumn, textColumn } from "@/base/columns";
import type { Predicate } from "@/base/predicate";
import { matches, OPERATORS, parsePredicate, PredicateError, select } from "@/base/predicate";

interface Golden {
  row: Record<string, unknown>;
  cases: { name: string; predicate: unknown; matches: boolean }[];
  refused: unknown[];
}
const golden = JSON.parse(
  readFileSync(new URL("../../../tests/golden/predicates.json", import.meta.url), "utf8"),
) as Golden;

test.each(golden.cases)("golden case '$name' is judged as Python judges it", (one) => {
  expect(matches(parsePredicate(one.predicate), golden.row)).toBe(one.matches);
});

test.each(golden.refused.map((document) => [JSON.stringify(document), document]))(
  "%s is refused with its place",
  (_, document) => {
    expect(() => parsePredicate(document)).toThrow(PredicateError);
    expect(() => parsePredicate(document)).toThrow(/at \$.*allowed|nested deeper/);
  },
);

const scalars = fc.oneof(
  fc.constantFrom("ada", "bob", "Ada", ""),
  fc.integer({ min: -3, max: 3 }),
  fc.double({ noNaN: true, min: -3, max: 3 }),
);
const comparisons = fc
  .record({
    field: fc.constantFrom("user", "gpus", "nothing"),
    op: fc.constantFrom(...OPERATORS),
    value: scalars,
  })
  .map(({ field, op, value }): Predicate => {
    if (op === "missing") return { field, op, value: value === 0 };
    if (op === "in") return { field, op, value: [value] };
    if (op === "between") return { field, op, value: [-1, Number(value) || 0] };
    if (op === "contains" || op === "prefix") return { field, op, value: String(value) };
    return { field, op, value };
  });
const predicates: fc.Arbitrary<Predicate> = fc.letrec<{ p: Predicate }>((tie) => ({
  p: fc.oneof(
    { maxDepth: 3 },
    comparisons,
    fc.array(tie("p"), { maxLength: 3 }).map((and) => ({ and })),
    fc.array(tie("p"), { maxLength: 3 }).map((or) => ({ or })),
    tie("p").map((not) => ({ not })),
  ),
})).p;

test("selecting from columns agrees with matching row by row", () => {
  const users = ["ada", "bob", "", "Ada"];
  const gpus = [1, -2, NaN, 2.5];
  const columns = new Map<string, Column>([
    ["user", textColumn(users)],
    ["gpus", numberColumn(gpus)],
  ]);
  fc.assert(
    fc.property(predicates, (predicate) => {
      const kept = select(parsePredicate(predicate), { rows: 4, columns });
      const expected = users.map((user, i) =>
        matches(predicate, { user: user || null, gpus: gpus[i] }) ? 1 : 0,
      );
      expect([...kept]).toEqual(expected);
    }),
  );
});
