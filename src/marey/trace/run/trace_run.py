"""A profiled run: what every rank did, one table per rank, loaded when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path

import pyarrow as pa

from marey.model.errors import NotFound
from marey.model.training.symbols import Symbols
from marey.model.training.traces import EVENTS, MEMORY
from marey.trace.readers.trace_info import Note, RankInfo
from marey.trace.run.opening import OpenOptions, open_files
from marey.trace.run.rank_tables import Columns, RankTables

__all__ = ["Note", "RankInfo", "RankTables", "TraceRun", "open_run", "spans"]


class TraceRun:
    """Every rank of one run; holds no event table itself, so memory is bounded by one rank."""

    def __init__(
        self,
        tables: Mapping[int, RankTables],
        infos: Mapping[int, RankInfo],
        symbols: Symbols,
        notes: Sequence[Note] = (),
    ) -> None:
        self._tables = dict(tables)
        self._infos = dict(infos)
        self.symbols = symbols
        self.notes = list(notes)
        self.ranks = sorted(self._tables)

    @classmethod
    def from_tables(
        cls,
        events: Mapping[int, pa.Table],
        infos: Mapping[int, RankInfo],
        symbols: Symbols,
        *,
        memory: Mapping[int, pa.Table] | None = None,
        notes: Sequence[Note] = (),
    ) -> TraceRun:
        """Return a run from tables in memory: schema ``EVENTS``, sorted by start, codes of
        ``symbols``.
        """
        tables = {
            rank: RankTables(
                events=_chooser(table),
                memory=_constant((memory or {}).get(rank, MEMORY.empty_table())),
            )
            for rank, table in events.items()
        }
        known = {rank: infos.get(rank, RankInfo(rank)) for rank in events}
        return cls(tables, known, symbols, notes)

    def info(self, rank: int) -> RankInfo:
        """Return the trace's description of this rank."""
        self._check(rank)
        return self._infos[rank]

    def events(self, rank: int, columns: Columns = None) -> pa.Table:
        """Return the rank's events sorted by start, all columns of ``EVENTS`` or only
        those named.
        """
        self._check(rank)
        return self._tables[rank].events(columns)

    def memory(self, rank: int) -> pa.Table:
        """Return the allocations and releases the profiler recorded; empty where it did not."""
        self._check(rank)
        return self._tables[rank].memory()

    def _check(self, rank: int) -> None:
        if rank not in self._tables:
            raise NotFound(f"Unknown rank {rank}; this trace has ranks {spans(self.ranks)}.")


def open_run(
    paths: str | Path | Iterable[str | Path],
    *,
    cache: str | Path | None = None,
    executor: Executor | None = None,
    progress: Callable[[float], None] | None = None,
    native: bool | None = None,
) -> TraceRun:
    """Return the run in a file, a folder, a pattern or a list of them; each rank is converted once.

    Converted tables go to ``cache`` (the user's cache by default), never beside the traces.
    ``executor`` converts the ranks: processes of this machine by default, or any other, such as
    ``dask.distributed.Client().get_executor()``. ``progress`` is told the fraction done.
    """
    folder = None if cache is None else Path(cache)
    opened = open_files(paths, OpenOptions(folder, executor, progress, native))
    return TraceRun(opened.tables, opened.infos, opened.symbols, opened.notes)


def spans(numbers: Sequence[int]) -> str:
    """Write a sorted list of numbers as a person does: ``0-7, 9``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _chooser(table: pa.Table) -> Callable[[Columns], pa.Table]:
    table = table.cast(EVENTS) if table.schema != EVENTS else table
    return lambda columns: table if columns is None else table.select(list(columns))


def _constant(table: pa.Table) -> Callable[[], pa.Table]:
    return lambda: table
