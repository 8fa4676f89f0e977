"""A forest whose leaves keep the waits that fell into them, so that any quantile can be read off.

Meinshausen, Quantile Regression Forests (JMLR 2006): a row's distribution is the mean, over the
trees, of the waits in its leaf. Leaves keep them as counts in narrow bins of log10 seconds; the
compiled walk adds up the few bins of a row's leaves, which costs less than asking several models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marey.queue.forecast.poll_table import Floats

Codes = NDArray[np.int32]
# Waits from a second to the longest, in bins of a twentieth of a decade (12 % of the wait).
LOWEST_LOG, BIN_LOG, BINS = 0.0, 0.05, 152
LEAF = 5
QUANTILES = (0.1, 0.5, 0.9)
_BLOCK = 128


@dataclass(frozen=True)
class QuantileForest:
    """Nodes of all trees in one list; the leaves' bins and shares in another."""

    roots: Codes
    # The feature a node asks, -1 in a leaf; its threshold; the first child (the other follows).
    feature: Codes
    threshold: NDArray[np.float32]
    left: Codes
    right: Codes
    # Where a leaf's bins begin and end in the lists below.
    bins_from: Codes
    bins_to: Codes
    bins: Codes
    shares: NDArray[np.float32]

    def predict(self, features: NDArray[Any], quantiles: Sequence[float] = QUANTILES) -> Floats:
        """Return log10 seconds at each quantile, one row per row of features."""
        rows = np.ascontiguousarray(features, np.float32)
        return np.asarray(_read_quantiles(rows, np.asarray(quantiles), *self._get_arrays()))

    def _get_arrays(self) -> tuple[NDArray[Any], ...]:
        return (
            self.roots, self.feature, self.threshold, self.left, self.right,
            self.bins_from, self.bins_to, self.bins, self.shares,
        )  # fmt: skip


def fit_forest(
    features: NDArray[Any], log_wait: Floats, weights: Floats, *, trees: int, seed: int = 0
) -> QuantileForest:
    """Return a forest fitted to weighted rows: half of it the usual trees, half with random cuts.

    The two kinds err on different days; together they are steadier than either.
    """
    from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

    rows = np.ascontiguousarray(features, np.float32)
    grown = [
        kind(
            trees // 2,
            min_samples_leaf=LEAF,
            max_features=share,
            max_samples=0.5,
            bootstrap=True,
            random_state=seed,
        ).fit(rows, log_wait, sample_weight=weights)
        for kind, share in ((RandomForestRegressor, 0.2), (ExtraTreesRegressor, 0.5))
    ]
    leaves = np.hstack([forest.apply(rows) for forest in grown])
    found = [tree.tree_ for forest in grown for tree in forest.estimators_]
    return _keep_leaves(found, leaves, log_wait, weights)


def _keep_leaves(
    trees: list[Any], leaves: NDArray[Any], log_wait: Floats, weights: Floats
) -> QuantileForest:
    """Return the grown trees with the bins of the waits in each leaf."""
    found = np.clip((log_wait - LOWEST_LOG) / BIN_LOG, 0, BINS - 1).astype(np.int64)
    counts = np.array([tree.node_count for tree in trees])
    roots = np.r_[0, np.cumsum(counts)[:-1]]
    keys = ((leaves + roots[None, :]) * BINS + found[:, None]).ravel(order="F")
    held, codes = np.unique(keys, return_inverse=True)
    sums = np.bincount(codes, np.tile(weights, len(roots)))
    nodes = held // BINS
    many = int(counts.sum())
    total = np.bincount(nodes, sums, minlength=many)
    bins_from = np.searchsorted(nodes, np.arange(many))
    left, right = (
        np.concatenate([np.asarray(side) + root for side, root in zip(sides, roots, strict=True)])
        for sides in ([t.children_left for t in trees], [t.children_right for t in trees])
    )
    feature = np.concatenate([np.asarray(tree.feature) for tree in trees])
    return QuantileForest(
        roots=roots.astype(np.int32),
        feature=np.where(feature < 0, -1, feature).astype(np.int32),
        threshold=np.concatenate([np.asarray(t.threshold) for t in trees]).astype(np.float32),
        left=left.astype(np.int32),
        right=right.astype(np.int32),
        bins_from=bins_from.astype(np.int32),
        bins_to=np.r_[bins_from[1:], len(nodes)].astype(np.int32),
        bins=(held % BINS).astype(np.int32),
        shares=(sums / total[nodes]).astype(np.float32),
    )


@njit(cache=True, nogil=True)
def _read_quantiles(
    rows: NDArray[np.float32],
    quantiles: Floats,
    roots: Codes,
    feature: Codes,
    threshold: NDArray[np.float32],
    left: Codes,
    right: Codes,
    bins_from: Codes,
    bins_to: Codes,
    bins: Codes,
    shares: NDArray[np.float32],
) -> Floats:
    """Walk every row down every tree, add up its leaves' bins and read the quantiles off."""
    out = np.empty((len(rows), len(quantiles)))
    density = np.zeros((_BLOCK, BINS), np.float32)
    # A block of rows and one tree at a time: both stay in the processor's cache.
    for begin in range(0, len(rows), _BLOCK):
        block = rows[begin : begin + _BLOCK]
        density[:] = 0.0
        for root in roots:
            for i in range(len(block)):
                node = root
                asked = feature[node]
                while asked >= 0:
                    node = left[node] if block[i, asked] <= threshold[node] else right[node]
                    asked = feature[node]
                for k in range(bins_from[node], bins_to[node]):
                    density[i, bins[k]] += shares[k]
        for i in range(len(block)):
            _read_row(density[i], quantiles, len(roots), out[begin + i])
    return out


@njit(cache=True, nogil=True)
def _read_row(density: NDArray[np.float32], quantiles: Floats, trees: int, out: Floats) -> None:
    """Write where the summed shares of a row reach each quantile (ascending)."""
    sought = 0
    below = 0.0
    out[:] = LOWEST_LOG + BIN_LOG * BINS
    for b in range(BINS):
        here = density[b] / trees
        while sought < len(quantiles) and here > 0 and below + here >= quantiles[sought]:
            out[sought] = LOWEST_LOG + BIN_LOG * (b + (quantiles[sought] - below) / here)
            sought += 1
        below += here
