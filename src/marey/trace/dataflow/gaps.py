"""Find when a training thread runs no operator: where it may wait for a communication."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
# Shorter pauses are the interpreter between two operators.
SHORTEST_GAP_NS = 20_000


def find_gaps(start_ns: Ints, end_ns: Ints, working: Flags) -> tuple[Ints, Ints]:
    """Return the pauses in which the innermost open event of a thread is not one that works.

    Events are sorted by start and nested. An annotation inside an operator is such a pause, too:
    what it does shows as operators inside it, and what does not show is waiting.
    """
    times, busy = _sweep(start_ns.tolist(), end_ns.tolist(), working.tolist())
    moment, state = np.array(times, np.int64), np.array(busy, bool)
    if not len(moment):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = np.argsort(moment, kind="stable")
    moment, state = moment[order], state[order]
    changes = np.flatnonzero(np.append(True, state[1:] != state[:-1]))
    begins = changes[~state[changes]]
    following = np.searchsorted(changes, begins) + 1
    begins = begins[following < len(changes)]
    ends = changes[following[following < len(changes)]]
    long = moment[ends] - moment[begins] >= SHORTEST_GAP_NS
    return moment[begins[long]], moment[ends[long]]


def _sweep(starts: list[int], ends: list[int], working: list[bool]) -> tuple[list[int], list[bool]]:
    """Return the times at which the innermost open event changes, and whether it works."""
    times: list[int] = []
    busy: list[bool] = []
    stack: list[int] = []
    for event, start in enumerate(starts):
        while stack and ends[stack[-1]] <= start:
            times.append(ends[stack.pop()])
            busy.append(bool(stack) and working[stack[-1]])
        times.append(start)
        busy.append(working[event])
        stack.append(event)
    while stack:
        times.append(ends[stack.pop()])
        busy.append(bool(stack) and working[stack[-1]])
    return times, busy
