"""How a rank's memory filled, where the profiler recorded it."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np
import pyarrow as pa

POINTS = 240


class MemoryTimeline(TypedDict):
    """How a device's memory filled: the highest level in each of equal slices of time."""

    start_ns: int
    end_ns: int
    peak_bytes: int
    end_bytes: int
    reserved_peak_bytes: int | None
    levels_bytes: list[int]


class DeviceMemory(MemoryTimeline):
    """The timeline of one device."""

    device: int


def memory_timeline(memory: pa.Table, *, points: int = POINTS) -> list[DeviceMemory]:
    """Return per device: peak, end, and the highest level in each of ``points`` equal slices of
    time.
    """
    if not memory.num_rows:
        return []
    device = memory["device"].to_numpy()
    return [
        {"device": int(d), **_timeline(memory.filter(pa.array(device == d)), points)}
        for d in np.unique(device)
    ]


def _timeline(memory: pa.Table, points: int) -> MemoryTimeline:
    memory = memory.sort_by("time_ns")
    time = memory["time_ns"].to_numpy()
    level = _level(memory)
    edges = np.linspace(time[0], time[-1], points + 1)
    slices = np.clip(np.searchsorted(edges, time, side="right") - 1, 0, points - 1)
    highest = np.full(points, -1.0)
    np.maximum.at(highest, slices, level)
    # A slice without an allocation keeps the level of the one before it.
    last = np.full(points, -1, np.int64)
    last[slices] = np.arange(len(slices))
    carried = level[np.maximum.accumulate(last)]
    levels = np.maximum(highest, np.concatenate([carried[:1], carried[:-1]]))
    reserved = memory["reserved_bytes"].to_numpy()
    return {
        "start_ns": int(time[0]),
        "end_ns": int(time[-1]),
        "peak_bytes": int(level.max()),
        "end_bytes": int(level[-1]),
        "reserved_peak_bytes": int(reserved.max()) if (reserved >= 0).any() else None,
        "levels_bytes": [int(v) for v in levels],
    }


def _level(memory: pa.Table) -> Any:
    """Return the allocated bytes after each row.

    Without totals, the running sum from an unknown start.
    """
    allocated = memory["allocated_bytes"].to_numpy()
    if (allocated >= 0).all():
        return allocated.astype(float)
    running = np.cumsum(memory["bytes"].to_numpy()).astype(float)
    return running - min(running.min(), 0.0)
