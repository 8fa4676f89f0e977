import { describe, expect, it } from "vitest";
import { powers, share } from "@/charts/lines";

describe("places on an axis", () => {
  it("are even steps of the value, or of its logarithm", () => {
    expect(share(5, 0, 10, false)).toBe(0.5);
    expect(share(8, 1, 64, true)).toBeCloseTo(0.5);
    expect(share(64, 1, 64, true)).toBe(1);
  });

  it("are marked at powers of ten, or at the ends of a short range", () => {
    expect(powers(3, 2000)).toEqual([10, 100, 1000]);
    expect(powers(1, 100)).toEqual([1, 10, 100]);
    expect(powers(2, 30)).toEqual([2, 30]);
  });
});
