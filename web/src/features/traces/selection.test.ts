import { describe, expect, it } from "vitest";
import {
  clauseValue,
  firstNumber,
  listNames,
  listNumbers,
  parseClauses,
  quoteValue,
  timeSpan,
  withClause,
} from "@/features/traces/selection";

describe("a selection", () => {
  const text = 'rank=3,7-9 and step=5 and name="a \\"b\\" and c","d" and time=12.5..20';

  it("is read clause by clause", () => {
    expect(parseClauses(text)?.map(({ field }) => field)).toEqual(["rank", "step", "name", "time"]);
    expect(listNames(clauseValue(text, "name"))).toEqual(['a "b" and c', "d"]);
    expect(listNumbers(clauseValue(text, "rank"))).toEqual([3, 7, 8, 9]);
    expect(firstNumber(text, "rank")).toBe(3);
    expect(timeSpan(text)).toEqual({ fromNs: 12.5e6, toNs: 20e6 });
  });

  it("changes one clause and keeps the others", () => {
    expect(withClause(text, "rank", "4")).toContain("step=5");
    expect(withClause(text, "rank", "4")).toContain("rank=4");
    expect(withClause("rank=4", "rank", null)).toBe("");
  });

  it("leaves another form alone", () => {
    expect(parseClauses('{"field": "rank"}')).toBeNull();
    expect(parseClauses("")).toEqual([]);
    expect(firstNumber("rank", "rank")).toBeNull();
  });

  it("takes any name back as it was", () => {
    const name = 'x"\\y, z and w';
    expect(listNames(clauseValue(`name=${quoteValue(name)}`, "name"))).toEqual([name]);
  });
});
