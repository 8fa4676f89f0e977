"""One rank's tables, loaded from the cache when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from marey.model.training.traces import EVENTS, SYMBOL_COLUMNS
from marey.trace.run.conversion import ConvertedRank

Columns = Sequence[str] | None


@dataclass(frozen=True)
class RankTables:
    """Functions that load, so that nothing is in memory before it is asked for."""

    events: Callable[[Columns], pa.Table]
    memory: Callable[[], pa.Table]


def from_cache(stored: ConvertedRank, rank: int, codes: npt.NDArray[np.int32]) -> RankTables:
    """Return a rank's tables in the cache, given the run's symbol codes and the rank that it has
    there.
    """

    constants = {**stored.constants, "rank": rank}

    def events(columns: Columns) -> pa.Table:
        names = EVENTS.names if columns is None else list(columns)
        held = [name for name in names if name not in constants]
        # One column is always read: it tells how many rows there are.
        table = read_parquet(stored.path("events"), held or ["start_ns"])
        rows = len(table)
        arrays = [
            table.column(name).combine_chunks()
            if name in held
            else _constant(name, constants, rows)
            for name in names
        ]
        schema = pa.schema([EVENTS.field(name) for name in names])
        return recode(pa.Table.from_arrays(arrays, schema=schema), codes)

    return RankTables(events, lambda: read_parquet(stored.path("memory")))


def join_tables(parts: Sequence[RankTables]) -> RankTables:
    """Return one rank whose recording lies in several files that follow each other in time."""

    def events(columns: Columns) -> pa.Table:
        firsts = [part.events(["start_ns"])["start_ns"][0].as_py() for part in parts]
        ordered = [parts[n] for n in np.argsort(firsts, kind="stable")]
        tables, rows = [], 0
        for part in ordered:
            table = part.events(columns)
            tables.append(_shift_rows(table, rows))
            rows += table.num_rows
        return pa.concat_tables(tables).combine_chunks()

    return RankTables(events, lambda: pa.concat_tables([part.memory() for part in parts]))


def _shift_rows(table: pa.Table, rows: int) -> pa.Table:
    """Return the table with the row numbers in it counted from ``rows``."""
    for name in ("launch", "forward"):
        index = table.schema.get_field_index(name)
        if index >= 0 and rows:
            old = table.column(index).to_numpy()
            moved = pa.array(np.where(old >= 0, old + rows, old))
            table = table.set_column(index, table.schema.field(index), moved)
    return table


def read_parquet(path: Path, columns: Columns = None) -> pa.Table:
    """Return the table in one file; ``pq.read_table`` would import pandas for the same."""
    with pq.ParquetFile(path) as file:
        return file.read(None if columns is None else list(columns))


def _constant(name: str, constants: Mapping[str, int], rows: int) -> pa.Array:
    kind = EVENTS.field(name).type
    return pa.array(np.full(rows, constants[name], kind.to_pandas_dtype()), kind)


def load_stored_symbols(stored: ConvertedRank) -> list[str]:
    """Return the texts of a rank's own symbol table."""
    texts: list[str] = read_parquet(stored.path("symbols")).column("text").to_pylist()
    return texts


def recode(table: pa.Table, codes: npt.NDArray[np.int32]) -> pa.Table:
    """Return the table with its symbol columns moved from one symbol table's codes to another's."""
    if np.array_equal(codes, np.arange(len(codes), dtype=np.int32)):
        return table
    moved = np.append(codes, np.int32(-1))  # position -1 keeps "no value"
    for name in SYMBOL_COLUMNS:
        index = table.schema.get_field_index(name)
        if index >= 0:
            column = pa.array(moved[table.column(index).to_numpy()])
            table = table.set_column(index, table.schema.field(index), column)
    return table
