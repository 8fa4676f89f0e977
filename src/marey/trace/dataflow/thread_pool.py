"""Lanes for work that a pool of threads carries out, whichever of them is free."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def assign_lanes(start_ns: Ints, end_ns: Ints) -> Ints:
    """Return the lowest lane that is free when each piece of work starts.

    In a pool the thread that runs a piece of work changes from step to step; the order of the work
    does not. Lanes given in that order are the same in every step, as streams are.
    """
    lanes = np.zeros(len(start_ns), np.int64)
    free_at: list[int] = []
    for n in np.lexsort((-end_ns, start_ns)).tolist():
        begin = int(start_ns[n])
        lane = next((k for k, until in enumerate(free_at) if until <= begin), len(free_at))
        if lane == len(free_at):
            free_at.append(begin)
        free_at[lane] = int(end_ns[n])
        lanes[n] = lane
    return lanes


def merge_pool_threads(columns: Mapping[str, Ints]) -> Ints:
    """Return devices in which a pool of threads without a number of its own is the first one.

    TensorFlow runs the operators of all replicas of a host on one pool.
    """
    device = columns["device"]
    if (device >= 0).any():
        return device
    return np.where(columns["on_device"] != 0, 0, device)
