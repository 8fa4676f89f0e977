"""Mahalanobis scores of points in a few metrics, classical and robust."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_STEPS = 50
# The share of points that the robust estimate rests on: high breakdown, decent efficiency.
CORE_SHARE = 0.75
# The robust centre and spread of more points than this are those of evenly chosen ones: each
# concentration step sorts them all, and the estimate is exact to a hundredth long before.
ESTIMATE_POINTS = 20_000


@dataclass(frozen=True, slots=True)
class Scores:
    """Squared distances per point, the limit at the asked significance, and the estimate."""

    squared: NDArray[np.float64]
    limit: float
    centre: NDArray[np.float64]
    covariance: NDArray[np.float64]
    robust: bool

    @property
    def outside(self) -> NDArray[np.bool_]:
        """Which points are outliers."""
        return self.squared > self.limit


def mahalanobis(
    points: NDArray[np.float64], *, significance: float = 0.001, robust: bool = False
) -> Scores:
    """Score each row; rows with a missing value score NaN and are never outliers."""
    # Column by column: a reduction along a few values a row costs many times as much.
    usable = np.logical_and.reduce([np.isfinite(column) for column in points.T])
    dimensions = points.shape[1]
    limit = chi_squared(dimensions, significance)
    squared = np.full(len(points), np.nan)
    good = points if usable.all() else points[usable]
    if len(good) <= dimensions:
        centre = good.mean(axis=0) if len(good) else np.full(dimensions, np.nan)
        squared[usable] = 0.0
        return Scores(squared, limit, centre, np.eye(dimensions), robust)
    if robust:
        centre, covariance = _estimate_robustly(good[:: -(-len(good) // ESTIMATE_POINTS)])
    else:
        centre, covariance = good.mean(axis=0), _estimate_covariance(good)
    squared[usable] = _square_distances(good, centre, covariance)
    return Scores(squared, limit, centre, covariance, robust)


def _estimate_covariance(points: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.atleast_2d(np.cov(points, rowvar=False))


def _square_distances(
    points: NDArray[np.float64], centre: NDArray[np.float64], covariance: NDArray[np.float64]
) -> NDArray[np.float64]:
    # The pseudo-inverse: a constant metric has no spread and takes no part.
    inverse = np.linalg.pinv(covariance, rcond=1e-12, hermitian=True)
    # By columns, of which there are few: a product of matrices would wake the threads of BLAS.
    away = [column - middle for column, middle in zip(points.T, centre, strict=True)]
    squared = np.zeros(len(points))
    for row, column in zip(inverse, away, strict=True):
        squared += column * sum(factor * other for factor, other in zip(row, away, strict=True))
    return squared


def _find_nearest(squared: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Return the places of the smallest distances in order; of equal ones the first."""
    farthest = np.partition(squared, count - 1)[count - 1]
    chosen = squared < farthest
    equal = np.flatnonzero(squared == farthest)
    chosen[equal[: count - np.count_nonzero(chosen)]] = True
    return np.flatnonzero(chosen)


def _estimate_robustly(
    points: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Estimate the minimum covariance determinant by concentration steps from the median and MAD.

    Rousseeuw & Van Driessen (1999), started deterministically so that the answer never varies.
    """
    n, dimensions = points.shape
    core = max(dimensions + 1, int(CORE_SHARE * n))
    centre = np.median(points, axis=0)
    spread = np.median(np.abs(points - centre), axis=0) * 1.4826
    fallback = points.std(axis=0)
    spread = np.where(spread > 0, spread, np.where(fallback > 0, fallback, 1.0))
    covariance = np.diag(spread**2)
    chosen: NDArray[np.intp] | None = None
    for _ in range(MOST_STEPS):
        nearest = _find_nearest(_square_distances(points, centre, covariance), core)
        if chosen is not None and np.array_equal(nearest, chosen):
            break
        chosen = nearest
        centre, covariance = points[chosen].mean(axis=0), _estimate_covariance(points[chosen])
    # Scaled so that the median distance is what a normal cloud would have.
    middle = float(np.median(_square_distances(points, centre, covariance)))
    factor = middle / chi_squared(dimensions, 0.5)
    return centre, covariance * (factor if factor > 0 else 1.0)


def chi_squared(dimensions: int, beyond: float) -> float:
    """Return the squared distance that a normal cloud exceeds with this probability."""
    # Only now: a server has no use for SciPy until somebody asks.
    from scipy.special import chdtri

    return float(chdtri(dimensions, beyond))
