"""Statistics of sketches at many moments in one pass: row by row, so that each stays in cache."""

from __future__ import annotations

import numpy as np
from numba import njit

from marey.stats.sketches.sketch import BINS, FIELDS, add_value, bin_of, merge_agg
from marey.stats.sketches.sketch_statistics import QUANTILE, binned_at, exact_at
from marey.stats.sketches.sketch_tables import SLOT_MS


@njit(cache=True, nogil=True)
def sort_by_row(time_ms, entity, first_row, rows, from_ms, to_ms, row_count):  # type: ignore[no-untyped-def]  # numba infers the types
    """Return where each row's samples are in a batch: ``order[first[r]:first[r+1]]``, in order of
    time.
    """
    first = np.zeros(row_count + 1, np.int64)
    for i in range(len(time_ms)):
        code = entity[i]
        if code < 0 or code + 1 >= len(first_row):
            continue
        for place in range(first_row[code], first_row[code + 1]):
            row = rows[place]
            if from_ms[row] <= time_ms[i] < to_ms[row]:
                first[row + 1] += 1
    for row in range(row_count):
        first[row + 1] += first[row]
    order = np.empty(first[row_count], np.int32)
    at = first[:-1].copy()
    for i in range(len(time_ms)):
        code = entity[i]
        if code < 0 or code + 1 >= len(first_row):
            continue
        for place in range(first_row[code], first_row[code + 1]):
            row = rows[place]
            if from_ms[row] <= time_ms[i] < to_ms[row]:
                order[at[row]] = i
                at[row] += 1
    return first, order


@njit(cache=True, nogil=True)
def last_seen(first, times, seen, marks, first_ms, last_ms, out):  # type: ignore[no-untyped-def]  # numba infers the types
    """Return the newest sample with any value per row and mark.

    ``first_ms`` and ``last_ms`` move on.
    """
    for row in range(len(first) - 1):
        i, end = first[row], first[row + 1]
        for m in range(len(marks)):
            while i < end and times[i] <= marks[m]:
                if seen[i]:
                    last_ms[row] = max(last_ms[row], times[i])
                    if first_ms[row] == 0:
                        first_ms[row] = times[i]
                i += 1
            out[row, m] = last_ms[row]


@njit(cache=True, nogil=True)
def life_series(  # type: ignore[no-untyped-def]  # numba infers the types
    agg, bins, low, step, which, first, times, values, marks, kinds, parameters, out
):
    """Take the samples of rows ``which`` into whole-life sketches.

    ``out[s, w, m]`` is statistic ``s`` of the row ``which[w]`` at mark ``m``.

    ``bins`` without columns where no statistic needs them.
    """
    current = np.empty(len(kinds))
    with_bins = bins.shape[1] > 0
    for w in range(len(which)):
        row = which[w]
        i, end = first[row], first[row + 1]
        mine, counts = agg[row], bins[row]
        fresh = True
        for m in range(len(marks)):
            # Where nothing is asked, the marks do not matter.
            mark = marks[m] if len(kinds) else times[end - 1] if end > i else marks[m]
            while i < end and times[i] <= mark:
                value = values[i]
                if value == value and add_value(mine, value, times[i]):
                    fresh = True
                    if with_bins:
                        counts[bin_of(value, low, step)] += 1
                i += 1
            if len(kinds) == 0:
                break
            if fresh:
                for s in range(len(kinds)):
                    if kinds[s] < QUANTILE:
                        current[s] = exact_at(kinds[s], mine)
                    else:
                        current[s] = binned_at(kinds[s], parameters[s], mine, counts, low, step)
                fresh = False
            for s in range(len(kinds)):
                out[s, w, m] = current[s]


@njit(inline="always")
def _find_slot(agg, bins, held, number):  # type: ignore[no-untyped-def]  # numba infers the types
    """Find the slot of a row for a 5-minute number, emptied if it held an older one.

    -1: too late.
    """
    slot = number % len(held)
    if held[slot] > number:
        return -1
    if held[slot] < number:
        held[slot] = number
        agg[slot] = 0.0
        if bins.shape[0] > 0:
            bins[slot] = 0
    return slot


@njit(inline="always")
def _merge(agg, held, low_number, high_number, whole):  # type: ignore[no-untyped-def]  # numba infers the types
    whole[:] = 0.0
    for slot in range(len(held)):
        if low_number <= held[slot] <= high_number:
            merge_agg(whole, agg[slot])


@njit(inline="always")
def _merge_bins(bins, held, low_number, high_number, histogram):  # type: ignore[no-untyped-def]  # numba infers the types
    histogram[:] = 0
    for slot in range(len(held)):
        if low_number <= held[slot] <= high_number:
            for b in range(BINS):
                histogram[b] += bins[slot, b]


@njit(cache=True, nogil=True)
def window_series(  # type: ignore[no-untyped-def]  # numba infers the types
    agg, bins, held, low, step, which, first, times, values, marks, windows, kinds, parameters, out
):
    """Return the same over trailing windows, from rings of 5-minute sketches.

    Statistics come sorted by window, so that each window is put together once per mark.
    """
    current = np.empty(len(kinds))
    whole, histogram = np.zeros(FIELDS), np.zeros(BINS, np.uint32)
    # Where nothing is asked, only what the ring will still hold afterwards needs to be taken.
    kept = marks[-1] - SLOT_MS * held.shape[1]
    for w in range(len(which)):
        row = which[w]
        i, end = first[row], first[row + 1]
        if len(kinds) == 0:
            i += np.searchsorted(times[i:end], kept)
        fresh = True
        before = marks[0] - 1
        # The window from whose slots the histogram was put together; new samples are added to it.
        window, from_number = np.int64(-1), np.int64(-1)
        for m in range(len(marks)):
            mark = marks[m]
            while i < end and times[i] <= mark:
                value = values[i]
                if value == value:
                    slot = _find_slot(agg[row], bins[row], held[row], times[i] // SLOT_MS)
                    if slot >= 0 and add_value(agg[row, slot], value, times[i]):
                        fresh = True
                        if bins.shape[1] > 0:
                            place = bin_of(value, low, step)
                            bins[row, slot, place] += 1
                            histogram[place] += 1
                i += 1
            merged = np.int64(-1)
            for s in range(len(kinds)):
                low_number = (mark - windows[s]) // SLOT_MS
                if not fresh and low_number == (before - windows[s]) // SLOT_MS:
                    out[s, w, m] = current[s]
                    continue
                if windows[s] != merged:
                    merged = windows[s]
                    _merge(agg[row], held[row], low_number, mark // SLOT_MS, whole)
                if kinds[s] >= QUANTILE and (windows[s] != window or low_number != from_number):
                    window, from_number = windows[s], low_number
                    _merge_bins(bins[row], held[row], low_number, mark // SLOT_MS, histogram)
                if kinds[s] < QUANTILE:
                    current[s] = exact_at(kinds[s], whole)
                else:
                    current[s] = binned_at(kinds[s], parameters[s], whole, histogram, low, step)
                out[s, w, m] = current[s]
            fresh = False
            before = mark
