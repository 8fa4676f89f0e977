"""Small event tables by hand: only what a test is about is written down."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from marey.model.training.symbols import Symbols
from marey.model.training.traces import EVENTS, EventKind
from marey.trace.run.trace_run import RankInfo, TraceRun

_DEFAULTS = {"rank": 0, "on_device": False, "dur_ns": 0, "start_ns": 0, "stream": 7}


def event(name: str, kind: EventKind, start: int, dur: int, **more: Any) -> dict[str, Any]:
    """One event; what is not said has no value."""
    return {"name": name, "kind": int(kind), "start_ns": start, "dur_ns": dur, **more}


def kernel(name: str, start: int, dur: int, **more: Any) -> dict[str, Any]:
    """A compute kernel on the device."""
    return event(name, EventKind.COMPUTE, start, dur, on_device=True, **more)


def table(events: list[dict[str, Any]], symbols: Symbols) -> pa.Table:
    """The events as a table of the contract's schema, in the order given."""
    rows = []
    for given in events:
        row: dict[str, Any] = {field.name: -1 for field in EVENTS} | _DEFAULTS | given
        for column in ("name", "host", "module", "group", "dtype", "collective"):
            if isinstance(row[column], str):
                row[column] = symbols.add(row[column])
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=EVENTS)


def run_of(ranks: dict[int, list[dict[str, Any]]], **info: Any) -> TraceRun:
    """A run in memory from each rank's events."""
    symbols = Symbols()
    tables = {rank: table([e | {"rank": rank} for e in es], symbols) for rank, es in ranks.items()}
    infos = {rank: RankInfo(rank, **info) for rank in ranks}
    return TraceRun.from_tables(tables, infos, symbols)
