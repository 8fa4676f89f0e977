"""What contains what: the innermost interval of a thread around each interval, in one pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marey.stats.compiled import njit

Rows = NDArray[np.int64]


def find_enclosing(stream: Rows, start_ns: Rows, dur_ns: Rows) -> Rows:
    """Return for each event, the innermost other event of its thread that contains it, or -1."""
    end = start_ns + dur_ns
    # A parent starts no later and ends no earlier than its child; ties keep table order.
    order = np.lexsort((-end, start_ns, stream))
    parents: Rows = _find_enclosing(order, stream, start_ns, end)
    return parents


@njit(cache=True, nogil=True)
def _find_enclosing(order: Rows, stream: Rows, start: Rows, end: Rows) -> Rows:
    parent = np.full(len(order), -1, np.int64)
    stack = np.empty(len(order), np.int64)
    depth = 0
    thread = np.int64(-1)
    for k in range(len(order)):
        row = order[k]
        if k == 0 or stream[row] != thread:
            depth, thread = 0, stream[row]
        # Siblings that ended, and events that overlap without containing, are no parents.
        while depth and end[stack[depth - 1]] < end[row]:
            depth -= 1
        if depth:
            parent[row] = stack[depth - 1]
        stack[depth] = row
        depth += 1
    return parent
