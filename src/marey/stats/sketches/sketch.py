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
    """Return sketch summaries that have seen nothing."""
    return np.zeros((*shape, FIELDS))


def empty_bins(*shape: int, dtype: type = np.uint32) -> NDArray[Any]:
    """Return bins that have seen nothing.

    ``uint8`` is enough for a few minutes, ``uint32`` for years.
    """
    return np.zeros((*shape, BINS), dtype)


@njit(inline="always")
def bin_of(value, low, step):  # type: ignore[no-untyped-def]  # numba infers the types
    """Return the bin whose centre is nearest; values beyond the range fall into the outer bins."""
    place = (value - low) / step + 0.5
    if place < 0.0:
        return 0
    if place >= BINS:
        return BINS - 1
    return int(place)


@njit(inline="always")
def add_value(agg, value, time_ms):  # type: ignore[no-untyped-def]  # numba infers the types
    """Take one sample into a summary; the same moment again is a duplicate: False."""
    if agg[COUNT] == 0.0:
        agg[COUNT] = 1.0
        agg[REF] = value
        agg[T0] = time_ms
        agg[MIN] = value
        agg[MAX] = value
        agg[LAST] = value
        agg[LAST_MS] = time_ms
        return True
    if time_ms == agg[LAST_MS]:
        return False
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
    return True


@njit(inline="always")
def add_run(agg, bins, place, values, time_ms, begin, end, from_ms, to_ms, low, step):  # type: ignore[no-untyped-def]  # numba infers the types
    """Take the samples ``begin`` to ``end`` into one sketch, as ``add_value`` would one by one.

    The summary is kept in registers meanwhile. ``bins[place]`` counts them; a place below 0: no
    bins do. Returns the number of samples that were valid.
    """
    count, ref, total, squares = agg[COUNT], agg[REF], agg[SUM], agg[SQUARES]
    t0, hours, hours2, products = agg[T0], agg[TIME], agg[TIME2], agg[TIMEVALUE]
    least, greatest, last, last_ms = agg[MIN], agg[MAX], agg[LAST], agg[LAST_MS]
    taken = 0
    for i in range(begin, end):
        value, moment = values[i], time_ms[i]
        if value != value or moment < from_ms or moment >= to_ms:
            continue
        taken += 1
        if count == 0.0:
            count, ref, t0 = 1.0, np.float64(value), np.float64(moment)
            least = greatest = last = ref
            last_ms = t0
        elif moment == last_ms:
            continue
        else:
            delta = value - ref
            since = (moment - t0) / HOUR_MS
            count += 1.0
            total += delta
            squares += delta * delta
            hours += since
            hours2 += since * since
            products += since * delta
            if value < least:
                least = np.float64(value)
            if value > greatest:
                greatest = np.float64(value)
            if moment > last_ms:
                last, last_ms = np.float64(value), np.float64(moment)
        if place >= 0:
            bins[place, bin_of(value, low, step)] += 1
    agg[COUNT], agg[REF], agg[SUM], agg[SQUARES] = count, ref, total, squares
    agg[T0], agg[TIME], agg[TIME2], agg[TIMEVALUE] = t0, hours, hours2, products
    agg[MIN], agg[MAX], agg[LAST], agg[LAST_MS] = least, greatest, last, last_ms
    return taken


@njit(cache=True, nogil=True)
def update_rows(  # type: ignore[no-untyped-def]  # numba infers the types
    agg, bins, low, step, slots, values, time_ms, entity, first_row, rows, from_ms, to_ms
):
    """Take a batch into every row that held the entity at the sample's time.

    ``values[k]`` goes to the metric ``slots[k]``; ``rows[first_row[e]:first_row[e+1]]`` are the
    rows of entity ``e``, each valid in ``[from_ms, to_ms)``. Returns the number of samples taken.
    Samples of one entity that stand together are taken together.
    """
    taken = 0
    end = 0
    while end < len(time_ms):
        begin, code = end, entity[end]
        while end < len(time_ms) and entity[end] == code:
            end += 1
        if code < 0 or code + 1 >= len(first_row):
            continue
        for place in range(first_row[code], first_row[code + 1]):
            row = rows[place]
            since, until = from_ms[row], to_ms[row]
            for k in range(len(slots)):
                m = slots[k]
                taken += add_run(
                    agg[row, m], bins[row], m, values[k], time_ms, begin, end, since, until,
                    low[m], step[m],
                )  # fmt: skip
    return taken


@njit(inline="always")
def merge_agg(into, other):  # type: ignore[no-untyped-def]  # numba infers the types
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
def merge_rows(into_agg, into_bins, agg, bins):  # type: ignore[no-untyped-def]  # numba infers the types
    """Add sketches row by row."""
    for row in range(len(agg)):
        merge_agg(into_agg[row], agg[row])
        for b in range(BINS):
            into_bins[row, b] += bins[row, b]
