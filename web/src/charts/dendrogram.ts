/** A merge tree as elbows from leaves (left) to the root (right). */

export interface TreeLeaf {
  gpus: number;
  first: string;
  cluster: number | null;
}

export interface Tree {
  leaves: readonly TreeLeaf[];
  merges: readonly { left: number; right: number; height: number }[];
}

export interface Elbow {
  path: string;
  /** The cluster both branches belong to; null above the cut. */
  cluster: number | null;
}

export interface DrawnTree {
  elbows: Elbow[];
  leaves: { y: number; leaf: TreeLeaf }[];
  /** Where a cut gives this many clusters; x of the screen. */
  cutAt: (clusters: number) => number;
  /** How many clusters a cut at this x gives. */
  clustersAt: (x: number) => number;
}

/** Lay the tree over a box; heights run from left (0) to right (the root). */
export function layoutTree(tree: Tree, width: number, height: number): DrawnTree {
  const count = tree.leaves.length;
  const top = Math.max(1e-9, ...tree.merges.map((merge) => merge.height));
  const x = (value: number) => (value / top) * (width - 4) + 2;
  const nodes = tree.leaves.map((leaf, i) => ({
    x: 0,
    y: ((i + 0.5) / count) * height,
    cluster: leaf.cluster,
  }));
  const elbows: Elbow[] = [];
  for (const merge of tree.merges) {
    const [a, b] = [nodes[merge.left], nodes[merge.right]];
    const at = x(merge.height);
    const cluster = a.cluster !== null && a.cluster === b.cluster ? a.cluster : null;
    elbows.push({
      path: `M${a.x.toFixed(1)} ${a.y.toFixed(1)}H${at.toFixed(1)}V${b.y.toFixed(1)}H${b.x.toFixed(1)}`,
      cluster,
    });
    nodes.push({ x: at, y: (a.y + b.y) / 2, cluster });
  }
  const heights = tree.merges.map((merge) => merge.height).sort((a, b) => b - a);
  return {
    elbows,
    leaves: tree.leaves.map((leaf, i) => ({ y: nodes[i].y, leaf })),
    cutAt: (clusters) => {
      const above = heights[clusters - 2] ?? top * 1.04;
      const below = heights[clusters - 1] ?? 0;
      return x((above + below) / 2);
    },
    clustersAt: (place) => 1 + heights.filter((value) => x(value) > place).length,
  };
}
