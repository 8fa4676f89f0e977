import { expect, test } from "vitest";
import { layoutTree } from "@/charts/dendrogram";

const tree = {
  leaves: [0, 0, 1].map((cluster, i) => ({ gpus: 1, first: `g${i}`, cluster })),
  merges: [
    { left: 0, right: 1, height: 0.1 },
    { left: 3, right: 2, height: 0.9 },
  ],
};

test("a cut drawn for a number of clusters gives that number back", () => {
  const drawn = layoutTree(tree, 200, 90);
  for (const clusters of [1, 2, 3]) expect(drawn.clustersAt(drawn.cutAt(clusters))).toBe(clusters);
});

test("branches within one cluster carry it, those above the cut none", () => {
  expect(layoutTree(tree, 200, 90).elbows.map((elbow) => elbow.cluster)).toEqual([0, null]);
});
