"""Nsight Systems reports exported to SQLite: kernels, copies, runtime calls and NVTX ranges.

Written after the documented export schema (``nsys export --type sqlite``).
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from marey.model.training.symbols import Symbols
from marey.model.training.traces import NO_VALUE, EventKind
from marey.trace.readers.devices import split_devices
from marey.trace.readers.kernel_names import (
    collective_name,
    communication_kind,
    is_communication_kernel,
)
from marey.trace.readers.result import FileEvents, ReadOptions
from marey.trace.readers.spans import RankEvents, order_by_start
from marey.trace.readers.trace_info import RankInfo

NAME = "nsys-sqlite"
VERSION = 4
UNTRIED = "an SQLite export of Nsight Systems"
MOST_EVENTS = 50_000_000
_MAGIC = b"SQLite format 3\x00"
_KERNELS, _GRAPHS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_WORK = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
# A process that the export does not state: that of the call which launched the work.
_UNSTATED = -1
# NVTX ranges that were pushed and popped, or started and ended.
_RANGES = (59, 60)


class _Row(NamedTuple):
    process: int
    kind: EventKind
    on_device: bool
    device: int
    stream: int
    start: int
    end: int
    correlation: int
    name: str


def sniff(path: Path, head: bytes) -> bool:
    """Return whether this is a database of SQLite."""
    return head.startswith(_MAGIC)


def read(path: Path, options: ReadOptions) -> FileEvents:
    """Return every process of the report as ranks, one per device."""
    try:
        with contextlib.closing(_connect(path)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
            if not tables & {_KERNELS, _GRAPHS} or "StringTable" in tables:
                return FileEvents(iter(()), [_refuse(tables)])
            rows = list(_rows(database, tables))
    except sqlite3.Error as error:
        return FileEvents(iter(()), [f"is not a whole SQLite database ({error})"])
    return FileEvents(_processes(_fill_in_processes(rows), path.name), [])


def _refuse(tables: set[str]) -> str:
    """Return the refusal of a database without kernels, with what would work."""
    if any(name.startswith("rocpd_") for name in tables):
        return (
            "is a rocpd database of ROCm's profiler; convert it with rocpd2pftrace and traceconv "
            "json, or record with torch.profiler"
        )
    if "StringTable" in tables:
        return (
            "is a database of nvprof, which is not read; record with torch.profiler, or with nsys "
            "and export it: nsys export --type sqlite REPORT"
        )
    if any(name.startswith(("CUPTI_", "NVTX_", "TARGET_INFO")) for name in tables):
        return "has no kernels; record with nsys profile --trace=cuda,nvtx and export again"
    return "is an SQLite database, but no export of Nsight Systems (nsys export --type sqlite)"


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)


def _rows(database: sqlite3.Connection, tables: set[str]) -> Iterator[_Row]:
    names: dict[Any, str] = {}
    if "StringIds" in tables:
        names = {
            key: str(text) for key, text in database.execute("SELECT id, value FROM StringIds")
        }
    if _KERNELS in tables:
        yield from _kernels(database, names)
    # Graphs are recorded as wholes by default: one row for all the kernels of a launch.
    for table, kind in (
        (_GRAPHS, EventKind.COMPUTE),
        ("CUPTI_ACTIVITY_KIND_MEMCPY", EventKind.MEMCPY),
        ("CUPTI_ACTIVITY_KIND_MEMSET", EventKind.MEMSET),
    ):
        if table in tables:
            yield from _works(database, table, kind)
    if _RUNTIME in tables:
        yield from _calls(database, names)
    if "NVTX_EVENTS" in tables:
        yield from _ranges(database, names)


def _select(database: sqlite3.Connection, table: str, wanted: tuple[str, ...]) -> Iterator[Any]:
    """Yield rows of these columns; versions differ, and what a table lacks is null."""
    present = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
    columns = ", ".join(f'"{name}"' if name in present else "NULL" for name in wanted)
    ended = "start IS NOT NULL AND end IS NOT NULL"
    return database.execute(f"SELECT {columns} FROM {table} WHERE {ended} LIMIT {MOST_EVENTS}")


def _kernels(database: sqlite3.Connection, names: dict[Any, str]) -> Iterator[_Row]:
    labels = ("demangledName", "shortName", "mangledName")
    for *work, full, short, mangled in _select(database, _KERNELS, (*_WORK, *labels)):
        known = next((key for key in (full, short, mangled) if key is not None), None)
        text = "kernel" if known is None else names.get(known, str(known))
        kind = EventKind.COMPUTE
        if is_communication_kernel(text):
            kind = communication_kind(collective_name(text))
        yield _on_device(work, kind, text)


_NAMES = {
    EventKind.COMPUTE: "CUDA graph",
    EventKind.MEMCPY: "Memcpy",
    EventKind.MEMSET: "Memset",
}


def _works(database: sqlite3.Connection, table: str, kind: EventKind) -> Iterator[_Row]:
    for work in _select(database, table, _WORK):
        yield _on_device(work, kind, _NAMES[kind])


def _on_device(work: Sequence[int | None], kind: EventKind, name: str) -> _Row:
    start, end, device, stream, correlation, process = work
    return _Row(
        process=_pid(process),
        kind=kind,
        on_device=True,
        device=device or 0,
        stream=stream or 0,
        start=start or 0,
        end=end or 0,
        correlation=NO_VALUE if correlation is None else correlation,
        name=name,
    )


def _calls(database: sqlite3.Connection, names: dict[Any, str]) -> Iterator[_Row]:
    wanted = ("start", "end", "globalTid", "correlationId", "nameId")
    for start, end, thread, correlation, name in _select(database, _RUNTIME, wanted):
        text = "call" if name is None else names.get(name, str(name)).split("_v", 1)[0]
        place = _on_host(thread)
        place["correlation"] = NO_VALUE if correlation is None else correlation
        yield _Row(**place, kind=EventKind.RUNTIME, start=start, end=end, name=text)


def _ranges(database: sqlite3.Connection, names: dict[Any, str]) -> Iterator[_Row]:
    wanted = ("start", "end", "globalTid", "text", "textId", "eventType")
    for start, end, thread, text, key, event_type in _select(database, "NVTX_EVENTS", wanted):
        if event_type is None or event_type in _RANGES:
            name = str(text) if text is not None else names.get(key, "")
            place = _on_host(thread)
            place["correlation"] = NO_VALUE
            yield _Row(**place, kind=EventKind.ANNOTATION, start=start, end=end, name=name)


def _on_host(thread: int | None) -> dict[str, Any]:
    """Return the process and thread of a host event."""
    place = {"device": NO_VALUE, "on_device": False}
    return {"process": _pid(thread), "stream": _tid(thread), **place}


def _pid(number: int | None) -> int:
    """Return the process in a global id: its upper bits, above the 24 bits of the thread."""
    return _UNSTATED if number is None else (int(number) >> 24) & 0xFFFFFF


def _fill_in_processes(rows: list[_Row]) -> list[_Row]:
    """Return the rows with every unstated process filled in from the call, or from the only
    process.
    """
    if not any(row.process == _UNSTATED for row in rows):
        return rows
    stated = (row for row in rows if row.kind == EventKind.RUNTIME and row.process != _UNSTATED)
    calls = {row.correlation: row.process for row in stated if row.correlation != NO_VALUE}
    hosts = {row.process for row in rows if not row.on_device} - {_UNSTATED}
    rest = hosts.pop() if len(hosts) == 1 else 0
    return [
        row._replace(process=calls.get(row.correlation, rest)) if row.process == _UNSTATED else row
        for row in rows
    ]


def _tid(number: int | None) -> int:
    return int(number or 0) & 0xFFFFFF


def _processes(rows: list[_Row], source: str) -> Iterator[RankEvents]:
    numbers = sorted({row.process for row in rows if row.on_device})
    for position, process in enumerate(numbers):
        rank = position if len(numbers) > 1 else -1
        info = RankInfo(rank, framework="nsys", source=source, untried=UNTRIED)
        mine = [row for row in rows if row.process == process]
        for one in split_devices(_events(mine, info)):
            # Several processes in one file are ranks already: their devices are told by number.
            yield replace(one, info=replace(one.info, rank=rank))


def _events(rows: list[_Row], info: RankInfo) -> RankEvents:
    start = np.array([row.start for row in rows], np.int64)
    dur = np.maximum(np.array([row.end for row in rows], np.int64) - start, 0)
    order = order_by_start(start, dur)
    rows = [rows[n] for n in order.tolist()]
    symbols = Symbols()
    talks = [
        collective_name(row.name) if row.on_device and row.kind != EventKind.COMPUTE else ""
        for row in rows
    ]
    columns: dict[str, Any] = {
        "rank": info.rank,
        "host": symbols.add(info.host),
        "device": np.array([row.device for row in rows], np.int32),
        "on_device": np.array([row.on_device for row in rows], bool),
        "stream": np.array([row.stream for row in rows], np.int64),
        "start_ns": start[order],
        "dur_ns": dur[order],
        "kind": np.array([row.kind for row in rows], np.int8),
        "name": symbols.add_all([row.name for row in rows]),
        "correlation": np.array([row.correlation for row in rows], np.int64),
        "launch": _launches(rows),
        "collective": np.array([symbols.add(t) if t else NO_VALUE for t in talks], np.int32),
    }
    return RankEvents(info, symbols, columns)


def _launches(rows: list[_Row]) -> Any:
    calls = {row.correlation: n for n, row in enumerate(rows) if row.kind == EventKind.RUNTIME}
    calls.pop(NO_VALUE, None)
    found = [calls.get(row.correlation, NO_VALUE) if row.on_device else NO_VALUE for row in rows]
    return np.array(found, np.int64)
