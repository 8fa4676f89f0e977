"""What contains what on a thread: events nest, so the latest start still open is the parent."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from marey.trace.readers.json.raw_columns import Codes, Ints

Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def top_level(lane: Codes, start_ns: Ints, end_ns: Ints) -> Flags:
    """Return which of these events, sorted by start, lie in no earlier one of the same thread."""
    top = np.zeros(len(lane), bool)
    for one in np.unique(lane):
        rows = np.flatnonzero(lane == one)
        reached = np.maximum.accumulate(end_ns[rows])
        top[rows[0]] = True
        top[rows[1:]] = start_ns[rows[1:]] >= reached[:-1]
    return top


def innermost(owners: tuple[Codes, Ints, Ints], lane: Codes, time_ns: Ints) -> Rows:
    """Return for each (lane, time) the position of the innermost owner around it, or -1.

    Owners are (lane, start, end), sorted by start and nested on each lane.
    """
    found = np.full(len(lane), -1, np.int64)
    owner_lane, owner_start, owner_end = owners
    for one in np.unique(owner_lane):
        mine = np.flatnonzero(owner_lane == one)
        asked = np.flatnonzero(lane == one)
        if len(asked):
            times, tops = _open_at(owner_start[mine], owner_end[mine])
            place = np.searchsorted(times, time_ns[asked], side="right") - 1
            inside = place >= 0
            top = tops[place[inside]]
            found[asked[inside]] = np.where(top >= 0, mine[top], -1)
    return found


def _open_at(start_ns: Ints, end_ns: Ints) -> tuple[Ints, Rows]:
    """Return times at which the innermost open interval changes, and which one it is
    from then on.
    """
    times: list[int] = []
    tops: list[int] = []
    stack: list[int] = []
    ends = end_ns.tolist()
    for n, start in enumerate(start_ns.tolist()):
        while stack and ends[stack[-1]] <= start:
            times.append(ends[stack.pop()])
            tops.append(stack[-1] if stack else -1)
        times.append(start)
        tops.append(n)
        stack.append(n)
    while stack:
        times.append(ends[stack.pop()])
        tops.append(stack[-1] if stack else -1)
    # An owner that ends after the one it lies in would break the order of times.
    return np.maximum.accumulate(np.array(times, np.int64)), np.array(tops, np.int64)
