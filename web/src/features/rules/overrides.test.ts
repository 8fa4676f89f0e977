import { describe, expect, it } from "vitest";
import { cleanOverrides, overrideProblem, overrideText, whom } from "@/features/rules/overrides";
import { thresholdNames } from "@/base/verdicts/slots";

describe("exceptions of a rule", () => {
  it("are sent without what was left empty or belongs to no threshold", () => {
    const made = cleanOverrides(
      [{ partition: " debug ", project: "", thresholds: { low: "5%", high: " ", gone: "3" } }],
      ["low", "high"],
    );
    expect(made).toEqual([{ partition: "debug", thresholds: { low: "5%" } }]);
  });
  it("that switch the rule off say no threshold", () => {
    expect(
      cleanOverrides([{ project: "toys", enabled: false, thresholds: { low: "5%" } }], ["low"]),
    ).toEqual([{ project: "toys", enabled: false }]);
  });
  it("that are for nobody, or change nothing, are not saved", () => {
    expect(overrideProblem([{ thresholds: { low: "5%" } }])).toContain("partition or a project");
    expect(overrideProblem([{ partition: "debug" }])).toContain("changes nothing");
    expect(overrideProblem([{ partition: "debug", enabled: false }])).toBeNull();
  });
  it("are said in words", () => {
    expect(
      `${whom({ partition: "debug", project: "toys" })}: ${overrideText({ thresholds: { low: "5%" } })}`,
    ).toBe("partition debug and project toys: $low = 5%");
    expect(overrideText({ enabled: false })).toBe("disabled");
  });
});

describe("the thresholds of a text", () => {
  it("are named once each, but not inside quotes", () => {
    expect(
      thresholdNames(`util < $low and user != "$boss" and (power < $high or util > $low)`),
    ).toEqual(["low", "high"]);
  });
});
