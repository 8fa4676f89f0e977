import fc from "fast-check";
import { expect, test } from "vitest";
import type { RuleDocument } from "@/base/verdicts/documents";
import type { RuleEntry } from "@/base/verdicts/slots";
import {
  assignSlots,
  boundText,
  byFault,
  faultLabel,
  pagesOf,
  rankEntries,
  ruleEntries,
  SLOTS,
} from "@/base/verdicts/slots";
import type { RuleVerdict } from "@/base/verdicts/verdicts";

function entry(id: string, now: number, life = now, more: Partial<RuleEntry> = {}): RuleEntry {
  return {
    field: `rule.${id}`,
    kind: "site",
    title: id,
    when: "",
    severity: "warning",
    fault: "",
    enabled: true,
    now: { workloads: now, gpus: now },
    life: { workloads: life, gpus: life },
    notJudged: 0,
    asked: more.kind === "lens",
    rule: null,
    lens: null,
    ...more,
  };
}

const fields = (entries: readonly RuleEntry[]) =>
  entries.map((one) => one.field.replace("rule.", ""));

test("most violated now comes first, then over the life, then by severity and name", () => {
  const ranked = rankEntries([
    entry("a", 0, 9),
    entry("quiet", 0),
    entry("b", 2),
    entry("c", 5),
    entry("worse", 2, 2, { severity: "critical" }),
    entry("off", 50, 50, { enabled: false }),
  ]);
  expect(fields(ranked)).toEqual(["c", "worse", "b", "a", "quiet", "off"]);
});

test("a lens stands before the site's rules: somebody asked for it", () => {
  expect(fields(rankEntries([entry("c", 5), entry("mine", 0, 0, { kind: "lens" })]))).toEqual([
    "mine",
    "c",
  ]);
});

test("a rule keeps its place while it is violated, whatever overtakes it", () => {
  const first = assignSlots([], [entry("a", 3), entry("b", 2)]);
  expect(first).toEqual(["rule.a", "rule.b"]);
  const later = assignSlots(first, [entry("new", 90), entry("b", 20), entry("a", 1)]);
  expect(later).toEqual(["rule.a", "rule.b", "rule.new"]);
});

test("a place that falls free goes to the first rule without one", () => {
  expect(assignSlots(["rule.a", "rule.b"], [entry("c", 9), entry("b", 2), entry("a", 0)])).toEqual([
    "rule.c",
    "rule.b",
  ]);
});

test("places hold each violated rule at most once, and only violated ones", () => {
  const some = fc
    .array(fc.record({ id: fc.integer({ min: 0, max: 30 }), now: fc.nat(5), life: fc.nat(5) }), {
      maxLength: 40,
    })
    .map((list) => {
      const known = new Map(list.map((one) => [one.id, one]));
      return rankEntries(
        [...known.values()].map((one) => entry(String(one.id), one.now, one.life)),
      );
    });
  fc.assert(
    fc.property(some, some, (before, after) => {
      const slots = assignSlots(assignSlots([], before), after);
      const held = slots.filter((field) => field !== null);
      const violated = after.filter((one) => one.now.workloads + one.life.workloads > 0);
      expect(new Set(held).size).toBe(held.length);
      expect(held.every((field) => violated.some((one) => one.field === field))).toBe(true);
      expect(held.length).toBe(Math.min(SLOTS, violated.length));
    }),
  );
});

test("pages together show every violated rule once", () => {
  const ranked = rankEntries(Array.from({ length: 21 }, (_, i) => entry(`r${i}`, i)));
  expect(pagesOf(ranked)).toBe(3);
  const all = [0, 1, 2].flatMap((page) => assignSlots([], ranked, page));
  expect(new Set(all).size).toBe(20);
});

test("what somebody asked for has a place although all are taken, and what gave way is on the next page", () => {
  const many = Array.from({ length: 10 }, (_, i) => entry(`r${i}`, 20 - i));
  const before = assignSlots([], rankEntries(many));
  const mine = entry("mine", 0, 0, { kind: "lens" });
  const saved = entry("saved", 1, 1, { asked: true });
  const ranked = rankEntries([...many, mine, saved]);
  const first = assignSlots(before, ranked);
  expect(first.slice(0, 6)).toEqual(before.slice(0, 6));
  expect(new Set(first.slice(6))).toEqual(new Set(["rule.mine", "rule.saved"]));
  expect(assignSlots(first, ranked)).toEqual(first);
  expect(assignSlots(first, ranked, 1)).toEqual(["rule.r6", "rule.r7", "rule.r8", "rule.r9"]);
  expect(pagesOf(ranked)).toBe(2);
});

test("rules are grouped by kind of fault, the most violated kind first", () => {
  const groups = byFault([
    entry("a", 0, 0, { fault: "xid" }),
    entry("b", 1, 1, { fault: "idle_gpus" }),
    entry("mine", 0, 0, { kind: "lens", fault: "lens" }),
  ]);
  expect(groups.map((group) => [group.label, group.violated])).toEqual([
    ["My lenses", 0],
    ["Idle GPUs", 1],
    ["XID", 0],
  ]);
  expect(faultLabel("")).toBe("Other rules");
});

test("thresholds are put in their places, not into texts", () => {
  expect(boundText('util mean < $low and user = "$low" and x > $other', { low: "15%" })).toBe(
    'util mean < 15% and user = "$low" and x > $other',
  );
});

test("entries carry their verdict's counts", () => {
  const rule = {
    id: "low",
    when: "util mean < $low",
    thresholds: { low: "5%" },
    severity: "info",
    enabled: true,
    waste: true,
    now: "10m",
    open_after: "0s",
    close_after: "10m",
    origin: "pack",
    warnings: [],
    scope: "site",
    owner: "",
    may_change: true,
  } as RuleDocument;
  const verdict: RuleVerdict = {
    life: { workloads: new Set(["1", "2"]), gpus: new Set(["h:0", "h:1", "h:2"]) },
    now: { workloads: new Set(["1"]), gpus: new Set(["h:0"]) },
    notJudged: new Set(["7"]),
  };
  const [found] = ruleEntries([rule], [], new Map([["rule.low", verdict]]));
  expect(found).toMatchObject({
    field: "rule.low",
    title: "low",
    when: "util mean < 5%",
    now: { workloads: 1, gpus: 1 },
    life: { workloads: 2, gpus: 3 },
    notJudged: 1,
  });
});

test("ten thousand rules are ranked, grouped and given places without a wait", () => {
  const many = Array.from({ length: 10_000 }, (_, i) =>
    entry(`r${i}`, i % 50 === 0 ? i : 0, 0, { fault: i % 2 ? "xid" : "" }),
  );
  const ranked = rankEntries(many);
  expect(byFault(ranked).map((group) => group.entries.length)).toEqual([5_000, 5_000]);
  expect(assignSlots([], ranked)).toHaveLength(SLOTS);
  expect(ranked[0].field).toBe("rule.r9950");
});
