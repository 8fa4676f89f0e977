"""Streaming sketches of many series at once: fixed bins, exact extremes and exact moments.

A sketch holds 101 counts at equal steps over the metric's range plus, exactly, the count, least,
greatest and last value, and the moments in value and time from which mean, deviation and trend
follow. A quantile is off by at most half a step (0.5 % of the range). Sketches of disjoint samples
add up, in any order, to the sketch of all of them: live, history and back-test agree.

All functions work on two arrays: ``agg`` float64 ``[…, FIELDS]`` and ``bins`` ``[…, BINS]``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

BINS = 101

# Fields of ``agg``. Sums are of (value - REF) and of hours since T0, the first sample that came:
# so a constant series has exactly no deviation, and large counters lose no digits.
COUNT, REF, SUM, SQUARES, T0, TIME, TIME2, TIMEVALUE, MIN, MAX, LAST, LAST_MS = range(12)
FIELDS = 12

HOUR_MS = 3_600_000.0

Floats = NDArray[np.float64]


def empty_agg(*shape: int) -> Floats:
    """Sketch summaries that have seen nothing."""
    return np.zeros((*shape, FIELDS))


def empty_bins(*shape: int, dtype: type = np.uint32) -> NDArray[Any]:
    """Bins that have seen nothing; ``uint16`` is enough for a few minutes, ``uint32`` for years."""
    return np.zeros((*shape, BINS), dtype)


@njit(inline="always")
def bin_of(value, low, step):  # type: ignore[no-untyped-def]
    """The bin whose centre is nearest; values beyond the range fall into the outer bins."""
    place = (value - low) / step + 0.5
    if place < 0.0:
        return 0
    if place >= BINS:
        return BINS - 1
    return int(place)


@njit(inline="always")
def add_sample(agg, bins, value, time_ms, low, step):  # type: ignore[no-untyped-def]
    """Take one sample into one sketch; the same moment again is a duplicate and is left out."""
    if agg[COUNT] == 0.0:
        agg[COUNT] = 1.0
        agg[REF] = value
        agg[T0] = time_ms
        agg[MIN] = value
        agg[MAX] = value
        agg[LAST] = value
        agg[LAST_MS] = time_ms
    elif time_ms == agg[LAST_MS]:
        return
    else:
        delta = value - agg[REF]
        hours = (time_ms - agg[T0]) / HOUR_MS
        agg[COUNT] += 1.0
        agg[SUM] += delta
        agg[SQUARES] += delta * delta
        agg[TIME] += hours
        agg[TIME2] += hours * hours
        agg[TIMEVALUE] += hours * delta
        if value < agg[MIN]:
            agg[MIN] = value
        if value > agg[MAX]:
            agg[MAX] = value
        if time_ms > agg[LAST_MS]:
            agg[LAST] = value
            agg[LAST_MS] = time_ms
    bins[bin_of(value, low, step)] += 1


@njit(cache=True, nogil=True)
def update_rows(  # type: ignore[no-untyped-def]
    agg, bins, low, step, slots, values, time_ms, entity, first_row, rows, from_ms, to_ms
):
    """Take a batch into every row that held the entity at the sample's time.

    ``values[k]`` goes to the metric ``slots[k]``; ``rows[first_row[e]:first_row[e+1]]`` are the
    rows of entity ``e``, each valid in ``[from_ms, to_ms)``. Returns the number of samples taken.
    """
    taken = 0
    for i in range(len(time_ms)):
        moment = time_ms[i]
        code = entity[i]
        if code < 0 or code + 1 >= len(first_row):
            continue
        for place in range(first_row[code], first_row[code + 1]):
            row = rows[place]
            if moment < from_ms[row] or moment >= to_ms[row]:
                continue
            for k in range(len(slots)):
                value = values[k, i]
                if value == value:
                    m = slots[k]
                    add_sample(agg[row, m], bins[row, m], value, moment, low[m], step[m])
                    taken += 1
    return taken


@njit(inline="always")
def merge_agg(into, other):  # type: ignore[no-untyped-def]
    """Add one summary to another, moving the second to the first one's reference and origin."""
    n = other[COUNT]
    if n == 0.0:
        return
    if into[COUNT] == 0.0:
        into[:] = other
        return
    shift = other[REF] - into[REF]
    later = (other[T0] - into[T0]) / HOUR_MS
    total = other[SUM] + n * shift
    into[SQUARES] += other[SQUARES] + 2.0 * shift * other[SUM] + n * shift * shift
    into[TIMEVALUE] += other[TIMEVALUE] + shift * other[TIME] + later * total
    into[TIME2] += other[TIME2] + 2.0 * later * other[TIME] + n * later * later
    into[TIME] += other[TIME] + n * later
    into[SUM] += total
    into[COUNT] += n
    into[MIN] = min(into[MIN], other[MIN])
    into[MAX] = max(into[MAX], other[MAX])
    if other[LAST_MS] > into[LAST_MS]:
        into[LAST] = other[LAST]
        into[LAST_MS] = other[LAST_MS]


@njit(cache=True, nogil=True)
def merge_rows(into_agg, into_bins, agg, bins):  # type: ignore[no-untyped-def]
    """Add sketches row by row."""
    for row in range(len(agg)):
        merge_agg(into_agg[row], agg[row])
        for b in range(BINS):
            into_bins[row, b] += bins[row, b]


