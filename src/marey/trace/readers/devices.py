"""One process may drive several devices: each gets a table of its own, with the host beside it.

What the host did belongs to all of them; what a device did, only to that device. A table of one
device is the same whatever else the process drives.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from marey.model.training.traces import NO_VALUE
from marey.trace.readers.json.raw_columns import Sparse
from marey.trace.readers.spans import Column, RankEvents, sort_again

# Columns that hold row numbers of the same table.
_ROW_COLUMNS = ("launch", "forward")


def split_devices(events: RankEvents) -> list[RankEvents]:
    """Return one table per device that did something.

    The events themselves where that is only one.
    """
    device = events.columns.get("device", NO_VALUE)
    if not isinstance(device, np.ndarray):
        return [events]
    used = device[events.column("on_device").astype(bool)]
    numbers = np.unique(used[used >= 0]).tolist()
    if len(numbers) < 2:
        return [events]
    return [_of_device(events, device, int(number)) for number in numbers]


def _of_device(events: RankEvents, device: npt.NDArray[np.generic], number: int) -> RankEvents:
    kept = np.flatnonzero((device == number) | (device == NO_VALUE))
    place = np.full(len(device), -1, np.int32)
    place[kept] = np.arange(len(kept), dtype=np.int32)
    columns = {
        name: _move_rows(values, kept, place, is_row=name in _ROW_COLUMNS)
        for name, values in events.columns.items()
    }
    info = replace(events.info, device=number)
    return RankEvents(info, events.symbols, columns, _memory_of(events.memory, number))


def _move_rows(
    values: Column, kept: npt.NDArray[np.int64], place: npt.NDArray[np.int32], *, is_row: bool
) -> Column:
    if isinstance(values, int):
        return values
    if isinstance(values, Sparse):
        moved = sort_again(values, place)
        return Sparse(moved.rows, _renumber(moved.values, place)) if is_row else moved
    return _renumber(values[kept], place) if is_row else values[kept]


def _renumber(rows: npt.NDArray[np.generic], place: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    numbers = rows.astype(np.int64)
    return np.where(numbers >= 0, place[np.maximum(numbers, 0)], NO_VALUE).astype(np.int64)


def _memory_of(memory: pa.Table, number: int) -> pa.Table:
    if not memory.num_rows:
        return memory
    mine = pc.or_(pc.equal(memory["device"], number), pc.equal(memory["device"], NO_VALUE))
    return memory.filter(mine)
