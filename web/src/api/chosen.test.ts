import { beforeEach, expect, test } from "vitest";
import { chooseCluster, chosenCluster, inCluster } from "@/api/chosen";

let kept: Map<string, string>;
const tab = {
  getItem: (key: string) => kept.get(key) ?? null,
  setItem: (key: string, value: string) => void kept.set(key, value),
};
const among =
  (...names: string[]) =>
  () =>
    Promise.resolve(names);

beforeEach(() => {
  kept = new Map();
});

test("without a name it is the default cluster, or the first there is", async () => {
  expect(await chooseCluster("", tab, among())).toBe("default");
  expect(inCluster("/summary?points=2")).toBe("/summary?points=2");
  kept.clear();
  expect(await chooseCluster("", tab, among("alpha", "default"))).toBe("default");
  kept.clear();
  expect(await chooseCluster("?view=physical", tab, among("alpha", "beta"))).toBe("alpha");
});

test("the address counts more than the tab, and the tab more than the order", async () => {
  await chooseCluster("?cluster=beta", tab, among("alpha", "beta"));
  expect(chosenCluster()).toBe("beta");
  expect(await chooseCluster("", tab, among("alpha", "beta"))).toBe("beta");
  expect(await chooseCluster("", tab, among("alpha"))).toBe("alpha");
  expect(await chooseCluster("?cluster=gone", tab, among("alpha"))).toBe("gone");
});

test("addresses name the cluster once, whatever its name", async () => {
  await chooseCluster("?cluster=a%26b%20c", tab, among("a&b c"));
  expect(inCluster("/cluster")).toBe("/cluster?cluster=a%26b%20c");
  expect(inCluster("/cluster?at=1")).toBe("/cluster?at=1&cluster=a%26b%20c");
  expect(inCluster("/cluster?cluster=x")).toBe("/cluster?cluster=x");
});
