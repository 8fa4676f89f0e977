import { expect, test } from "vitest";
import type { Clause, Expression } from "@/features/rules/clause";
import {
  addBeside,
  fieldAt,
  idFrom,
  newCondition,
  printClause,
  replaceAt,
  suggestionIn,
  switchWord,
  toggleNot,
} from "@/features/rules/clause";
import { inPage } from "@/features/rules/checking";

const LOW: Expression = { metric: "util", statistic: "mean", op: "<", value: "10%" };
const OLD: Expression = { fact: "runtime", op: ">", value: "10m" };

// Clauses as the server documents them, with the text it prints for them.
const PAIRS: [Clause, string][] = [
  [{ when: LOW }, "util mean < 10%"],
  [
    {
      gpus: { reach: "any_node" },
      when: {
        metric: "util",
        statistic: "max",
        window: "30m",
        over: "workload max",
        op: ">",
        value: "0.75 * workload + 5%",
      },
    },
    "any node: util max[30m] over workload max > 0.75 * workload + 5%",
  ],
  [
    { gpus: { reach: "at_least_share", amount: 25 }, when: LOW },
    "at least 25% of gpus: util mean < 10%",
  ],
  [{ gpus: { reach: "at_least", amount: 2 }, when: LOW }, "at least 2 gpus: util mean < 10%"],
  [{ gpus: { reach: "all_but_first_rank" }, when: LOW }, "all but the first rank: util mean < 10%"],
  [
    { when: { and: [LOW, { not: { or: [OLD, LOW] } }] } },
    "util mean < 10% and not (runtime > 10m or util mean < 10%)",
  ],
  [{ when: { not: { fact: "user", op: "=", value: ["ada", "bob"] } } }, "not user in (ada, bob)"],
  [{ when: { fact: "user", op: "!=", value: ["ada"] } }, "user != ada"],
  [{ when: { fact: "name", op: "=", value: ['my "run"'] } }, 'name = "my \\"run\\""'],
  [
    { when: { metric: "util", statistic: "share(< 10%)", op: ">", value: "50%" } },
    "util share(< 10%) > 50%",
  ],
];

test.each(PAIRS)("fields are printed as the text that the server reads: %j", (clause, text) => {
  expect(printClause(clause).text).toBe(text);
});

test("each field's place in the text is known", () => {
  const { text, spans } = printClause({
    gpus: { reach: "all" },
    when: {
      and: [OLD, { metric: "power", statistic: "p95", window: "1h", op: ">=", value: "300 W" }],
    },
  });
  expect(
    spans.map(({ path, field, start, end }) => [path.join(), field, text.slice(start, end)]),
  ).toEqual([
    ["0", "subject", "runtime"],
    ["0", "op", ">"],
    ["0", "value", "10m"],
    ["1", "subject", "power"],
    ["1", "statistic", "p95"],
    ["1", "window", "1h"],
    ["1", "op", ">="],
    ["1", "value", "300 W"],
  ]);
  expect(fieldAt(spans, text.indexOf("300") + 4)?.field).toBe("value");
  expect(fieldAt(spans, text.indexOf("p95"))?.path).toEqual([1]);
});

test("a part is changed, and taken out with the combination that it leaves alone", () => {
  const tree: Expression = { and: [LOW, { or: [OLD, newCondition()] }] };
  expect(replaceAt(tree, [1, 1], () => null)).toEqual({ and: [LOW, OLD] });
  expect(replaceAt(tree, [0], toggleNot)).toEqual({
    and: [{ not: LOW }, { or: [OLD, newCondition()] }],
  });
  expect(replaceAt({ not: LOW }, [0], () => null)).toBeNull();
});

test("conditions are added under the word that is there, or a new one", () => {
  expect(addBeside(LOW, "and", OLD)).toEqual({ and: [LOW, OLD] });
  expect(addBeside({ and: [LOW, OLD] }, "and", LOW)).toEqual({ and: [LOW, OLD, LOW] });
  expect(addBeside({ and: [LOW, OLD] }, "or", LOW)).toEqual({ or: [{ and: [LOW, OLD] }, LOW] });
  expect(switchWord({ and: [LOW, OLD] })).toEqual({ or: [LOW, OLD] });
  expect(toggleNot(toggleNot(LOW))).toEqual(LOW);
});

test("the server's nearest word is offered", () => {
  expect(suggestionIn("Unknown metric or fact 'utl'; did you mean 'util'?")).toBe("util");
  expect(suggestionIn("A number is missing.")).toBeNull();
});

test("characters of the server are places in the page's text, also behind letters outside of the plane", () => {
  const place = { start: 2, end: 3, line: 1, column: 3, reason: "" };
  const text = "😀 x";
  const found = inPage(text, place);
  expect(text.slice(found.start, found.end)).toBe("x");
});

test("an id is made of a title", () => {
  expect(idFrom("  Läuft heiß & lang! ")).toBe("lauft-hei-lang");
  expect(idFrom("###")).toBe("");
});
