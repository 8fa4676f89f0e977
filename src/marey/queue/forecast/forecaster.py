"""Forecasts of the rest of a wait: boosted trees for the middle and the spread, calibrated on
blocks of days.

The rows of one poll, account and request are near copies of each other: they are thinned and
weighed down, so that one
big array does not teach the model everything. Residuals come from models that did not see the block
of days they are
tested on; the quantiles of those residuals, in units of the predicted spread, make the interval
(conformal calibration
with days as the unit of exchange, not rows).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import erfc, pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.model.errors import MareyError
from marey.queue.forecast.poll_features import (
    compute_features,
    count_group,
    group_rows,
    rank_in_group,
)
from marey.queue.forecast.poll_table import Floats, Ints, PollTable

QUANTILES = (0.1, 0.5, 0.9)
MIN_ROWS, MIN_POLLS = 200, 3
_ROWS_PER_GROUP = 12
# A group of n near copies counts as n to this power: between one vote and n votes.
_GROUP_POWER = 0.75
_BLOCKS = 3
_SPREAD_RANGE = (0.12, 1.5)
# Share of the left-out residuals outside each end: less than a tenth, because few blocks of days
# are left out and the spread is fitted to the same residuals.
_TAIL = 0.075
LONGEST_S = 365 * 86400.0
# A wait of which only less than this is known says nothing.
_LEAST_BOUND_S = 600
_USUAL_SPREAD = 0.5


class NotEnoughHistory(MareyError):
    """The history is too short to learn from; saying so is the answer."""

    status = 422
    title = "Not enough history"
    code = "not_enough_history"


@dataclass(frozen=True)
class Forecaster:
    """A fitted model: the middle, the spread and the calibrated steps to each quantile."""

    middle: tuple[Any, ...]
    spread: Any
    steps: tuple[float, ...]
    names: tuple[str, ...]
    rows: int
    polls: int
    first_poll_s: int
    last_poll_s: int
    block_coverage: dict[str, float] = field(default_factory=dict)

    def predict(self, features: Floats) -> Floats:
        """Return seconds to the start at each of ``QUANTILES``, one row per row of features."""
        if not len(features):
            return np.zeros((0, len(QUANTILES)))
        with one_thread():
            middle = predict_middle(self.middle, features)
            spread = np.clip(self.spread.predict(features), *_SPREAD_RANGE)
        logs = middle[:, None] + spread[:, None] * np.asarray(self.steps)[None, :]
        return np.clip(10.0 ** np.sort(logs, axis=1), 1.0, LONGEST_S)


def fit_forecaster(table: PollTable, known_until_s: int | None = None) -> Forecaster:
    """Return a forecaster fitted to a history of polls; raise where it is too short.

    Who had not started by ``known_until_s`` (the last poll, unless told) is censored, not dropped:
    that it has waited so long is learned from, its true wait is not known.
    """
    polls = np.unique(table.poll_s)
    started = np.isfinite(table.wait_s)
    if started.sum() < MIN_ROWS or len(polls) < MIN_POLLS:
        raise NotEnoughHistory(
            f"Not enough history: {int(started.sum())} started jobs in {len(polls)} polls; "
            f"forecasts need {MIN_ROWS} in {MIN_POLLS}."
        )
    features, names = compute_features(table)
    rows, weights = thin_rows(table)
    waited_s = (int(polls[-1]) if known_until_s is None else known_until_s) - table.poll_s
    useful = started | (waited_s >= _LEAST_BOUND_S)
    rows, weights = rows[useful[rows]], weights[useful[rows]]
    known = started[rows]
    log_wait = np.log10(np.maximum(np.where(started, table.wait_s, waited_s), 1.0))
    blocks = split_into_blocks(table.poll_s[rows])
    with one_thread():
        log_wait[rows] = complete_waits(features[rows], log_wait[rows], weights, known)
        middle = fit_middle(features[rows], log_wait[rows], weights)
        residuals, fair = _cross_fit(
            table.job[rows],
            features[rows],
            log_wait[rows],
            weights=weights,
            blocks=blocks,
        )
        fair &= known
        spread = _fit_spread(features[rows][fair], np.abs(residuals[fair]), weights[fair])
        spreads = np.clip(spread.predict(features[rows][fair]), *_SPREAD_RANGE)
    scored, weighed = residuals[fair] / spreads, weights[fair]
    low, high = (_weighted_quantile(scored, weighed, q) for q in (_TAIL, 1.0 - _TAIL))
    # The middle stands as it was fitted; only the way to the ends of the interval is calibrated.
    steps = (min(low, 0.0), 0.0, max(high, 0.0))
    inside = (scored >= steps[0]) & (scored <= steps[-1])
    days = blocks[fair]
    return Forecaster(
        middle=middle,
        spread=spread,
        steps=steps,
        names=names,
        rows=int(started.sum()),
        polls=len(polls),
        first_poll_s=int(polls[0]),
        last_poll_s=int(polls[-1]),
        block_coverage={str(b): float(inside[days == b].mean()) for b in np.unique(days)},
    )


def forecast_polls(forecaster: Forecaster, table: PollTable) -> Floats:
    """Return the forecasts of every row, each from what was known at its own poll."""
    features, _ = compute_features(table)
    return forecaster.predict(features)


def thin_rows(table: PollTable, seed: int = 0) -> tuple[Ints, Floats]:
    """Return a few rows of every group of near copies, and weights that let big groups count less
    than their size.
    """
    groups = group_rows(table.poll_s, table.account, table.partition, table.cpus, table.limit_s)
    size = count_group(groups)
    place = rank_in_group(groups, np.random.default_rng(seed).random(len(table)))
    rows = np.flatnonzero(place <= _ROWS_PER_GROUP)
    return rows, size[rows] ** _GROUP_POWER / np.minimum(size[rows], _ROWS_PER_GROUP)


def split_into_blocks(poll_s: Ints, blocks: int = _BLOCKS) -> Ints:
    """Return the block of neighbouring polls that each row belongs to."""
    polls, codes = np.unique(poll_s, return_inverse=True)
    return (codes * min(blocks, len(polls)) // len(polls)).astype(np.int64)


def fit_middle(
    features: Floats, log_wait: Floats, weights: Floats, members: int = 1, *, forest: bool = True
) -> tuple[Any, ...]:
    """Return boosted trees for the middle of the wait, and a forest: the mean of both kinds is
    steadier on days that neither has seen.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

    boosted = tuple(
        HistGradientBoostingRegressor(
            max_iter=80,
            learning_rate=0.1,
            max_leaf_nodes=12,
            min_samples_leaf=20,
            l2_regularization=5.0,
            max_features=0.3,
            max_bins=63,
            early_stopping=False,
            random_state=seed,
        ).fit(features, log_wait, sample_weight=weights)
        for seed in range(members)
    )
    if not forest:
        return boosted
    wide = RandomForestRegressor(
        100, min_samples_leaf=5, max_features=0.2, max_samples=0.5, random_state=0
    ).fit(features, log_wait, sample_weight=weights)
    return (*boosted, wide)


