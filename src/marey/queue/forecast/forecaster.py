"""Forecasts of the rest of a wait: the quantiles of a model, calibrated on blocks of days.

The rows of one poll, account and request are near copies of each other: they are thinned and
weighed down, so that one big array does not teach the model everything. Residuals come from models
that did not see the block of days they are tested on; their quantiles, in units of the distance
that the model itself puts between the middle and the end of the interval, widen it (conformal
calibration with days as the unit of exchange, not rows).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import erfc, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from marey.model.errors import MareyError
from marey.queue.forecast.poll_features import compute_features
from marey.queue.forecast.poll_groups import count_group, group_rows, rank_in_group
from marey.queue.forecast.poll_table import Floats, Ints, PollTable
from marey.queue.forecast.quantile_forest import QUANTILES, fit_forest
from marey.queue.forecast.wait_model import WaitModel, fit_wait_model

MIN_ROWS, MIN_DAYS = 200, 3
_DAY_S = 86400
_ROWS_PER_GROUP = 30
# A group of n near copies counts as n to this power: between one vote and n votes.
_GROUP_POWER = 0.75
_TREES, _TREES_LEFT_OUT, _BOOSTED = 64, 20, 3
_BLOCKS = 4
# The model's own distance from the middle to an end of the interval, in log10 seconds.
_DISTANCE_RANGE = (0.15, 2.0)
# Days differ more from each other than rows do: with few of them the tails that may lie outside the
# interval are cut, as if so many days more had had nothing outside.
_TAIL, _TAIL_DAYS = 0.1, 2.0
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
    """A fitted model and the calibrated steps to each end of the interval."""

    model: WaitModel
    steps: tuple[float, float]
    names: tuple[str, ...]
    rows: int
    polls: int
    days: int
    first_poll_s: int
    last_poll_s: int
    block_coverage: dict[str, float] = field(default_factory=dict)

    def predict(self, features: Floats) -> Floats:
        """Return seconds to the start at each of ``QUANTILES``, one row per row of features."""
        if not len(features):
            return np.zeros((0, len(QUANTILES)))
        predicted = self.model.predict(features)
        below, above = measure_distances(predicted)
        low, high = predicted[:, 1] + self.steps[0] * below, predicted[:, 1] + self.steps[1] * above
        return np.clip(10.0 ** np.column_stack([low, predicted[:, 1], high]), 1.0, LONGEST_S)


def fit_forecaster(
    table: PollTable,
    known_until_s: int | None = None,
    *,
    left_out: NDArray[np.bool_] | None = None,
) -> Forecaster:
    """Return a forecaster fitted to a history of polls; raise where it is too short.

    Who had not started by ``known_until_s`` (the last poll, unless given) is censored, not dropped:
    that it has waited so long is learned from, its true wait is not known. Rows that are left out
    (cancelled jobs) stand in the line, but nothing is learned of them.
    """
    polls = np.unique(table.poll_s)
    days = len(np.unique(polls // _DAY_S))
    started = np.isfinite(table.wait_s)
    if started.sum() < MIN_ROWS or days < MIN_DAYS:
        raise NotEnoughHistory(
            f"Not enough history: {int(started.sum())} waits that ended, on {days} "
            f"{'day' if days == 1 else 'days'}; forecasts need {MIN_ROWS} on {MIN_DAYS}."
        )
    features, names = compute_features(table)
    rows, weights = thin_rows(table)
    waited_s = (int(polls[-1]) if known_until_s is None else known_until_s) - table.poll_s
    useful = started | (waited_s >= _LEAST_BOUND_S)
    if left_out is not None:
        useful &= ~left_out
    rows, weights = rows[useful[rows]], weights[useful[rows]]
    known = started[rows]
    log_wait = np.log10(np.maximum(np.where(started, table.wait_s, waited_s), 1.0))[rows]
    features = features[rows]
    log_wait = complete_waits(features, log_wait, weights, known)
    model = fit_wait_model(features, log_wait, weights, trees=_TREES, boosted=_BOOSTED)
    blocks = split_into_blocks(table.poll_s[rows])
    predicted, fair = _cross_fit(
        table.job[rows], features, log_wait, weights=weights, blocks=blocks
    )
    fair &= known
    scored = measure_misses(log_wait[fair], predicted[fair])
    tail = _TAIL * days / (days + _TAIL_DAYS)
    low, high = (_weighted_quantile(scored, weights[fair], q) for q in (tail, 1.0 - tail))
    # The middle stands as it was fitted; only the way to the ends of the interval is calibrated.
    steps = (min(low, 0.0), max(high, 0.0))
    inside = (scored >= steps[0]) & (scored <= steps[1])
    held = blocks[fair]
    return Forecaster(
        model=model,
        steps=steps,
        names=names,
        rows=int(started.sum()),
        polls=len(polls),
        days=days,
        first_poll_s=int(polls[0]),
        last_poll_s=int(polls[-1]),
        block_coverage={str(b): float(inside[held == b].mean()) for b in np.unique(held)},
    )


def measure_distances(predicted: Floats) -> tuple[Floats, Floats]:
    """Return how far the ends of the model's interval lie from its middle, within bounds."""
    return (
        np.clip(predicted[:, 1] - predicted[:, 0], *_DISTANCE_RANGE),
        np.clip(predicted[:, 2] - predicted[:, 1], *_DISTANCE_RANGE),
    )


