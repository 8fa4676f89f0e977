import { describe, expect, it } from "vitest";
import { findInside, findNear, placeRanks } from "@/charts/network";

const nodes = (count: number, stages: number) =>
  Array.from({ length: count }, (_, rank) => ({
    rank,
    stage: rank % stages,
    communication: 1,
    suspicion: 0,
  }));

describe("the network of ranks", () => {
  it.each([
    [8, 1],
    [1024, 8],
  ])("has a place of its own for each of %d ranks", (count, stages) => {
    const places = placeRanks(nodes(count, stages), 900, 420);
    const seen = new Set<string>();
    for (let i = 0; i < count; i++) {
      seen.add(`${places[i * 2].toFixed(1)} ${places[i * 2 + 1].toFixed(1)}`);
      expect(places[i * 2]).toBeGreaterThan(0);
      expect(places[i * 2]).toBeLessThan(900);
      expect(places[i * 2 + 1]).toBeLessThan(420);
    }
    expect(seen.size).toBe(count);
  });

  it("is caught by a lasso", () => {
    const places = Float32Array.of(10, 10, 50, 50, 90, 90);
    const lasso = [
      [0, 0],
      [60, 0],
      [60, 60],
      [0, 60],
    ] as const;
    expect(findInside(nodes(3, 1), places, lasso)).toEqual([0, 1]);
    expect(findInside(nodes(3, 1), places, lasso.slice(0, 2))).toEqual([]);
  });

  it("is read rank by rank, the nearest one first", () => {
    const places = Float32Array.of(10, 10, 30, 10, 90, 90);
    expect(findNear(nodes(3, 1), places, [22, 10])?.rank).toBe(1);
    expect(findNear(nodes(3, 1), places, [60, 60])).toBeNull();
  });
});
