"""The united tree as columns, depth first: what an icicle and a tree in a notebook draw.

Of a large tree the call sites with most time are kept, with everything above them. What is left
out is not lost: the nearest kept caller says how many call sites it hides and what they took.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marey.callgraph.graphs import CallGraphs
from marey.callgraph.queries.selection import imbalances, mean_total
from marey.callgraph.tables import depth_first
from marey.callgraph.trees import depths
from marey.stats.boxes import box_plots

METRICS = ("inclusive", "exclusive", "calls", "imbalance")

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Outline:
    """A tree as columns in the order of a walk that takes the heaviest child first."""

    graphs: CallGraphs
    # The united node of each row.
    node: NDArray[np.int64]
    depth: NDArray[np.int32]
    # Means over the profiles that have the call site, NaN where nothing is known.
    values: dict[str, Floats]
    # How many profiles have it.
    count: NDArray[np.int64]
    # What a row hides: call sites below it that have no row, and what those took.
    hidden: NDArray[np.int64]
    hidden_inclusive: Floats
    total: float

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.node)


def outline_tree(
    graphs: CallGraphs, *, limit: int | None = None, chosen: NDArray[np.bool_] | None = None
) -> Outline:
    """Lay the tree out in rows; with a limit, or a choice, the rest is counted where it hangs."""
    size = len(graphs.tree)
    count = np.bincount(graphs.node, minlength=size)
    weight = np.asarray(np.bincount(graphs.node, graphs.inclusive, minlength=size), np.float64)
    kept = _keep_heaviest(graphs, weight, limit, chosen)
    order = depth_first(graphs.tree.parent, weight)
    rows = order[kept[order]]
    owner = np.full(size, -1, np.int32)
    _nearest_kept(graphs.tree.parent, kept, owner)
    left_out = ~kept & (owner >= 0) & (count > 0)
    hidden = np.bincount(owner[left_out], minlength=size)
    # Only the topmost of what is hidden: the times below are part of it.
    topmost = left_out & kept[np.maximum(graphs.tree.parent, 0)]
    took = np.bincount(owner[topmost], weight[topmost], minlength=size) / max(len(graphs), 1)
    return Outline(
        graphs,
        rows,
        depths(graphs.tree.parent)[rows],
        values={word: values[rows] for word, values in _metrics(graphs, count).items()},
        count=count[rows],
        hidden=hidden[rows],
        hidden_inclusive=np.asarray(took, np.float64)[rows],
        total=mean_total(graphs),
    )


def _keep_heaviest(
    graphs: CallGraphs, weight: Floats, limit: int | None, chosen: NDArray[np.bool_] | None
) -> NDArray[np.bool_]:
    size = len(graphs.tree)
    heaviest = weight.copy()
    kept = np.ones(size, bool) if chosen is None else chosen.copy()
    _raise_up(graphs.tree.parent, heaviest)
    if limit is not None and kept.sum() > limit:
        nodes = np.flatnonzero(kept)
        best = nodes[np.argsort(-heaviest[nodes], kind="stable")[:limit]]
        kept = np.zeros(size, bool)
        kept[best] = True
    _keep_callers(graphs.tree.parent, kept)
    return kept


def _metrics(graphs: CallGraphs, count: NDArray[np.int64]) -> dict[str, Floats]:
    size = len(graphs.tree)
    found = {}
    for word in ("inclusive", "exclusive", "calls"):
        column = getattr(graphs, word)
        known = ~np.isnan(column)
        sums = np.bincount(graphs.node[known], column[known], minlength=size)
        n = np.bincount(graphs.node[known], minlength=size)
        found[word] = np.where(n > 0, sums / n.clip(1), np.nan)
    found["imbalance"] = imbalances(graphs) if len(graphs) > 1 else np.full(size, np.nan)
    return found


def values_by_profile(graphs: CallGraphs, chosen: NDArray[np.bool_]) -> dict[str, Floats]:
    """Return the time of the chosen call sites in each profile; NaN where it has none of them.

    Of call sites that lie on one path the outermost counts, so that nothing is counted twice.
    """
    inside = np.full(len(chosen), -1, np.int32)
    _nearest_kept(graphs.tree.parent, chosen, inside)
    outermost = chosen & (inside < 0)
    profile = graphs.profile_of_rows()
    found = {}
    for word, counted in (("inclusive", outermost), ("exclusive", chosen)):
        rows = counted[graphs.node]
        sums = np.bincount(profile[rows], getattr(graphs, word)[rows], minlength=len(graphs))
        n = np.bincount(profile[rows], minlength=len(graphs))
        found[word] = np.where(n > 0, sums, np.nan)
    return found


def describe_values(values: Floats) -> dict[str, float | None]:
    """Return the box plot of one row of values as plain numbers."""
    boxes = box_plots(values[None, :])
    names = ("mean", "sd", "min", "q1", "median", "q3", "max", "imbalance")
    numbers = {name: float(getattr(boxes, name)[0]) for name in names}
    return {name: value if np.isfinite(value) else None for name, value in numbers.items()}


@njit(cache=True, nogil=True)
def _raise_up(parent: NDArray[np.int32], values: Floats) -> None:
    for node in range(len(parent) - 1, -1, -1):
        if parent[node] >= 0 and values[node] > values[parent[node]]:
            values[parent[node]] = values[node]


@njit(cache=True, nogil=True)
def _keep_callers(parent: NDArray[np.int32], kept: NDArray[np.bool_]) -> None:
    for node in range(len(parent) - 1, -1, -1):
        if kept[node] and parent[node] >= 0:
            kept[parent[node]] = True


@njit(cache=True, nogil=True)
def _nearest_kept(
    parent: NDArray[np.int32], kept: NDArray[np.bool_], owner: NDArray[np.int32]
) -> None:
    """Find for each node the nearest kept node above it; -1 where there is none."""
    for node in range(len(parent)):
        up = parent[node]
        if up >= 0:
            owner[node] = up if kept[up] else owner[up]
