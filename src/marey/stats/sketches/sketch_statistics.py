"""Statistics of sketches: each formula once, per sketch, so that rows and series agree exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marey.stats.sketches.sketch import (
    BINS,
    COUNT,
    LAST,
    MAX,
    MIN,
    REF,
    SQUARES,
    SUM,
    TIME,
    TIME2,
    TIMEVALUE,
    Floats,
    bin_of,
)

# What can be asked of a sketch; the last five need its bins, the others are exact without them.
(
    LEAST, GREATEST, NEWEST, MEAN, DEVIATION, VARIANCE, SPREAD, TREND, STEADINESS, NUMBER,
    QUANTILE, SHARE_LT, SHARE_LE, SHARE_GT, SHARE_GE,
) = range(15)  # fmt: skip
SHARES = {"<": SHARE_LT, "<=": SHARE_LE, ">": SHARE_GT, ">=": SHARE_GE}


@njit(inline="always")
def _compute_variance(agg):  # type: ignore[no-untyped-def]  # numba infers the types
    n = agg[COUNT]
    mean = agg[SUM] / n
    return max(agg[SQUARES] / n - mean * mean, 0.0)


@njit(inline="always")
def _compute_trend(agg):  # type: ignore[no-untyped-def]  # numba infers the types
    n = agg[COUNT]
    across = agg[TIME2] - agg[TIME] * agg[TIME] / n
    if across <= 1e-12:
        return np.nan
    return (agg[TIMEVALUE] - agg[TIME] * agg[SUM] / n) / across


@njit(inline="always")
def _compute_steadiness(agg):  # type: ignore[no-untyped-def]  # numba infers the types
    n = agg[COUNT]
    across = agg[TIME2] - agg[TIME] * agg[TIME] / n
    along = agg[TIMEVALUE] - agg[TIME] * agg[SUM] / n
    total = agg[SQUARES] - agg[SUM] * agg[SUM] / n
    if across <= 1e-12 or total <= 1e-9 * n:
        return np.nan
    return min(along * along / (across * total), 1.0)


@njit(cache=True, nogil=True)
def exact_at(kind, agg):  # type: ignore[no-untyped-def]  # numba infers the types
    """Return a statistic that needs no bins; NaN where the samples are too few for it."""
    n = agg[COUNT]
    if n < 1.0:
        return np.nan
    if kind == LEAST:
        return agg[MIN]
    if kind == GREATEST:
        return agg[MAX]
    if kind == NEWEST:
        return agg[LAST]
    if kind == MEAN:
        return agg[REF] + agg[SUM] / n
    if kind == SPREAD:
        return agg[MAX] - agg[MIN]
    if kind == NUMBER:
        return n
    if n < 2.0:
        return np.nan
    if kind == VARIANCE:
        return _compute_variance(agg)
    if kind == DEVIATION:
        return np.sqrt(_compute_variance(agg))
    if kind == TREND:
        return _compute_trend(agg)
    return _compute_steadiness(agg) if n >= 3.0 else np.nan


@njit(inline="always")
def _compute_quantile(agg, bins, low, step, q):  # type: ignore[no-untyped-def]  # numba infers the types
    """Interpolate between the two samples nearest to the rank; each is known to half a step."""
    place = q * (agg[COUNT] - 1.0)
    below = int(np.floor(place))
    part = place - below
    last = agg[COUNT] - 1.0
    value, b, seen = agg[MIN], 0, np.int64(bins[0])
    if below >= last:
        value = agg[MAX]
    elif below > 0:
        while seen <= below and b < BINS - 1:
            b += 1
            seen += bins[b]
        value = min(max(low + b * step, agg[MIN]), agg[MAX])
    if part > 0.0:
        above = agg[MAX]
        if below + 1 < last:
            while seen <= below + 1 and b < BINS - 1:
                b += 1
                seen += bins[b]
            above = min(max(low + b * step, agg[MIN]), agg[MAX])
        value += part * (above - value)
    return value


@njit(inline="always")
def _share_above(agg, bins, low, step, limit):  # type: ignore[no-untyped-def]  # numba infers the types
    if agg[MAX] <= limit:
        return 0.0
    if agg[MIN] > limit:
        return 1.0
    edge = bin_of(limit, low, step)
    above = 0.0
    for b in range(edge + 1, BINS):
        above += bins[b]
    # The bin's ends, narrowed to where samples can be at all.
    left = max(low + (edge - 0.5) * step, agg[MIN])
    right = min(low + (edge + 0.5) * step, agg[MAX])
    if right > left:
        above += min(max((right - limit) / (right - left), 0.0), 1.0) * bins[edge]
    return above / agg[COUNT]


@njit(cache=True, nogil=True)
def binned_at(kind, parameter, agg, bins, low, step):  # type: ignore[no-untyped-def]  # numba infers the types
    """Return a quantile (``parameter`` 0-1) or the share (0-1) of samples beyond ``parameter``."""
    if agg[COUNT] < 1.0:
        return np.nan
    if kind == QUANTILE:
        return _compute_quantile(agg, bins, low, step, parameter)
    # Exact where all samples are equal to the limit: ">=" holds, ">" does not.
    if agg[MIN] >= parameter:
        if kind == SHARE_GE:
            return 1.0
        if kind == SHARE_LT:
            return 0.0
    above = _share_above(agg, bins, low, step, parameter)
    return above if kind in (SHARE_GT, SHARE_GE) else 1.0 - above


@njit(cache=True, nogil=True)
def _fill_exact_rows(kind, agg, out):  # type: ignore[no-untyped-def]  # numba infers the types
    for row in range(len(agg)):
        out[row] = exact_at(kind, agg[row])


@njit(cache=True, nogil=True)
def _fill_binned_rows(kind, parameter, agg, bins, low, step, out):  # type: ignore[no-untyped-def]  # numba infers the types
    for row in range(len(agg)):
        out[row] = binned_at(kind, parameter, agg[row], bins[row], low, step)


def exact(kind: int, agg: Floats) -> Floats:
    """Return one statistic of every row that needs no bins; NaN where it is not known."""
    out = np.empty(len(agg))
    _fill_exact_rows(kind, agg, out)
    return out


def binned(
    kind: int, *, parameter: float, agg: Floats, bins: NDArray[Any], low: float, step: float
) -> Floats:
    """Return a quantile or a share of every row; NaN where there are no samples."""
    out = np.empty(len(agg))
    _fill_binned_rows(kind, float(parameter), agg, bins, float(low), float(step), out)
    return out
