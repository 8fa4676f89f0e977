import { describe, expect, it } from "vitest";
import {
  factorToSlider,
  parseChanges,
  printChanges,
  setChange,
  sliderRange,
  sliderToFactor,
  valueOf,
} from "@/features/traces/whatif/changes";

describe("changes of a what-if", () => {
  it("go into the address and come back", () => {
    const text = "bucket=1MB;operator=aten::mm:x0.5;link=x2";
    expect(printChanges(parseChanges(text))).toBe(text);
    expect(parseChanges(" ; nonsense;link=x2")).toEqual([{ word: "link", value: "x2" }]);
  });

  it("are set in place, and taken out by an empty value", () => {
    const changes = parseChanges("bucket=1MB;link=x2");
    expect(printChanges(setChange(changes, "bucket", "5MB"))).toBe("bucket=5MB;link=x2");
    expect(printChanges(setChange(changes, "bucket", ""))).toBe("link=x2");
    expect(printChanges(setChange(changes, "overlap", "on"))).toBe("bucket=1MB;link=x2;overlap=on");
    expect(valueOf(changes, "link")).toBe("x2");
  });

  it("have sliders that double", () => {
    expect(factorToSlider("x2")).toBe(4);
    expect(sliderToFactor(4)).toBe("x2");
    expect(sliderToFactor(-4)).toBe("x0.5");
    expect(sliderToFactor(0)).toBe("");
    expect(factorToSlider("")).toBe(0);
    expect(sliderRange(0, 4)).toEqual([-12, 8]);
  });
});
