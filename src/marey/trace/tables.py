"""One rank's tables, loaded from the cache when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

    def events(columns: Columns) -> pa.Table:
        names = EVENTS.names if columns is None else list(columns)
        table = pq.read_table(stored.path("events"), columns=names, partitioning=None)
        table = recode(table.combine_chunks(), codes)
        place = table.schema.get_field_index("rank")
        if place >= 0 and rank != stored.info.rank:
            ranks = pa.array(np.full(len(table), rank, np.int32))
            table = table.set_column(place, EVENTS.field("rank"), ranks)
        return table.replace_schema_metadata(None)

    return RankTables(events, lambda: pq.read_table(stored.path("memory"), partitioning=None))


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
