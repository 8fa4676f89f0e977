"""Run times of workloads predicted from the state of the system, whatever the application is.

As in performance prediction from longitudinal monitoring (2020): jobs repeated for months, counters
of the whole system before each start, and a model that is asked for an application it has never
seen. It predicts how much longer than its own history's mean a run takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from marey.queue.forecast.forecaster import NotEnoughHistory
from marey.queue.performance.runs import Floats, Ints, RunTable, measure_against_own
from marey.queue.performance.slow_hosts import DAY_S, trace_slowness

HOST_SLOWNESS = "host_slowness"
LEAST_RUNS, LEAST_APPLICATIONS = 60, 3
# A gain is claimed where it is this large and this many of its own errors above nothing.
LEAST_GAIN, LEAST_ERRORS = 0.05, 3.0
_BLOCK_S = 5 * DAY_S


@dataclass(frozen=True)
class PerformanceModel:
    """A model of log(run time / own mean), with what it was worth on applications left out."""

    model: Any
    names: tuple[str, ...]
    # Root mean square error of the logarithm, leaving each application out; and of its own mean.
    error: float
    own_error: float
    gain_claimed: bool
    # How much worse the left-out error gets without a feature, largest first; shares of the error.
    importance: Mapping[str, float]
    # Quantiles (10, 90 %) of what the left-out predictions missed.
    misses: tuple[float, float]
    runs: int
    applications: int

    def predict(self, features: Floats) -> Floats:
        """Return log(run time / own mean) of runs; 0 where no gain is claimed."""
        if not self.gain_claimed:
            return np.zeros(len(features))
        with _keep_one_thread():
            return np.asarray(self.model.predict(features))

    @property
    def sentence(self) -> str:
        """Return how good the prediction is, in words."""
        if not self.gain_claimed:
            return "The state of the system explains nothing beyond each application's own history."
        top = next(iter(self.importance))
        return (
            f"Knowing {top.replace('_', ' ')} most of all, the error is "
            f"{100 * self.error / self.own_error:.0f} % of that of each application's own history."
        )


def compute_run_features(runs: RunTable, misses: Floats) -> tuple[Floats, tuple[str, ...]]:
    """Return the features known at each start: the slowest host's past, the counters, the size."""
    counts = np.diff(runs.first).astype(np.float64)
    columns = {
        HOST_SLOWNESS: trace_slowness(runs, misses),
        **{name: np.asarray(values, np.float64) for name, values in runs.state.items()},
        "gpus": np.log2(np.maximum(runs.gpus, 1.0)),
        "hosts": np.log2(np.maximum(counts, 1.0)),
    }
    return np.column_stack(list(columns.values())), tuple(columns)


def fit_performance(runs: RunTable) -> PerformanceModel:
    """Return the model of a history of runs, judged by leaving one application out at a time."""
    misses = measure_against_own(runs)
    known = np.isfinite(misses)
    applications = np.unique(runs.application[known])
    if known.sum() < LEAST_RUNS or len(applications) < LEAST_APPLICATIONS:
        raise NotEnoughHistory(
            f"Not enough history: {int(known.sum())} repeated runs of {len(applications)} "
            f"applications; a prediction needs {LEAST_RUNS} of {LEAST_APPLICATIONS}."
        )
    features, names = compute_run_features(runs, misses)
    rows = np.flatnonzero(known)
    with _keep_one_thread():
        predicted, importance = _leave_out(
            features[rows], misses[rows], runs.application[rows], names
        )
        model = _fit_trees(features[rows], misses[rows])
    left = misses[rows] - predicted
    return PerformanceModel(
        model=model,
        names=names,
        error=_root_mean_square(left),
        own_error=_root_mean_square(misses[rows]),
        gain_claimed=is_gain(misses[rows], left, runs.start_s[rows]),
        importance=importance,
        misses=(float(np.quantile(left, 0.1)), float(np.quantile(left, 0.9))),
        runs=len(rows),
        applications=len(applications),
    )


def is_gain(own: Floats, left: Floats, start_s: Floats) -> bool:
    """Return whether a model beats the own mean by more than chance, by blocks of days."""
    blocks = np.floor(start_s / _BLOCK_S)
    gains = np.array(
        [np.mean(own[blocks == b] ** 2 - left[blocks == b] ** 2) for b in np.unique(blocks)]
    )
    if len(gains) < 4:
        return False
    error = float(gains.std(ddof=1)) / np.sqrt(len(gains))
    large = _root_mean_square(left) < (1.0 - LEAST_GAIN) * _root_mean_square(own)
    return bool(large and gains.mean() > LEAST_ERRORS * error)


def _leave_out(
    features: Floats, misses: Floats, applications: Ints, names: tuple[str, ...]
) -> tuple[Floats, dict[str, float]]:
    """Return predictions of each application by a model of the others, and what features gave."""
    predicted = np.zeros(len(misses))
    worse = np.zeros(len(names))
    draws = np.random.default_rng(0)
    for application in np.unique(applications):
        held = applications == application
        model = _fit_trees(features[~held], misses[~held])
        predicted[held] = model.predict(features[held])
        before = float(np.sum((misses[held] - predicted[held]) ** 2))
        for i in range(len(names)):
            mixed = features[held].copy()
            mixed[:, i] = draws.permutation(mixed[:, i])
            worse[i] += float(np.sum((misses[held] - model.predict(mixed)) ** 2)) - before
    shares = np.maximum(worse, 0.0) / max(float(np.sum(misses**2)), 1e-12)
    order = np.argsort(-shares)
    return predicted, {names[i]: float(shares[i]) for i in order}


def _fit_trees(features: Floats, misses: Floats) -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(
        40, min_samples_leaf=8, max_features=0.6, max_samples=0.6, random_state=0
    ).fit(features, misses)


def _root_mean_square(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))


@contextmanager
def _keep_one_thread() -> Iterator[None]:
    """Keep the boosting on one core: threads that spin beside a busy server cost more than they
    bring.
    """
    # The limit holds for the libraries that are loaded: the boosting has to come first.
    import sklearn.ensemble  # noqa: F401
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        yield
