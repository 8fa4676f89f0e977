"""One rank's tables, loaded from the cache when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from marey.model.traces import EVENTS, SYMBOL_COLUMNS
from marey.trace.conversion import ConvertedRank

Columns = Sequence[str] | None


@dataclass(frozen=True)
class RankTables:
    """Functions that load, so that nothing is in memory before it is asked for."""

    events: Callable[[Columns], pa.Table]
    memory: Callable[[], pa.Table]


def from_cache(stored: ConvertedRank, rank: int, codes: npt.NDArray[np.int32]) -> RankTables:
    """A rank's tables in the cache, given the run's symbol codes and the rank that it has there."""

    constants = {**stored.constants, "rank": rank}

    def events(columns: Columns) -> pa.Table:
        names = EVENTS.names if columns is None else list(columns)
        held = [name for name in names if name not in constants]
        # One column is always read: it tells how many rows there are.
        table = pq.read_table(
            stored.path("events"), columns=held or ["start_ns"], partitioning=None
        )
        rows = len(table)
        arrays = [
            table.column(name).combine_chunks()
            if name in held
            else _constant(name, constants, rows)
            for name in names
        ]
        schema = pa.schema([EVENTS.field(name) for name in names])
        return recode(pa.Table.from_arrays(arrays, schema=schema), codes)

    return RankTables(events, lambda: pq.read_table(stored.path("memory"), partitioning=None))


def _constant(name: str, constants: Mapping[str, int], rows: int) -> pa.Array:
    kind = EVENTS.field(name).type
    return pa.array(np.full(rows, constants[name], kind.to_pandas_dtype()), kind)


def stored_symbols(stored: ConvertedRank) -> list[str]:
    """The texts of a rank's own symbol table."""
    texts: list[str] = pq.read_table(stored.path("symbols")).column("text").to_pylist()
    return texts


def recode(table: pa.Table, codes: npt.NDArray[np.int32]) -> pa.Table:
    """The table with its symbol columns moved from one symbol table's codes to another's."""
    if np.array_equal(codes, np.arange(len(codes), dtype=np.int32)):
        return table
    moved = np.append(codes, np.int32(-1))  # position -1 keeps "no value"
    for name in SYMBOL_COLUMNS:
        index = table.schema.get_field_index(name)
        if index >= 0:
            column = pa.array(moved[table.column(index).to_numpy()])
            table = table.set_column(index, table.schema.field(index), column)
    return table
