"""MindSpore's Marey-graph files: one interval per operator and device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from marey.model.training.symbols import Symbols
from marey.model.training.traces import NO_VALUE, EventKind
from marey.trace.readers.kernel_names import collective_name, communication_kind
from marey.trace.readers.result import FileEvents, ReadOptions
from marey.trace.readers.spans import RankEvents, order_by_start
from marey.trace.readers.streams import TraceBytes
from marey.trace.readers.trace_info import RankInfo

NAME = "ascend-graph"
VERSION = 1
LARGEST_BYTES = 1 << 30
_HEAD = re.compile(rb'^\s*\{\s*"maps"\s*:')
_NUMBER = re.compile(r"([0-9]{1,6})$")
_TRANSFER = re.compile(
    r"(?:^|/)(?:hcom_|All|Reduce ?Scatter|Broadcast|Send|Receive)", re.IGNORECASE
)
# Waiting for another stream of the same device.
_WAIT = re.compile(r"(?:^|/)Stream(?:Send|Recv)", re.IGNORECASE)


class _Interval(msgspec.Struct):
    st: float
    ed: float


class _File(msgspec.Struct):
    maps: dict[str, dict[str, _Interval]]


def sniff(path: Path, head: bytes) -> bool:
    """Return whether this is an object whose first member is the map of devices."""
    return _HEAD.match(head) is not None


def read(path: Path, options: ReadOptions) -> FileEvents:
    """Return every device of the file as a rank."""
    with TraceBytes(path) as stream:
        content = stream.read_all(LARGEST_BYTES)
    if content is None:
        return FileEvents(iter(()), [f"is larger than {LARGEST_BYTES >> 30} GB and is not read"])
    try:
        found = msgspec.json.decode(content, type=_File)
    except msgspec.MsgspecError as error:
        return FileEvents(iter(()), [f"is not a whole Marey-graph file ({error})"])
    return FileEvents(_ranks(found, path.name), [])


def _ranks(found: _File, source: str) -> Iterator[RankEvents]:
    for position, (device, operators) in enumerate(found.maps.items()):
        number = _NUMBER.search(device)
        rank = int(number.group(1)) if number else position
        if operators:
            yield _rank(operators, RankInfo(rank, framework="ascend", source=source))


def _rank(operators: dict[str, _Interval], info: RankInfo) -> RankEvents:
    names = list(operators)
    start = np.array([int(o.st * 1e3) for o in operators.values()], np.int64)
    dur = np.array([max(int((o.ed - o.st) * 1e3), 0) for o in operators.values()], np.int64)
    order = order_by_start(start, dur)
    names = [names[n] for n in order.tolist()]
    symbols = Symbols()
    lasts = (dur[order] > 0).tolist()
    kinds = [
        _kind(name) if some else EventKind.SYNC for name, some in zip(names, lasts, strict=True)
    ]
    talks = [collective_name(name) if _TRANSFER.search(name) else "" for name in names]
    columns: dict[str, Any] = {
        "rank": info.rank,
        "host": symbols.add(info.host),
        "device": info.rank,
        "on_device": np.array([kind != EventKind.SYNC for kind in kinds], bool),
        "start_ns": start[order],
        "dur_ns": dur[order],
        "kind": np.array(kinds, np.int8),
        "name": symbols.add_all(names),
        "collective": np.array([symbols.add(t) if t else NO_VALUE for t in talks], np.int32),
    }
    return RankEvents(info, symbols, columns)


def _kind(name: str) -> EventKind:
    if _WAIT.search(name):
        return EventKind.SYNC
    if _TRANSFER.search(name):
        return communication_kind(collective_name(name))
    return EventKind.COMPUTE
