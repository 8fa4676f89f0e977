"""The model of a wait: a quantile forest for the interval, and for the middle also boosted trees.

The forest's median finds the usual wait, the mean of the middle half of its distribution is
steadier where waits have two modes, and boosting errs on other days than both; their mean is nearer
the truth than each alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.queue.forecast.boosted_trees import BoostedTrees, fit_boosting
from marey.queue.forecast.poll_table import Floats
from marey.queue.forecast.quantile_forest import QuantileForest, fit_forest

_BOOSTED_PART = 0.5
# Read off the forest: both ends of the interval, and its middle half.
_MIDDLE_HALF = tuple(float(share) for share in np.linspace(0.225, 0.775, 23))
_READ = (0.1, *_MIDDLE_HALF, 0.9)
_MEDIAN = _READ.index(0.5)
# What was asked for: processors, memory, GPUs, hosts, limit.
_SORTED_BY = 6


@dataclass(frozen=True)
class WaitModel:
    """A fitted forest and fitted boosted trees (None: the forest alone)."""

    forest: QuantileForest
    boosted: BoostedTrees | None

    def predict(self, features: NDArray[Any]) -> Floats:
        """Return log10 seconds at the low end, the middle and the high end, one row per row."""
        # Rows that are alike side by side take the same branches: half of the processor's time.
        order = np.lexsort(np.asarray(features)[:, :_SORTED_BY].T)
        answers = np.empty((len(features), 3))
        answers[order] = self._predict_rows(np.asarray(features, np.float32)[order])
        return answers

    def _predict_rows(self, features: NDArray[Any]) -> Floats:
        quantiles = self.forest.predict(features, _READ)
        middle = 0.5 * (quantiles[:, _MEDIAN] + quantiles[:, 1:-1].mean(axis=1))
        if self.boosted is not None:
            middle += _BOOSTED_PART * (self.boosted.predict(features) - middle)
        return np.column_stack([quantiles[:, 0], middle, quantiles[:, -1]])


def fit_wait_model(
    features: NDArray[Any],
    log_wait: Floats,
    weights: Floats,
    *,
    trees: int,
    boosted: int,
    seed: int = 0,
) -> WaitModel:
    """Return a model fitted to weighted rows."""
    return WaitModel(
        fit_forest(features, log_wait, weights, trees=trees, seed=seed),
        fit_boosting(features, log_wait, weights, models=boosted, seed=seed) if boosted else None,
    )
