"""Boosted trees of log waits, kept as flat lists that a compiled walk reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marey.queue.forecast.poll_table import Floats

Codes = NDArray[np.int32]
_ROUNDS, _RATE = 80, 0.1
# What the boosting itself would cut a feature into: one byte, less one for missing values.
_BINS = 255
_BLOCK = 128


@dataclass(frozen=True)
class BoostedTrees:
    """Nodes of all trees in one list; a row's answer is the base and the sum of its leaves."""

    base: float
    roots: Codes
    # The feature a node asks, -1 in a leaf; its threshold; the children; what a leaf adds.
    feature: Codes
    threshold: NDArray[np.float64]
    left: Codes
    right: Codes
    value: NDArray[np.float64]

    def predict(self, features: NDArray[Any]) -> Floats:
        """Return log10 seconds, one per row of features."""
        rows = np.ascontiguousarray(features, np.float32)
        return self.base + np.asarray(
            _add_leaves(
                rows, self.roots, self.feature, self.threshold, self.left, self.right, self.value
            )
        )


def fit_boosting(
    features: NDArray[Any], log_wait: Floats, weights: Floats, *, models: int, seed: int = 0
) -> BoostedTrees:
    """Return the mean of several boosted models, each of which sees other features at its cuts."""
    # The limit holds for libraries that are loaded: the boosting comes first.
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    rows, cuts = cut_into_bins(np.ascontiguousarray(features, np.float32), weights)
    # Threads that spin beside a busy server cost more than they bring.
    with threadpool_limits(limits=1):
        fitted = [
            HistGradientBoostingRegressor(
                max_iter=_ROUNDS,
                learning_rate=_RATE,
                max_leaf_nodes=20,
                min_samples_leaf=20,
                max_features=0.15,
                l2_regularization=50.0,
                # Rows left out to stop early would be near copies of those that stay.
                early_stopping=False,
                random_state=seed + i,
            ).fit(rows, log_wait, sample_weight=weights)
            for i in range(models)
        ]
    base = float(np.mean([np.ravel(model._baseline_prediction)[0] for model in fitted]))
    trees = [tree[0].nodes for model in fitted for tree in model._predictors]
    return _flatten_trees(trees, cuts, base, models)


def cut_into_bins(
    rows: NDArray[np.float32], weights: Floats
) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
    """Return the rows as numbers of bins that weigh alike, and each feature's cuts: bin ``i`` ends
    with cut ``i``.

    scikit-learn makes the same cuts, but takes half of the whole fit where rows have weights: it
    looks up one quantile at a time.
    """
    bins = np.empty_like(rows)
    cuts = []
    for f in range(rows.shape[1]):
        cuts.append(_find_cuts(rows[:, f], weights))
        bins[:, f] = np.searchsorted(cuts[f], rows[:, f])
    return bins, cuts


def _find_cuts(values: NDArray[np.float32], weights: Floats) -> NDArray[np.float32]:
    """Return the middles between the values where they are few, else weighted quantiles."""
    distinct = np.unique(values)
    if len(distinct) <= _BINS:
        return np.asarray((distinct[:-1] + distinct[1:]) / np.float32(2))
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    sought = below[-1] * np.arange(1, _BINS) / _BINS
    return np.unique(values[order[np.searchsorted(below, sought)]])


def _flatten_trees(
    trees: list[Any], cuts: list[NDArray[np.float32]], base: float, models: int
) -> BoostedTrees:
    roots = np.r_[0, np.cumsum([len(tree) for tree in trees])[:-1]]
    nodes = np.concatenate(trees)
    shift = np.repeat(roots, [len(tree) for tree in trees])
    leaf = nodes["is_leaf"].astype(np.bool_)
    feature = np.where(leaf, -1, nodes["feature_idx"]).astype(np.int32)
    # A cut lies between two bins: back to the value that the lower one ends with.
    threshold = np.zeros(len(nodes))
    for i in np.flatnonzero(~leaf):
        threshold[i] = cuts[feature[i]][int(nodes["num_threshold"][i])]
    return BoostedTrees(
        base=base,
        roots=roots.astype(np.int32),
        feature=feature,
        threshold=threshold,
        left=(nodes["left"] + shift).astype(np.int32),
        right=(nodes["right"] + shift).astype(np.int32),
        value=nodes["value"].astype(np.float64) / models,
    )


@njit(cache=True, nogil=True)
def _add_leaves(
    rows: NDArray[np.float32],
    roots: Codes,
    feature: Codes,
    threshold: NDArray[np.float64],
    left: Codes,
    right: Codes,
    value: NDArray[np.float64],
) -> Floats:
    """Walk every row down every tree and add up what its leaves say."""
    out = np.zeros(len(rows))
    # A block of rows and one tree at a time: both stay in the processor's cache.
    for begin in range(0, len(rows), _BLOCK):
        block = rows[begin : begin + _BLOCK]
        for root in roots:
            for i in range(len(block)):
                node = root
                asked = feature[node]
                while asked >= 0:
                    node = left[node] if block[i, asked] <= threshold[node] else right[node]
                    asked = feature[node]
                out[begin + i] += value[node]
    return out
