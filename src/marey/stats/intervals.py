"""Sets of time intervals as two sorted arrays: union, difference, gaps and cover, in linear time.

A *set* here is what ``merge`` returns: disjoint half-open intervals ``[start, end)`` in time
order. Everything after the one sort is a single pass.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marey.stats.compiled import njit

Times = NDArray[np.int64]


class Intervals(NamedTuple):
    """Disjoint half-open intervals in time order."""

    start_ns: Times
    end_ns: Times

    @property
    def total_ns(self) -> int:
        """The time they cover together."""
        return int((self.end_ns - self.start_ns).sum())


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def merge(start_ns: Any, dur_ns: Any) -> Intervals:
    """Return the union of any intervals, in any order, overlapping or not."""
    start = np.ascontiguousarray(start_ns, np.int64)
    end = start + np.asarray(dur_ns, np.int64)
    if not len(start):
        return EMPTY
    if np.any(start[1:] < start[:-1]):
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    return Intervals(*_merge_sorted(start, end))


def unite(*sets: Intervals) -> Intervals:
    """Return the union of sets."""
    start = np.concatenate([s.start_ns for s in sets])
    end = np.concatenate([s.end_ns for s in sets])
    return merge(start, end - start)


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """Return the intervals that ``a`` covers and ``b`` does not."""
    if not len(a.start_ns):
        return EMPTY
    return intersect(a, complement(b, int(a.start_ns[0]), int(a.end_ns[-1])))


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """Return the intervals that both cover."""
    return Intervals(*_intersect(a.start_ns, a.end_ns, b.start_ns, b.end_ns))


# Far beyond any clock, far from overflow.
_FAR = np.int64(2**62)


def complement(a: Intervals, lo_ns: int = -int(_FAR), hi_ns: int = int(_FAR)) -> Intervals:
    """Return the gaps between the intervals, within ``[lo, hi)``."""
    start = np.concatenate([np.array([lo_ns], np.int64), a.end_ns])
    end = np.concatenate([a.start_ns, np.array([hi_ns], np.int64)])
    start, end = np.clip(start, lo_ns, hi_ns), np.clip(end, lo_ns, hi_ns)
    kept = end > start
    return Intervals(start[kept], end[kept])


def cover(a: Intervals, lo_ns: Any, hi_ns: Any) -> Times:
    """Return for each window, how much of it ``a`` covers.

    Windows may overlap and be in any order.
    """
    lo, hi = np.asarray(lo_ns, np.int64), np.asarray(hi_ns, np.int64)
    if not len(a.start_ns):
        return np.zeros(len(lo), np.int64)
    return _sum_covered_before(a, np.maximum(lo, hi)) - _sum_covered_before(a, lo)


def _sum_covered_before(a: Intervals, at_ns: Times) -> Times:
    """Return how much ``a`` covers before each time."""
    lengths = a.end_ns - a.start_ns
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    index = np.searchsorted(a.start_ns, at_ns, side="right")
    last = np.maximum(index - 1, 0)
    partial = np.clip(at_ns - a.start_ns[last], 0, lengths[last])
    covered: Times = np.where(index > 0, before[last] + partial, 0)
    return covered


@njit(cache=True, nogil=True)
def _merge_sorted(start: Times, end: Times) -> tuple[Times, Times]:
    out_start, out_end = np.empty_like(start), np.empty_like(end)
    n = 0
    for i in range(len(start)):
        if end[i] <= start[i]:
            continue
        if n and start[i] <= out_end[n - 1]:
            out_end[n - 1] = max(out_end[n - 1], end[i])
        else:
            out_start[n], out_end[n] = start[i], end[i]
            n += 1
    return out_start[:n].copy(), out_end[:n].copy()


@njit(cache=True, nogil=True)
def _intersect(a_start: Times, a_end: Times, b_start: Times, b_end: Times) -> tuple[Times, Times]:
    out_start = np.empty(len(a_start) + len(b_start), np.int64)
    out_end = np.empty_like(out_start)
    i, j, n = 0, 0, 0
    while i < len(a_start) and j < len(b_start):
        lo, hi = max(a_start[i], b_start[j]), min(a_end[i], b_end[j])
        if lo < hi:
            out_start[n], out_end[n] = lo, hi
            n += 1
        if a_end[i] < b_end[j]:
            i += 1
        else:
            j += 1
    return out_start[:n].copy(), out_end[:n].copy()
