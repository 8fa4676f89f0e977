"""A rank's overlapping intervals as one surface: at each moment the kind that is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marey.trace.views.view_kinds import KIND_COUNT, PRIORITY_ORDER

# Ticks since the step began; a step is at most 2**32 of them.
SURFACE = np.dtype([("start", np.uint32), ("end", np.uint32), ("kind", np.uint32)])
Surface = NDArray[np.void]
Ints = NDArray[np.int64]


def flatten(start: Ints, end: Ints, kind: NDArray[Any]) -> Surface:
    """Return non-overlapping pieces in order of time, of the first kind by priority at each
    moment.
    """
    kept = end > start
    start, end, kind = start[kept], end[kept], kind[kept].astype(np.int64)
    times = np.concatenate([start, end])
    # At one moment ends come before starts, so that neighbours do not overlap.
    change = np.concatenate([np.ones(len(start), np.int64), -np.ones(len(end), np.int64)])
    order = np.lexsort((change, times))
    pieces = _sweep(
        times[order], change[order], np.concatenate([kind, kind])[order], PRIORITY_ORDER
    )
    return _as_surface(*pieces)


def _as_surface(start: Ints, end: Ints, kind: Ints) -> Surface:
    surface = np.empty(len(start), SURFACE)
    surface["start"], surface["end"], surface["kind"] = start, end, kind
    return surface


@njit(cache=True)
def _sweep(times: Ints, change: Ints, kind: Ints, priority: Ints) -> tuple[Ints, Ints, Ints]:
    """Walk the boundaries and keep a piece for every stretch of one drawn kind."""
    count = len(times)
    starts = np.empty(count, np.int64)
    ends = np.empty(count, np.int64)
    kinds = np.empty(count, np.int64)
    active = np.zeros(len(priority), np.int64)
    made = 0
    shown = 0
    since = 0
    at = 0
    while at < count:
        now = times[at]
        while at < count and times[at] == now:
            active[kind[at]] += change[at]
            at += 1
        drawn = 0
        for place in range(len(priority)):
            if active[priority[place]] > 0:
                drawn = priority[place]
                break
        if drawn != shown:
            if shown != 0 and now > since:
                starts[made], ends[made], kinds[made] = since, now, shown
                made += 1
            shown = drawn
            since = now
    return starts[:made].copy(), ends[:made].copy(), kinds[:made].copy()


def majority(surfaces: list[Surface]) -> Surface:
    """Return the most frequent kind of these surfaces at each moment.

    Every boundary of every surface is a moment where the majority may change, so that the result
    is exact at any zoom.
    """
    if not surfaces:
        return np.empty(0, SURFACE)
    joined = np.concatenate(surfaces)
    start, end = joined["start"].astype(np.int64), joined["end"].astype(np.int64)
    kind = joined["kind"].astype(np.int64)
    times = np.concatenate([start, end])
    change = np.concatenate([np.ones(len(start), np.int64), -np.ones(len(end), np.int64)])
    order = np.lexsort((change, times))
    kinds = np.concatenate([kind, kind])[order]
    return _as_surface(
        *_find_majority_kinds(times[order], change[order], kinds, len(surfaces), KIND_COUNT)
    )


@njit(cache=True)
def _find_majority_kinds(
    times: Ints, change: Ints, kind: Ints, voters: int, kinds_count: int
) -> tuple[Ints, Ints, Ints]:
    count = len(times)
    starts = np.empty(count, np.int64)
    ends = np.empty(count, np.int64)
    kinds = np.empty(count, np.int64)
    active = np.zeros(kinds_count, np.int64)
    # Who has no piece at the moment shows nothing.
    active[0] = voters
    made = 0
    shown = 0
    since = 0
    at = 0
    while at < count:
        now = times[at]
        while at < count and times[at] == now:
            active[kind[at]] += change[at]
            active[0] -= change[at]
            at += 1
        drawn = int(np.argmax(active))
        if drawn != shown:
            if shown != 0 and now > since:
                starts[made], ends[made], kinds[made] = since, now, shown
                made += 1
            shown = drawn
            since = now
    return starts[:made].copy(), ends[:made].copy(), kinds[:made].copy()