def complete_waits(
    features: Floats, log_wait: Floats, weights: Floats, known: NDArray[np.bool_]
) -> Floats:
    """Return log waits where those that are only lower bounds became their expected values.

    One step of Buckley and James (Biometrika 1979): the mean of a normal distribution around what a
    first model says, cut off at what was already waited.
    """
    if known.all():
        return log_wait
    from sklearn.ensemble import RandomForestRegressor

    first = RandomForestRegressor(
        30, min_samples_leaf=5, max_features=0.2, max_samples=0.5, random_state=1
    ).fit(features[known], log_wait[known], sample_weight=weights[known])
    told = first.predict(features[~known])
    cut = np.clip((log_wait[~known] - told) / _USUAL_SPREAD, -6.0, 6.0)
    beyond = np.array([0.5 * erfc(c / sqrt(2.0)) for c in cut])
    density = np.exp(-0.5 * cut**2) / sqrt(2.0 * pi)
    out = log_wait.copy()
    out[~known] = np.maximum(log_wait[~known], told + _USUAL_SPREAD * density / beyond)
    return out


def predict_middle(models: tuple[Any, ...], features: Floats) -> Floats:
    """Return the mean of the boosted members, halfway to the forest where there is one."""
    told = [model.predict(features) for model in models]
    if len(told) < 2:
        return np.asarray(told[0])
    return np.asarray((np.mean(told[:-1], axis=0) + told[-1]) / 2.0)


def _fit_spread(features: Floats, size: Floats, weights: Floats) -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(
        40, min_samples_leaf=60, max_features=0.3, max_samples=0.5, random_state=0
    ).fit(features, size, sample_weight=weights)


def _cross_fit(
    jobs: Ints, features: Floats, log_wait: Floats, *, weights: Floats, blocks: Ints
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return each row's residual under a model that did not see its block of days.

    Jobs that wait across two blocks are in neither the fit nor (second answer) the calibration: a
    forecast is never asked of a job it was fitted to.
    """
    residuals, fair = np.zeros(len(jobs)), np.ones(len(jobs), np.bool_)
    for block in np.unique(blocks):
        held = blocks == block
        both = np.isin(jobs, np.intersect1d(jobs[held], jobs[~held]))
        seen = ~held & ~both
        if seen.sum() < MIN_ROWS // 2 or not (held & ~both).any():
            seen = ~held
        else:
            fair &= ~(held & both)
        model = fit_middle(features[seen], log_wait[seen], weights[seen], forest=False)[0]
        residuals[held] = log_wait[held] - model.predict(features[held])
    return residuals, fair


def _weighted_quantile(values: Floats, weights: Floats, share: float) -> float:
    order = np.argsort(values)
    at = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(at, share)), len(values) - 1)])


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep the boosting on one core: threads that spin beside a busy server cost more than they
    bring.
    """
    # The limit holds for the libraries that are loaded: the boosting has to come first.
    import sklearn.ensemble  # noqa: F401
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        yield


def select_rows(table: PollTable, chosen: NDArray[np.bool_]) -> PollTable:
    """Return the rows of a mask."""
    return table.select(np.flatnonzero(chosen))