@njit(inline="always")
def _ordered(agg, bins, rank, low, step):  # type: ignore[no-untyped-def]
    """The value of the ``rank``-th sample in order (from 0), to half a step."""
    if rank <= 0:
        return agg[MIN]
    if rank >= agg[COUNT] - 1:
        return agg[MAX]
    seen = 0
    for b in range(BINS):
        seen += bins[b]
        if seen > rank:
            centre = low + b * step
            return min(max(centre, agg[MIN]), agg[MAX])
    return agg[MAX]


@njit(cache=True, nogil=True)
def quantile_rows(agg, bins, low, step, q, out):  # type: ignore[no-untyped-def]
    """The ``q`` quantile per row (between the two nearest samples, linearly); NaN where empty."""
    for row in range(len(agg)):
        n = agg[row, COUNT]
        if n == 0.0:
            out[row] = np.nan
            continue
        place = q * (n - 1.0)
        below = int(np.floor(place))
        value = _ordered(agg[row], bins[row], below, low, step)
        part = place - below
        if part > 0.0:
            above = _ordered(agg[row], bins[row], below + 1, low, step)
            value += part * (above - value)
        out[row] = value


@njit(cache=True, nogil=True)
def share_above_rows(agg, bins, low, step, limit, out):  # type: ignore[no-untyped-def]
    """The share (0-1) of samples above ``limit`` per row; within its bin in proportion."""
    for row in range(len(agg)):
        n = agg[row, COUNT]
        if n == 0.0:
            out[row] = np.nan
        elif agg[row, MAX] <= limit:
            out[row] = 0.0
        elif agg[row, MIN] > limit:
            out[row] = 1.0
        else:
            edge = bin_of(limit, low, step)
            above = 0.0
            for b in range(edge + 1, BINS):
                above += bins[row, b]
            # The bin's ends, narrowed to where samples can be at all.
            left = max(low + (edge - 0.5) * step, agg[row, MIN])
            right = min(low + (edge + 0.5) * step, agg[row, MAX])
            if right > left:
                part = min(max((right - limit) / (right - left), 0.0), 1.0)
                above += part * bins[row, edge]
            out[row] = above / n


def share_beyond(
    agg: Floats, bins: NDArray[Any], low: float, step: float, op: str, limit: float
) -> Floats:
    """The share (0-1) of samples for which ``value op limit`` holds; NaN where empty."""
    out = np.empty(len(agg))
    share_above_rows(agg, bins, low, step, limit, out)
    if op in (">", ">="):
        # Exact where all samples are equal to the limit: ">=" holds, ">" does not.
        return np.where((op == ">=") & (agg[:, MIN] >= limit) & (agg[:, COUNT] > 0), 1.0, out)
    if op not in ("<", "<="):
        raise ValueError(f"share_beyond: {op!r} is not one of <, <=, >, >=")
    below = 1.0 - out
    exact_none = (op == "<") & (agg[:, MIN] >= limit) & (agg[:, COUNT] > 0)
    return np.where(exact_none, 0.0, below)


def _counted(agg: Floats, least: int) -> NDArray[np.bool_]:
    return np.asarray(agg[..., COUNT] >= least)


def mean(agg: Floats) -> Floats:
    """Exact mean; NaN where empty."""
    n = np.maximum(agg[..., COUNT], 1.0)
    return np.where(_counted(agg, 1), agg[..., REF] + agg[..., SUM] / n, np.nan)


def variance(agg: Floats) -> Floats:
    """Variance of the samples as a population; NaN for fewer than two."""
    n = np.maximum(agg[..., COUNT], 1.0)
    value = np.maximum(agg[..., SQUARES] / n - (agg[..., SUM] / n) ** 2, 0.0)
    return np.where(_counted(agg, 2), value, np.nan)


def spread(agg: Floats) -> Floats:
    """Greatest minus least; NaN where empty."""
    return np.where(_counted(agg, 1), agg[..., MAX] - agg[..., MIN], np.nan)


def field(agg: Floats, name: int) -> Floats:
    """One exact field (MIN, MAX, LAST); NaN where empty."""
    return np.where(_counted(agg, 1), agg[..., name], np.nan)


def trend(agg: Floats) -> Floats:
    """Slope of the least-squares line in units per hour; NaN for fewer than two moments."""
    n = np.maximum(agg[..., COUNT], 1.0)
    across = agg[..., TIME2] - agg[..., TIME] ** 2 / n
    along = agg[..., TIMEVALUE] - agg[..., TIME] * agg[..., SUM] / n
    known = _counted(agg, 2) & (across > 1e-12)
    return np.where(known, along / np.where(known, across, 1.0), np.nan)


def steadiness(agg: Floats) -> Floats:
    """How much of the variance the trend explains (0-1); NaN where there is none to explain."""
    n = np.maximum(agg[..., COUNT], 1.0)
    across = agg[..., TIME2] - agg[..., TIME] ** 2 / n
    along = agg[..., TIMEVALUE] - agg[..., TIME] * agg[..., SUM] / n
    total = agg[..., SQUARES] - agg[..., SUM] ** 2 / n
    known = _counted(agg, 3) & (across > 1e-12) & (total > 1e-9 * n)
    safe = np.where(known, across * total, 1.0)
    return np.where(known, np.minimum(along**2 / safe, 1.0), np.nan)


def quantile(agg: Floats, bins: NDArray[Any], low: float, step: float, q: float) -> Floats:
    """The ``q`` quantile of each row, off by at most half a step; NaN where empty."""
    out = np.empty(len(agg))
    quantile_rows(agg, bins, low, step, q, out)
    return out
