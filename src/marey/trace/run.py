"""A profiled run: what every rank did, one table per rank, loaded when asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from marey.model.errors import NotFound
from marey.model.traces import EVENTS, MEMORY, SYMBOL_COLUMNS
from marey.trace.symbols import Symbols


@dataclass(frozen=True)
class Note:
    """Something about a file that the reader of a result should know."""

    file: str
    text: str


@dataclass(frozen=True)
class RankInfo:
    """What a trace says about its rank, apart from the events."""

    rank: int
    host: str = ""
    world_size: int | None = None
    backend: str | None = None
    framework: str = "pytorch"  # pytorch, jax, chakra, chrome, optable
    device_name: str | None = None
    # Process group name → global ranks, and → the description the training code gave it.
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    group_descriptions: Mapping[str, str] = field(default_factory=dict)
    # Added to the trace's own times to make `start_ns` absolute.
    base_ns: int = 0
    source: str = ""
    # The handshake that marey.record left in the trace: {"wall_ns": …, …}.
    clock_sync: Mapping[str, Any] | None = None
    # Place in the parallel layout where the trace states it: {"dp": 0, "pp": 3}.
    coordinates: Mapping[str, int] = field(default_factory=dict)
    # Whether the trace has real device events, or host events stand for them.
    has_device: bool = True


Columns = Sequence[str] | None


@dataclass(frozen=True)
class RankTables:
    """One rank's tables behind functions, so that nothing is loaded before it is asked for."""

    events: Callable[[Columns], pa.Table]
    memory: Callable[[], pa.Table]
    # From the codes stored in the rank's table to the codes of the run.
    codes: npt.NDArray[np.int32] | None = None


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
        """A run from tables in memory (schema ``EVENTS``, sorted by start, codes of ``symbols``)."""
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
        """What the trace says about this rank."""
        self._check(rank)
        return self._infos[rank]

    def events(self, rank: int, columns: Columns = None) -> pa.Table:
        """The rank's events sorted by start, all columns of ``EVENTS`` or only those named."""
        self._check(rank)
        entry = self._tables[rank]
        table = entry.events(columns)
        return table if entry.codes is None else recode(table, entry.codes)

    def memory(self, rank: int) -> pa.Table:
        """The allocations and releases the profiler recorded; empty where it did not."""
        self._check(rank)
        return self._tables[rank].memory()

    def _check(self, rank: int) -> None:
        if rank not in self._tables:
            raise NotFound(f"Unknown rank {rank}; this trace has ranks {spans(self.ranks)}.")


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


def spans(numbers: Sequence[int]) -> str:
    """``0-7, 9``: a sorted list of numbers as a person writes it."""
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
