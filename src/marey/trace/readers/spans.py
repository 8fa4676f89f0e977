"""One rank's events while a reader works on them: narrow numpy columns, sorted by start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from marey.model.traces import EVENTS, MEMORY, NO_VALUE
from marey.trace.info import RankInfo
from marey.trace.readers.raw import Ints, Sparse
from marey.trace.symbols import Symbols

Rows = npt.NDArray[np.int64]
# Rows of one Parquet row group, and of the table that is in memory while it is written.
GROUP_ROWS = 1 << 18


def order_by_start(start_ns: Ints, dur_ns: Ints) -> Rows:
    """Rows by start; of those that start together the longest first: parents precede children."""
    order = np.argsort(start_ns, kind="stable")
    sorted_start = start_ns[order]
    same = sorted_start[1:] == sorted_start[:-1]
    if same.any():
        tied = np.zeros(len(order), bool)
        tied[1:] |= same
        tied[:-1] |= same
        rows = order[tied]
        order[tied] = rows[np.lexsort((-dur_ns[rows], start_ns[rows]))]
    return order


@dataclass
class RankEvents:
    """What a reader gives for one rank; a column that is one number everywhere is that number."""

    info: RankInfo
    symbols: Symbols
    columns: dict[str, npt.NDArray[np.generic] | int]
    memory: pa.Table = field(default_factory=MEMORY.empty_table)

    @property
    def rows(self) -> int:
        """How many events there are."""
        return len(self.column("start_ns"))

    def column(self, name: str) -> npt.NDArray[np.generic]:
        """A column that is an array."""
        values = self.columns[name]
        assert isinstance(values, np.ndarray)
        return values

    def batches(self) -> Iterator[pa.Table]:
        """The events in the schema of the contract, a row group at a time."""
        for first in range(0, self.rows, GROUP_ROWS):
            stop = min(first + GROUP_ROWS, self.rows)
            yield pa.Table.from_arrays([self._array(f, first, stop) for f in EVENTS], schema=EVENTS)

    def table(self) -> pa.Table:
        """Everything at once; for small traces and tests."""
        return pa.concat_tables([EVENTS.empty_table(), *self.batches()])

    def _array(self, column: pa.Field, first: int, stop: int) -> pa.Array:
        values = self.columns.get(column.name, NO_VALUE)
        dtype = column.type.to_pandas_dtype()
        if isinstance(values, np.ndarray):
            return pa.array(values[first:stop].astype(dtype, copy=False), column.type)
        return pa.array(np.full(stop - first, values, dtype), column.type)


def dense(sparse: Sparse | None, size: int, missing: int = NO_VALUE) -> Ints:
    """A sparse argument as a full column."""
    column = np.full(size, missing, np.int64)
    if sparse is not None:
        column[sparse.rows] = sparse.values
    return column


def resorted(sparse: Sparse, place: npt.NDArray[np.int32]) -> Sparse:
    """A sparse argument after its rows moved to ``place`` (-1: gone), in row order."""
    rows = place[sparse.rows]
    kept = rows >= 0
    rows, values = rows[kept], sparse.values[kept]
    order = np.argsort(rows, kind="stable")
    return Sparse(rows[order], values[order])
