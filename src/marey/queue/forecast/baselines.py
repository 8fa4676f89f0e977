"""What a forecast must beat: quantiles of past waits, over all and by partition, fixed or rolling
over a week.
"""

from __future__ import annotations

import numpy as np

from marey.queue.forecast.poll_features import HISTORY_S
from marey.queue.forecast.poll_table import Floats, Ints, PollTable, join_tables
from marey.queue.forecast.quantile_forest import QUANTILES

_FEW = 20


def forecast_baselines(train: PollTable, test: PollTable) -> dict[str, Floats]:
    """Return each baseline's forecasts in seconds, shaped like the forecaster's."""
    return {
        "constant": _repeat_quantiles(train, test, by_partition=False),
        "partition": _repeat_quantiles(train, test, by_partition=True),
        "rolling_7d": _roll_quantiles(train, test, by_partition=False),
        "rolling_7d_partition": _roll_quantiles(train, test, by_partition=True),
    }


def _repeat_quantiles(train: PollTable, test: PollTable, *, by_partition: bool) -> Floats:
    known = np.isfinite(train.wait_s)
    return _look_up(train.wait_s[known], train.partition[known], test, by_partition)


def _roll_quantiles(train: PollTable, test: PollTable, *, by_partition: bool) -> Floats:
    """Return quantiles of the last week's waits as known at each poll; who still waits counts as a
    lower bound.
    """
    history = join_tables([train, test])
    out = np.zeros((len(test), len(QUANTILES)))
    fallback = _repeat_quantiles(train, test, by_partition=by_partition)
    for poll in np.unique(test.poll_s):
        rows = np.flatnonzero(test.poll_s == poll)
        recent = (history.poll_s < poll) & (history.poll_s >= poll - HISTORY_S)
        if recent.sum() < _FEW:
            out[rows] = fallback[rows]
            continue
        so_far = (poll - history.poll_s[recent]).astype(np.float64)
        wait = np.fmin(history.wait_s[recent], so_far)
        out[rows] = _look_up(wait, history.partition[recent], test.select(rows), by_partition)
    return out


def _look_up(wait: Floats, partition: Ints, test: PollTable, by_partition: bool) -> Floats:
    out = np.tile(np.quantile(wait, QUANTILES), (len(test), 1))
    if by_partition:
        for name in np.unique(test.partition):
            mine = wait[partition == name]
            if len(mine) >= _FEW:
                out[test.partition == name] = np.quantile(mine, QUANTILES)
    return np.maximum(out, 1.0)
