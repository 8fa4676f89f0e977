"""Tests of significance: Welch's t-test, one pair or many, corrected for the number of tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SIGNIFICANCE = 0.05
# With fewer samples on a side nothing is tested, and that is said.
FEWEST_SAMPLES = 3
# Differences below the precision of the times themselves are none.
PRECISION = 1e-9

Floats = NDArray[np.float64]


def welch(a: Any, b: Any) -> float | None:
    """Return the p of Welch's t-test, or None with too few samples.

    Constant sides compare exactly.
    """
    if min(len(a), len(b)) < FEWEST_SAMPLES:
        return None
    found = welch_rows(np.asarray(a, float)[None, :], np.asarray(b, float)[None, :])
    return float(found[0])


def welch_rows(a: Floats, b: Floats) -> Floats:
    """Test each row of ``a`` against that of ``b``; NaN are no samples.

    A row with fewer than three samples on a side gets NaN: it was not tested.
    """
    a_count, a_mean, a_var, a_size = _moments(a)
    b_count, b_mean, b_var, b_size = _moments(b)
    a_error, b_error = a_var / a_count.clip(1), b_var / b_count.clip(1)
    error, distance = a_error + b_error, np.abs(a_mean - b_mean)
    floor = PRECISION * np.maximum(a_size, b_size)
    constant = error <= floor**2
    # Only now: a server has no use for SciPy until somebody asks.
    from scipy.special import stdtr

    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = error**2 / (
            a_error**2 / (a_count - 1).clip(1) + b_error**2 / (b_count - 1).clip(1)
        )
        p = 2 * stdtr(freedom, -distance / np.sqrt(error))
    p = np.where(constant, np.where(distance <= floor, 1.0, 0.0), p)
    few = (a_count < FEWEST_SAMPLES) | (b_count < FEWEST_SAMPLES)
    return np.asarray(np.where(few, np.nan, p))


def _moments(rows: Floats) -> tuple[NDArray[np.int64], Floats, Floats, Floats]:
    """Count, mean, variance and largest size of each row's values."""
    known = ~np.isnan(rows)
    filled = np.where(known, rows, 0.0)
    count = known.sum(axis=1)
    mean = filled.sum(axis=1) / count.clip(1)
    away = np.where(known, rows - mean[:, None], 0.0)
    variance = (away**2).sum(axis=1) / (count - 1).clip(1)
    return count, mean, variance, np.abs(filled).max(axis=1, initial=0.0)


def benjamini_hochberg(p: list[float] | Floats) -> list[float]:
    """Return each p adjusted for the number of tests, so that 5 % of the discoveries are false at
    most.
    """
    values = np.asarray(p, float)
    order = np.argsort(values)[::-1]
    scaled = values[order] * len(values) / np.arange(len(values), 0, -1)
    adjusted = np.empty(len(values))
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled), 1.0) if len(values) else scaled
    listed: list[float] = adjusted.tolist()
    return listed
