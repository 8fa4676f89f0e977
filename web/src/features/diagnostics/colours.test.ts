import { expect, test } from "vitest";
import { stableNumbers } from "@/features/diagnostics/colours";

const cluster = (id: number, ...gpus: string[]) => ({ id, gpus, why: "" });

test("clusters take the lowest numbers at first", () => {
  const numbers = stableNumbers([cluster(0, "a", "b"), cluster(1, "c")], new Map());
  expect([...numbers]).toEqual([
    ["a", 0],
    ["b", 0],
    ["c", 1],
  ]);
});

test("GPUs keep their colour when the largest cluster becomes another one", () => {
  const before = stableNumbers([cluster(0, "a", "b", "c"), cluster(1, "d", "e")], new Map());
  const after = stableNumbers([cluster(0, "c", "d", "e", "f"), cluster(1, "a", "b")], before);
  expect(after.get("a")).toBe(0);
  expect(after.get("d")).toBe(1);
});

test("a new cluster never takes a colour that is in use", () => {
  const before = stableNumbers([cluster(0, "a", "b"), cluster(1, "c", "d")], new Map());
  const after = stableNumbers([cluster(0, "a"), cluster(1, "b"), cluster(2, "c", "d")], before);
  expect(new Set([after.get("a"), after.get("b"), after.get("c")]).size).toBe(3);
  expect(after.get("c")).toBe(1);
});
