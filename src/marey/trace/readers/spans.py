"""One rank's events while a reader works on them: narrow numpy columns, sorted by start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from marey.model.training.symbols import Symbols
from marey.model.training.traces import EVENTS, MEMORY, NO_VALUE
from marey.trace.readers.json.raw_columns import Ints, Sparse
from marey.trace.readers.trace_info import RankInfo

Rows = npt.NDArray[np.int64]
# Rows of one Parquet row group, and of the table that is in memory while it is written.
GROUP_ROWS = 1 << 17
Column = npt.NDArray[Any] | Sparse | int


def order_by_start(start_ns: Ints, dur_ns: Ints) -> npt.NDArray[np.int32]:
    """Return rows by start.

    Of those that start together the longest first: parents precede children.
    """
    order = np.argsort(start_ns, kind="stable").astype(np.int32)
    sorted_start = start_ns[order]
    same = sorted_start[1:] == sorted_start[:-1]
    del sorted_start
    if same.any():
        tied = np.zeros(len(order), bool)
        tied[1:] |= same
        tied[:-1] |= same
        rows = order[tied]
        order[tied] = rows[np.lexsort((-dur_ns[rows].astype(np.int64), start_ns[rows]))]
    return order


@dataclass
class RankEvents:
    """What a reader gives for one rank.

    A column is an array, the rows that have a value, or one number that holds everywhere.
    """

    info: RankInfo
    symbols: Symbols
    columns: dict[str, Column]
    memory: pa.Table = field(default_factory=MEMORY.empty_table)

    @property
    def rows(self) -> int:
        """How many events there are."""
        return len(self.column("start_ns"))

    def column(self, name: str) -> npt.NDArray[np.generic]:
        """Return a column that is an array."""
        values = self.columns[name]
        assert isinstance(values, np.ndarray)
        return values

    def constants(self) -> dict[str, int]:
        """Return the columns that are one number in every row: they need not be stored."""
        found = {}
        for name in EVENTS.names:
            values = self.columns.get(name, NO_VALUE)
            if isinstance(values, int):
                found[name] = values
            elif isinstance(values, Sparse):
                found |= {} if len(values.rows) else {name: NO_VALUE}
            elif len(values) and values[0] == values[-1] and (values == values[0]).all():
                found[name] = int(values[0])
        return found

    def batches(self, schema: pa.Schema = EVENTS) -> Iterator[pa.Table]:
        """Yield the events in the schema of the contract (or part of it), a row group at a time."""
        for first in range(0, self.rows, GROUP_ROWS):
            stop = min(first + GROUP_ROWS, self.rows)
            arrays = [self._array(f, first, stop) for f in schema]
            yield pa.Table.from_arrays(arrays, schema=schema)

    def table(self) -> pa.Table:
        """Return everything at once; for small traces and tests."""
        return pa.concat_tables([EVENTS.empty_table(), *self.batches()])

    def _array(self, column: pa.Field, first: int, stop: int) -> pa.Array:
        values = self.columns.get(column.name, NO_VALUE)
        dtype = column.type.to_pandas_dtype()
        if isinstance(values, np.ndarray):
            return pa.array(values[first:stop].astype(dtype, copy=False), column.type)
        if isinstance(values, int):
            return pa.array(np.full(stop - first, values, dtype), column.type)
        filled = np.full(stop - first, NO_VALUE, dtype)
        low, high = np.searchsorted(values.rows, [first, stop])
        filled[values.rows[low:high] - first] = values.values[low:high]
        return pa.array(filled, column.type)


def sort_again(sparse: Sparse, place: npt.NDArray[np.int32]) -> Sparse:
    """Return a sparse argument after its rows moved to ``place`` (-1: gone), in row order."""
    rows = place[sparse.rows]
    kept = rows >= 0
    rows, values = rows[kept], sparse.values[kept]
    order = np.argsort(rows, kind="stable")
    return Sparse(rows[order], values[order])
