"""Two metrics against each other: outliers of one pair, and which pairs are worth a look."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from marey.diagnose.matrix import WorkloadMatrix, refuse_metric
from marey.model.errors import InvalidInput
from marey.stats.outliers import Scores, mahalanobis

# What a scatter plot can show one by one; beyond it the density is shown, outliers always.
MOST_POINTS = 4_000
MOST_OUTLIERS = 1_000
GRID = 48
# Enough for a correlation to two digits; pairs grow with the square of the metrics.
PAIR_POINTS = 2_000


@dataclass(frozen=True, slots=True)
class Bivariate:
    """Every sample of two metrics, scored; indices are ``row × moments + moment``."""

    x: str
    y: str
    points: NDArray[np.float64]
    scores: Scores
    # The samples to draw one by one, in order; every n-th where there are many.
    drawn: NDArray[np.intp]
    # The outliers to draw, farthest first.
    outliers: NDArray[np.intp]
    outlier_count: int
    # Samples per cell of a grid over both ranges, rows along y.
    density: NDArray[np.int64]
    limits: tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class MetricPair:
    """How two metrics go together over all samples, and how many samples do not go along."""

    x: str
    y: str
    correlation: float
    # Share of samples outside the robust 0.1 % limit.
    strange: float


def check_metrics(matrix: WorkloadMatrix, *metrics: str) -> None:
    """Refuse metrics that the workload has no samples of."""
    for metric in metrics:
        if metric not in matrix.columns:
            raise refuse_metric(matrix, metric)


def bivariate(
    matrix: WorkloadMatrix, x: str, y: str, *, significance: float = 0.001, robust: bool = True
) -> Bivariate:
    """Score every sample of two metrics by its Mahalanobis distance."""
    check_metrics(matrix, x, y)
    if x == y:
        raise InvalidInput(f"Both metrics are '{x}'; name two different ones.")
    points = _collect_points(matrix, x, y)
    scores = mahalanobis(points, significance=significance, robust=robust)
    known = np.flatnonzero(np.isfinite(points).all(axis=1))
    outside = np.flatnonzero(scores.outside)
    farthest = outside[np.argsort(-scores.squared[outside], kind="stable")]
    limits = (_find_limits(points[known, 0]), _find_limits(points[known, 1]))
    return Bivariate(
        x=x,
        y=y,
        points=points,
        scores=scores,
        drawn=known[:: max(1, -(-len(known) // MOST_POINTS))],
        outliers=farthest[:MOST_OUTLIERS],
        outlier_count=len(outside),
        density=_count_density(points[known], limits),
        limits=limits,
    )


def _collect_points(matrix: WorkloadMatrix, x: str, y: str) -> NDArray[np.float64]:
    columns = [matrix.columns[name].ravel().astype(np.float64) for name in (x, y)]
    return np.stack(columns, axis=1)


def _find_limits(values: NDArray[np.float64]) -> tuple[float, float]:
    if not len(values):
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _count_density(
    points: NDArray[np.float64], limits: tuple[tuple[float, float], tuple[float, float]]
) -> NDArray[np.int64]:
    counted, _, _ = np.histogram2d(points[:, 1], points[:, 0], GRID, (limits[1], limits[0]))
    return counted.astype(np.int64)


def metric_pairs(matrix: WorkloadMatrix) -> tuple[MetricPair, ...]:
    """Return every pair of metrics that move; the strongest and the strangest first."""
    moving = [name for name, values in matrix.columns.items() if _does_move(values)]
    found = []
    for x, y in combinations(moving, 2):
        points = _collect_points(matrix, x, y)
        points = points[np.isfinite(points).all(axis=1)]
        points = points[:: max(1, len(points) // PAIR_POINTS)]
        if len(points) < 3 or (points.std(axis=0) <= 0).any():
            continue
        correlation = float(np.atleast_2d(np.corrcoef(points, rowvar=False))[0, 1])
        outside = mahalanobis(points, robust=True).outside
        found.append(MetricPair(x, y, correlation, float(outside.mean())))
    return tuple(sorted(found, key=lambda p: -(abs(p.correlation) + min(1.0, 4 * p.strange))))


def _does_move(values: NDArray[np.float32]) -> bool:
    known = values[np.isfinite(values)]
    return bool(len(known)) and bool(known.max() > known.min())
