"""Agglomerative clustering of GPUs by the shape of a metric; deterministic, order-independent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.stats.divergence import jensen_shannon

# Above this many, micro-clusters are linked instead of the GPUs themselves (approximate).
EXACT_LIMIT = 8_192
MICRO_CLUSTERS = 2_048
# Two groups whose mean distance is below this look the same to a person: one cluster.
# (A distance of 1 is no overlap at all; two normal histograms one deviation apart are at 0.40.)
LEAST_SEPARATION = 0.3
MOST_CLUSTERS = 12


@dataclass(frozen=True, slots=True)
class Clustering:
    """Labels per row (0 is the largest cluster), the merge tree, and how it was cut."""

    labels: NDArray[np.int32]
    tree: NDArray[np.float64]
    criterion: str
    approximate: bool

    @property
    def count(self) -> int:
        """How many clusters there are."""
        return int(self.labels.max()) + 1 if len(self.labels) else 0


@dataclass(frozen=True, slots=True)
class CuttableTree:
    """A merge tree, which costs much, with what a cut of it needs, which costs little."""

    tree: NDArray[np.float64]
    # Rows in the canonical order, and (above the exact limit) the micro-cluster of each.
    order: NDArray[np.intp]
    members: NDArray[np.intp] | None
    # What a distance of 1 means.
    scale: float

    @property
    def leaves(self) -> int:
        """How many rows, or micro-clusters, the tree merges."""
        return len(self.tree) + 1


def cluster_histograms(
    counts: NDArray[Any], names: Sequence[str], *, clusters: int | None = None
) -> Clustering:
    """Cluster rows of histogram counts by Jensen-Shannon distance."""
    return cut_tree(merge_histograms(counts, names), clusters)


def merge_histograms(counts: NDArray[Any], names: Sequence[str]) -> CuttableTree:
    """Return the merge tree of rows of histogram counts by Jensen-Shannon distance."""
    return _merge(np.asarray(counts, np.float64), names, "histogram")


def cluster_timelines(
    values: NDArray[Any],
    names: Sequence[str],
    *,
    by: str = "euclidean",
    clusters: int | None = None,
) -> Clustering:
    """Cluster rows of a metric over time by Euclidean or correlation distance."""
    return cut_tree(merge_timelines(values, names, by=by), clusters)


def merge_timelines(
    values: NDArray[Any], names: Sequence[str], *, by: str = "euclidean"
) -> CuttableTree:
    """Return the merge tree of rows of a metric over time."""
    return _merge(_fill_gaps(np.asarray(values, np.float64)), names, by)


def _fill_gaps(values: NDArray[np.float64]) -> NDArray[np.float64]:
    # A gap says nothing: it takes the other GPUs' median of that time, else the row's own mean.
    gap = np.isnan(values)
    if not gap.any():
        return values
    middle = np.zeros(values.shape[1])
    some = ~gap.all(axis=0)
    middle[some] = np.nanmedian(values[:, some], axis=0)
    return np.where(gap, middle[None, :], values)


def _merge(rows: NDArray[np.float64], names: Sequence[str], by: str) -> CuttableTree:
    # The canonical order makes ties fall alike whatever order the GPUs came in.
    order = np.argsort(np.array(names, dtype=object), kind="stable")
    if len(rows) < 2:
        return CuttableTree(np.zeros((0, 4)), order, None, 1.0)
    rows = rows[order]
    members = _make_micro_clusters(rows) if len(rows) > EXACT_LIMIT else None
    centres = rows if members is None else _compute_centres(rows, members)
    # Here and below only now: SciPy is 60 MB that a server has no use for until somebody asks.
    from scipy.cluster.hierarchy import linkage

    tree = linkage(_compute_distances(centres, by), "average")
    return CuttableTree(tree, order, members, _scale(centres, by))


def cut_tree(merged: CuttableTree, clusters: int | None = None) -> Clustering:
    """Cut into so many clusters, or where the gap between merges is widest."""
    n = len(merged.order)
    if n < 2:
        labels = np.zeros(n, np.int32)
        return Clustering(labels, merged.tree, "one GPU: nothing to compare", False)
    flat, criterion = _cut_linkage(merged.tree, merged.leaves, clusters, merged.scale)
    labels = np.empty(n, np.int32)
    labels[merged.order] = flat if merged.members is None else flat[merged.members]
    approximate = merged.members is not None
    return Clustering(_order_by_size(labels, merged.order), merged.tree, criterion, approximate)


def _compute_distances(rows: NDArray[np.float64], by: str) -> NDArray[np.float64]:
    if by == "histogram":
        return jensen_shannon(rows)
    if by == "euclidean":
        from scipy.spatial.distance import pdist

        return np.asarray(pdist(rows, "euclidean"))
    centred = rows - rows.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(centred, axis=1, keepdims=True)
    # A constant row correlates with nothing; it is at distance 1 from every other.
    unit = np.divide(centred, norms, out=np.zeros_like(centred), where=norms > 1e-12)
    similarity = unit @ unit.T
    upper = np.triu_indices(len(rows), 1)
    return np.asarray(np.clip(1.0 - similarity[upper], 0.0, 2.0))


def _scale(rows: NDArray[np.float64], by: str) -> float:
    """Return the scale of distances: for timelines, the spread of all their values."""
    if by != "euclidean":
        return 1.0
    spread = float(np.nanpercentile(rows, 95) - np.nanpercentile(rows, 5))
    return max(spread, 1e-9) * float(np.sqrt(rows.shape[1]))


def _cut_linkage(
    tree: NDArray[np.float64], n: int, clusters: int | None, scale: float
) -> tuple[NDArray[np.int32], str]:
    from scipy.cluster.hierarchy import fcluster

    if clusters is not None:
        wanted = max(1, min(clusters, n))
        return fcluster(tree, wanted, "maxclust").astype(np.int32) - 1, f"{wanted} asked for"
    heights = tree[:, 2] / scale
    if heights[-1] < LEAST_SEPARATION:
        return (
            np.zeros(n, np.int32),
            f"largest separation {heights[-1]:.2f} is below {LEAST_SEPARATION:g}: all alike",
        )
    # Widest gap between successive merges: the merges above it joined what does not belong.
    tail = heights[-min(MOST_CLUSTERS, len(heights)) :]
    below = np.concatenate([[heights[-len(tail) - 1] if len(heights) > len(tail) else 0.0], tail])
    gaps = np.where(tail >= LEAST_SEPARATION, np.diff(below), -1.0)
    at = int(np.argmax(gaps))
    wanted = len(tail) - at + 1
    cut = (below[at] + tail[at]) / 2
    flat = fcluster(tree, cut * scale, "distance").astype(np.int32) - 1
    return flat, f"widest gap in separation, {below[at]:.2f} to {tail[at]:.2f}: {wanted} clusters"


def _order_by_size(labels: NDArray[np.int32], order: NDArray[np.intp]) -> NDArray[np.int32]:
    """Renumber: 0 the largest; equal sizes by the first name in the canonical order."""
    kinds, first = np.unique(labels[order], return_index=True)
    sizes = np.array([(labels == kind).sum() for kind in kinds])
    ranked = kinds[np.lexsort((first, -sizes))]
    new = np.empty(int(labels.max()) + 1, np.int32)
    new[ranked] = np.arange(len(ranked), dtype=np.int32)
    return new[labels]


def _make_micro_clusters(rows: NDArray[np.float64]) -> NDArray[np.intp]:
    """Assign every row to one of evenly chosen exemplars along the first principal axes."""
    centred = rows - rows.mean(axis=0)
    _, _, axes = np.linalg.svd(centred[:: max(1, len(rows) // 4096)], full_matrices=False)
    places = centred @ axes[:3].T
    rank = np.lexsort(places.T[::-1])
    members = np.empty(len(rows), np.intp)
    members[rank] = np.arange(len(rows)) * MICRO_CLUSTERS // len(rows)
    return members


def _compute_centres(rows: NDArray[np.float64], members: NDArray[np.intp]) -> NDArray[np.float64]:
    sums = np.zeros((MICRO_CLUSTERS, rows.shape[1]))
    np.add.at(sums, members, rows)
    return sums / np.bincount(members, minlength=MICRO_CLUSTERS)[:, None]
