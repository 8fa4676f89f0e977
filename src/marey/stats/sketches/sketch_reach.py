"""How far a sketch's statistics can move while a block of samples is taken, without taking them.

The bounds hold after each of the samples, in whatever order and with duplicates left out. They are
never too narrow; whoever finds a limit outside of them needs no statistic at any moment of the
block.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from marey.stats.sketches.sketch import BINS, COUNT, LAST, MAX, MIN, REF, SUM, bin_of
from marey.stats.sketches.sketch_statistics import (
    GREATEST,
    LEAST,
    MEAN,
    NEWEST,
    NUMBER,
    QUANTILE,
    SHARE_GE,
    SHARE_GT,
    SPREAD,
)

# Sums are rounded in another order than here.
ROUNDING = 1e-9


@njit(inline="always")
def _compute_exact_reach(kind, agg, coming, least, greatest):  # type: ignore[no-untyped-def]  # numba infers the types
    n = agg[COUNT]
    if kind == NUMBER:
        return n, n + coming
    if n == 0.0:
        if kind == SPREAD:
            return 0.0, greatest - least
        return least, greatest
    low, high = min(agg[MIN], least), max(agg[MAX], greatest)
    if kind == LEAST:
        return low, agg[MIN]
    if kind == GREATEST:
        return agg[MAX], high
    if kind == SPREAD:
        return agg[MAX] - agg[MIN], high - low
    if kind == NEWEST:
        return min(agg[LAST], least), max(agg[LAST], greatest)
    # The mean: pulled hardest by all of them at the least or greatest value.
    mean = agg[REF] + agg[SUM] / n
    if coming == 0:
        return mean, mean
    total, all_of_them = mean * n, n + coming
    down = (total + coming * least) / all_of_them
    up = (total + coming * greatest) / all_of_them
    return min(mean, down), max(mean, up)


@njit(inline="always")
def _find_bin(bins, rank):  # type: ignore[no-untyped-def]  # numba infers the types
    """Find the bin that holds the sample of this rank (0: the least)."""
    b, seen = 0, np.int64(bins[0])
    while seen <= rank and b < BINS - 1:
        b += 1
        seen += bins[b]
    return b


@njit(inline="always")
def _compute_quantile_reach(q, agg, bins, low, step, coming, least, greatest):  # type: ignore[no-untyped-def]  # numba infers the types
    """Return as far up as if all new samples lay above the old ones, as far down as if below."""
    n = np.int64(agg[COUNT])
    if n == 0:
        return least, greatest
    bottom, top = min(agg[MIN], least), max(agg[MAX], greatest)
    place = q * (n + coming - 1)
    above, below = np.int64(np.ceil(place)), np.int64(np.floor(place)) - coming
    up, down = top, bottom
    # A value is known to half a step; those in the outer bins only by the extremes.
    if above < n:
        b = _find_bin(bins, above)
        if b < BINS - 1:
            up = min(low + (b + 1) * step, top)
    if below >= 0:
        b = _find_bin(bins, below)
        if b > 0:
            down = max(low + (b - 1) * step, bottom)
    return down, up


@njit(inline="always")
def _share_reach(kind, limit, agg, bins, low, step, coming):  # type: ignore[no-untyped-def]  # numba infers the types
    n = agg[COUNT] + coming
    if n == 0.0:
        return 0.0, 1.0
    edge = bin_of(limit, low, step)
    surely = 0.0
    for b in range(edge + 1, BINS):
        surely += bins[b]
    least, most = surely / n, (surely + bins[edge] + coming) / n
    if kind in (SHARE_GT, SHARE_GE):
        return least, most
    return 1.0 - most, 1.0 - least


@njit(inline="always")
def _find_extremes(values, begin, end):  # type: ignore[no-untyped-def]  # numba infers the types
    """Return how many values there are, the least and the greatest of them."""
    coming, least, greatest = 0, np.inf, -np.inf
    for i in range(begin, end):
        value = values[i]
        if value == value:
            coming += 1
            least = min(least, value)
            greatest = max(greatest, value)
    return coming, least, greatest


@njit(cache=True, nogil=True)
def life_reach(agg, bins, low, step, rows, first, values, kind, parameter, out):  # type: ignore[no-untyped-def]  # numba infers the types
    """Fill ``out[r]`` with the least and greatest that a statistic of row ``rows[r]`` can be.

    The row's samples are ``values[first[row]:first[row + 1]]``. Where nothing is known and nothing
    comes, the least is above the greatest; a statistic without bounds has infinite ones.
    """
    for r in range(len(rows)):
        row = rows[r]
        coming, least, greatest = _find_extremes(values, first[row], first[row + 1])
        if agg[row, COUNT] + coming == 0:
            out[r, 0], out[r, 1] = np.inf, -np.inf
            continue
        if kind == QUANTILE:
            down, up = _compute_quantile_reach(
                parameter, agg[row], bins[row], low, step, coming, least, greatest
            )
        elif kind > QUANTILE:
            down, up = _share_reach(kind, parameter, agg[row], bins[row], low, step, coming)
        elif kind <= MEAN or kind in (SPREAD, NUMBER):
            down, up = _compute_exact_reach(kind, agg[row], coming, least, greatest)
        else:
            down, up = -np.inf, np.inf
        out[r, 0] = down - ROUNDING * (1.0 + abs(down))
        out[r, 1] = up + ROUNDING * (1.0 + abs(up))