def measure_misses(log_wait: Floats, predicted: Floats) -> Floats:
    """Return how far the truth lies from the middle, in units of the distance to that end."""
    below, above = measure_distances(predicted)
    miss = log_wait - predicted[:, 1]
    return np.asarray(miss / np.where(miss < 0, below, above))


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
    """Return the block of neighbouring days that each row belongs to."""
    days, codes = np.unique(poll_s // _DAY_S, return_inverse=True)
    return np.asarray(codes * min(blocks, len(days)) // len(days), np.int64)


def complete_waits(
    features: Floats, log_wait: Floats, weights: Floats, known: NDArray[np.bool_]
) -> Floats:
    """Return log waits where those that are only lower bounds became their expected values.

    One step of Buckley and James (Biometrika 1979): the mean of a normal distribution around what a
    first model says, cut off at what was already waited.
    """
    if known.all():
        return log_wait
    first = fit_forest(features[known], log_wait[known], weights[known], trees=30, seed=1)
    predicted = first.predict(features[~known], (0.5,))[:, 0]
    cut = np.clip((log_wait[~known] - predicted) / _USUAL_SPREAD, -6.0, 6.0)
    beyond = np.array([0.5 * erfc(c / sqrt(2.0)) for c in cut])
    density = np.exp(-0.5 * cut**2) / sqrt(2.0 * pi)
    out = log_wait.copy()
    out[~known] = np.maximum(log_wait[~known], predicted + _USUAL_SPREAD * density / beyond)
    return out


def _cross_fit(
    jobs: Ints, features: Floats, log_wait: Floats, *, weights: Floats, blocks: Ints
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return each row's quantiles from a model that did not see its block of days.

    Jobs that wait across two blocks are in neither the fit nor (second answer) the calibration: a
    forecast is never asked of a job it was fitted to.
    """
    predicted, fair = np.zeros((len(jobs), len(QUANTILES))), np.ones(len(jobs), np.bool_)
    for block in np.unique(blocks):
        held = blocks == block
        both = np.isin(jobs, np.intersect1d(jobs[held], jobs[~held]))
        seen = ~held & ~both
        if seen.sum() < MIN_ROWS // 2 or not (held & ~both).any():
            seen = ~held
        else:
            fair &= ~(held & both)
        model = fit_wait_model(
            features[seen],
            log_wait[seen],
            weights[seen],
            trees=_TREES_LEFT_OUT,
            # Boosting moves the middle, hardly its distance to the ends, and is half of the fit.
            boosted=0,
            seed=int(block),
        )
        predicted[held] = model.predict(features[held])
    return predicted, fair


def _weighted_quantile(values: Floats, weights: Floats, share: float) -> float:
    order = np.argsort(values)
    at = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(at, share)), len(values) - 1)])


def select_rows(table: PollTable, chosen: NDArray[np.bool_]) -> PollTable:
    """Return the rows of a mask."""
    return table.select(np.flatnonzero(chosen))
