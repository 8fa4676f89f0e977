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

    rows = np.ascontiguousarray(features, np.float32)
    # Threads that spin beside a busy server cost more than they bring.
    with threadpool_limits(limits=1):
        fitted = [
            HistGradientBoostingRegressor(
                max_iter=_ROUNDS,
                learning_rate=_RATE,
                max_leaf_nodes=12,
                min_samples_leaf=20,
                max_features=0.3,
                l2_regularization=5.0,
                random_state=seed + i,
            ).fit(rows, log_wait, sample_weight=weights)
            for i in range(models)
        ]
    base = float(np.mean([np.ravel(model._baseline_prediction)[0] for model in fitted]))
    trees = [tree[0].nodes for model in fitted for tree in model._predictors]
    return _flatten_trees(trees, base, models)


def _flatten_trees(trees: list[Any], base: float, models: int) -> BoostedTrees:
    roots = np.r_[0, np.cumsum([len(tree) for tree in trees])[:-1]]
    nodes = np.concatenate(trees)
    shift = np.repeat(roots, [len(tree) for tree in trees])
    leaf = nodes["is_leaf"].astype(np.bool_)
    return BoostedTrees(
        base=base,
        roots=roots.astype(np.int32),
        feature=np.where(leaf, -1, nodes["feature_idx"]).astype(np.int32),
        threshold=nodes["num_threshold"].astype(np.float64),
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
    for i in range(len(rows)):
        row = rows[i]
        for root in roots:
            node = root
            asked = feature[node]
            while asked >= 0:
                node = left[node] if row[asked] <= threshold[node] else right[node]
                asked = feature[node]
            out[i] += value[node]
    return out
