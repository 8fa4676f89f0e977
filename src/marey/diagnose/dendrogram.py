"""The top of a merge tree, small enough to draw: branches below it become leaves with a size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.diagnose.clusters import ClusterReport

MOST_LEAVES = 48


@dataclass(frozen=True, slots=True)
class Leaf:
    """A branch that is not opened further: how many GPUs, one of them, and their cluster."""

    gpus: int
    first: str
    cluster: int | None


@dataclass(frozen=True, slots=True)
class Merge:
    """Two nodes joined at a height; numbers from ``len(leaves)`` on are earlier merges."""

    left: int
    right: int
    height: float


@dataclass(frozen=True, slots=True)
class Dendrogram:
    """Leaves in the order in which no branches cross, and merges from the lowest to the root."""

    leaves: tuple[Leaf, ...]
    merges: tuple[Merge, ...]


def dendrogram(report: ClusterReport, names: Sequence[str]) -> Dendrogram | None:
    """Return the upper part of the tree; none for a single GPU or where the tree is approximate."""
    tree, n = report.tree, len(names)
    if report.approximate or len(tree) != n - 1 or n < 2:
        return None
    ordered = sorted(range(n), key=lambda i: names[i])
    kept = min(len(tree), MOST_LEAVES - 1)
    cut = n + len(tree) - kept
    members: dict[int, list[int]] = {}
    place: dict[int, int] = {}
    for node in _order_leaves(tree, 2 * n - 2, cut, n):
        members[node] = _count_below(tree, node, n)
        place[node] = len(place)
    leaves = []
    for node in place:
        own = [ordered[i] for i in members[node]]
        labels = {int(report.labels[i]) for i in own}
        cluster = labels.pop() if len(labels) == 1 else None
        leaves.append(Leaf(len(own), names[own[0]], cluster))
    merges = []
    for at in range(len(tree) - kept, len(tree)):
        left, right, height = int(tree[at, 0]), int(tree[at, 1]), float(tree[at, 2])
        merges.append(Merge(place[left], place[right], height))
        place[n + at] = len(leaves) + len(merges) - 1
    return Dendrogram(tuple(leaves), tuple(merges))


def _order_leaves(tree: NDArray[np.float64], root: int, cut: int, n: int) -> list[int]:
    found, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        if node < cut or node < n:
            found.append(node)
        else:
            waiting += [int(tree[node - n, 1]), int(tree[node - n, 0])]
    return found


def _count_below(tree: NDArray[np.float64], node: int, n: int) -> list[int]:
    found, waiting = [], [node]
    while waiting:
        at = waiting.pop()
        if at < n:
            found.append(at)
        else:
            waiting += [int(tree[at - n, 0]), int(tree[at - n, 1])]
    return found
