"""Score forecasts on polls that the model has not seen: errors, coverage, width and pinball loss,
by slices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.model.errors import InvalidInput
from marey.queue.forecast.baselines import forecast_baselines
from marey.queue.forecast.forecaster import fit_forecaster, forecast_polls, select_rows
from marey.queue.forecast.poll_table import Floats, PollTable
from marey.queue.forecast.quantile_forest import QUANTILES

_HOUR_S = 3600.0
_HORIZONS = (("under 1 h", 0.0, 1.0), ("1 h to 6 h", 1.0, 6.0), ("6 h to 1 d", 6.0, 24.0),
             ("1 d to 3 d", 24.0, 72.0), ("over 3 d", 72.0, float("inf")))  # fmt: skip
_ROLLING = ("rolling_7d", "rolling_7d_partition")
# A poll of fewer rows says little of its coverage.
_FEW = 30


def evaluate_forecasts(
    train: PollTable, test: PollTable, *, clock: Callable[[], float]
) -> dict[str, Any]:
    """Fit on one history, forecast another, and return the scores; ``clock`` tells CPU seconds."""
    everything = test
    train, test, dropped = separate_jobs(train, test)
    began = clock()
    first_poll_s = int(everything.poll_s.min())
    forecaster = fit_forecaster(train, first_poll_s)
    fit_s = clock() - began
    # The line as it stood, those included that are not scored.
    kept = np.isin(everything.job, test.job) & np.isfinite(everything.wait_s)
    forecasts = forecast_polls(forecaster, everything)[kept]
    predict_s = clock() - began - fit_s
    baselines = {
        name: score_pinball(test.wait_s, predicted)
        for name, predicted in forecast_baselines(train, test).items()
    }
    scores = score_forecasts(test, forecasts)
    best = min(_ROLLING, key=lambda name: sum(baselines[name].values()))
    gain = 1.0 - sum(scores["pinball"].values()) / sum(baselines[best].values())
    return {
        **scores,
        "pinball_gain": gain,
        "best_rolling_baseline": best,
        "baselines": {name: {"pinball": pinball} for name, pinball in baselines.items()},
        "slices": slice_scores(train, test, forecasts),
        "train_rows": len(train),
        "test_rows": len(test),
        "train_polls": forecaster.polls,
        "test_polls": len(np.unique(test.poll_s)),
        "dropped_jobs": dropped,
        "fit_cpu_s": fit_s,
        "forecast_cpu_s": predict_s,
    }


def separate_jobs(train: PollTable, test: PollTable) -> tuple[PollTable, PollTable, int]:
    """Return the jobs to learn from, those to score, and how many stood in both.

    Those are not scored. Where the test comes after the training, nothing is learned of any start
    after the first tested poll, only that such a job still waited; else they are dropped there too.
    """
    if not len(train) or not len(test):
        raise InvalidInput(
            "There are no rows to fit or to test on; check the folders and the dates.",
            code="no_history",
        )
    both = np.intersect1d(train.job, test.job)
    first_poll_s = int(test.poll_s.min())
    test = select_rows(test, ~np.isin(test.job, both) & np.isfinite(test.wait_s))
    if not len(test):
        raise InvalidInput(
            "Every job of the test stands in the training too, or never started: nothing to score."
        )
    if first_poll_s > train.poll_s.max():
        return train.hide_starts_after(first_poll_s), test, len(both)
    return select_rows(train, ~np.isin(train.job, both)), test, len(both)


def score_forecasts(table: PollTable, forecasts: Floats) -> dict[str, Any]:
    """Return the scores of forecasts (seconds at ``QUANTILES``) against the true waits."""
    error = np.log10(forecasts[:, 1]) - np.log10(np.maximum(table.wait_s, 1.0))
    inside = _find_covered(table, forecasts)
    polls = [inside[table.poll_s == poll] for poll in np.unique(table.poll_s)]
    by_poll = [float(one.mean()) for one in polls if len(one) >= _FEW] or [
        float(one.mean()) for one in polls
    ]
    return {
        "rows": len(table),
        "rmse_log10": float(np.sqrt(np.mean(error**2))),
        "within_2x": float(np.mean(np.abs(error) <= np.log10(2.0))),
        "coverage_80": float(inside.mean()),
        "worst_poll_coverage": min(by_poll),
        "median_width": float(np.median(forecasts[:, 2] / forecasts[:, 0])),
        "pinball": score_pinball(table.wait_s, forecasts),
    }


def score_pinball(wait_s: Floats, forecasts: Floats) -> dict[str, float]:
    """Return the mean pinball loss in log10 seconds at each quantile."""
    truth = np.log10(np.maximum(wait_s, 1.0))
    losses = {}
    for i, share in enumerate(QUANTILES):
        under = truth - np.log10(forecasts[:, i])
        losses[str(share)] = float(np.mean(np.maximum(share * under, (share - 1.0) * under)))
    return losses


def slice_scores(train: PollTable, test: PollTable, forecasts: Floats) -> dict[str, dict[str, Any]]:
    """Return the scores by horizon (as forecast, and as it came), poll, kind of job and whether the
    account is new.
    """
    hours, predicted = test.wait_s / _HOUR_S, forecasts[:, 1] / _HOUR_S
    slices = {
        "horizon": {name: (predicted >= low) & (predicted < high) for name, low, high in _HORIZONS},
        "true_wait": {name: (hours >= low) & (hours < high) for name, low, high in _HORIZONS},
        "poll": {_print_poll(int(poll)): test.poll_s == poll for poll in np.unique(test.poll_s)},
        "kind": {"gpu": test.gpus > 0, "cpu": test.gpus <= 0},
        "account": {
            "known": np.isin(test.account, train.account),
            "new": ~np.isin(test.account, train.account),
        },
    }
    return {
        name: {
            part: _score_slice(test, forecasts, mask) for part, mask in parts.items() if mask.any()
        }
        for name, parts in slices.items()
    }


def _score_slice(test: PollTable, forecasts: Floats, mask: NDArray[np.bool_]) -> dict[str, Any]:
    return score_forecasts(select_rows(test, mask), forecasts[mask])


def _find_covered(table: PollTable, forecasts: Floats) -> NDArray[np.bool_]:
    wait = np.maximum(table.wait_s, 1.0)
    return np.asarray((wait >= forecasts[:, 0]) & (wait <= forecasts[:, 2]))


def _print_poll(poll_s: int) -> str:
    return str(np.datetime64(poll_s, "s")) + "Z"
