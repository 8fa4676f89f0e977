"""A rank's memory over time, thin enough to draw and with every peak kept."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

MEMORY_LINES = pa.schema(
    [
        pa.field("rank", pa.int32()),
        pa.field("device", pa.int32()),
        pa.field("time_ns", pa.int64()),
        pa.field("allocated_bytes", pa.int64()),
        # -1 where the profiler does not say.
        pa.field("reserved_bytes", pa.int64()),
    ]
)
# Points of a line; each is the highest level of its slice of time.
POINTS = 1000


def thin_memory(memory: pa.Table, rank: int, time_ns: NDArray[np.int64]) -> pa.Table:
    """Return at most ``POINTS`` levels per device, the highest of each slice of time."""
    device = memory["device"].to_numpy()
    parts = [
        _thin(memory.filter(pa.array(device == one)), rank, int(one), time_ns[device == one])
        for one in np.unique(device)
    ]
    return pa.concat_tables(parts)


def _thin(memory: pa.Table, rank: int, device: int, time_ns: NDArray[np.int64]) -> pa.Table:
    level = memory["allocated_bytes"].to_numpy()
    if (level < 0).any():
        # Without totals: the running sum from an unknown start, moved up to be no less than 0.
        level = np.cumsum(memory["bytes"].to_numpy())
        level = level - min(int(level.min()), 0)
    order = np.argsort(time_ns, kind="stable")
    time, level = time_ns[order], level[order]
    reserved = memory["reserved_bytes"].to_numpy()[order]
    slices = (np.arange(len(time)) * min(POINTS, len(time))) // len(time)
    best = np.lexsort((-level, slices))
    chosen = np.sort(best[np.unique(slices[best], return_index=True)[1]])
    columns = [
        np.full(len(chosen), rank, np.int32),
        np.full(len(chosen), device, np.int32),
        time[chosen],
        level[chosen],
        reserved[chosen],
    ]
    return pa.table([pa.array(c) for c in columns], schema=MEMORY_LINES)
