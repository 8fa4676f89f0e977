"""XPlane protocol buffers (``*.xplane.pb``), which JAX and TensorFlow write beside trace.json.

Field numbers are those of tsl/profiler/protobuf/xplane.proto.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from marey.model.training.traces import NO_VALUE
from marey.trace.readers.devices import split_devices
from marey.trace.readers.jax import JaxEvent, interpret
from marey.trace.readers.protobuf import Malformed, fields, signed, text
from marey.trace.readers.result import FileEvents, ReadOptions
from marey.trace.readers.streams import TraceBytes

NAME = "xplane"
VERSION = 6
LARGEST_BYTES = 2 << 30
MOST_EVENTS = 50_000_000
# XSpace: planes 1, hostnames 4. XPlane: name 2, lines 3, event metadata 4, stat metadata 5.
# XLine: id 1, name 2, timestamp_ns 3, events 4, display_id 10, display_name 11.
# XEvent: metadata_id 1, offset_ps 2, duration_ps 3, stats 4. Maps: key 1, value 2.
_STAT_VALUES = {3: "number", 4: "signed", 5: "text", 7: "reference"}


def sniff(path: Path, head: bytes) -> bool:
    """Return whether this is a protocol buffer whose first field is a plane, with a
    name that fits.
    """
    return head[:1] == b"\x0a" and path.name.removesuffix(".gz").endswith(".pb")


def read(path: Path, options: ReadOptions) -> FileEvents:
    """Return every plane's lines as the events of one rank."""
    with TraceBytes(path) as stream:
        content = stream.read_all(LARGEST_BYTES)
        damage = stream.damage
    if content is None:
        return FileEvents(iter(()), [f"is larger than {LARGEST_BYTES >> 30} GB and is not read"])
    problems = [f"the file is damaged or cut short ({damage})"] if damage else []
    events: list[JaxEvent] = []
    hosts: list[str] = []
    try:
        for number, value in fields(memoryview(content)):
            if number == 1 and isinstance(value, memoryview):
                _take(events, value)
            elif number == 4:
                hosts.append(text(value))
    except Malformed as error:
        problems.append(f"is not a whole protocol buffer ({error}); what came before is used")
    if not events:
        return FileEvents(iter(()), problems)
    rank = interpret(events, path.name, host=hosts[0] if hosts else "")
    return FileEvents(iter(split_devices(rank)), problems)


def _take(events: list[JaxEvent], plane: memoryview) -> None:
    for event in _plane(plane):
        events.append(event)
        if len(events) > MOST_EVENTS:
            raise Malformed(f"more than {MOST_EVENTS} events")


def _plane(plane: memoryview) -> Iterator[JaxEvent]:
    name, lines = "", []
    events: dict[int, str] = {}
    stats: dict[int, str] = {}
    for number, value in fields(plane):
        if number == 2:
            name = text(value)
        elif isinstance(value, memoryview):
            if number == 3:
                lines.append(value)
            elif number in (4, 5):
                key, label = _metadata(value)
                (events if number == 4 else stats)[key] = label
    for line in lines:
        yield from _line(line, name, events, stats)


def _metadata(entry: memoryview) -> tuple[int, str]:
    """Return one entry of a metadata map: its key, and the name it stands for."""
    key, label = 0, ""
    for number, value in fields(entry):
        if number == 1 and isinstance(value, int):
            key = signed(value)
        elif number == 2 and isinstance(value, memoryview):
            for inner, content in fields(value):
                if inner == 2:
                    label = text(content)
    return key, label


def _line(
    line: memoryview, process: str, names: dict[int, str], stats: dict[int, str]
) -> Iterator[JaxEvent]:
    number, label, base_ns, events = 0, "", 0, []
    for field, value in fields(line):
        if isinstance(value, int):
            number = signed(value) if field == 1 else number
            base_ns = signed(value) if field == 3 else base_ns
        elif field in (2, 11):
            label = text(value) or label
        elif field == 4:
            events.append(value)
    for event in events:
        yield _event(event, (process, label, number, base_ns), names, stats)


def _event(
    event: memoryview,
    line: tuple[str, str, int, int],
    names: dict[int, str],
    stats: dict[int, str],
) -> JaxEvent:
    kind = offset_ps = duration_ps = 0
    known: dict[str, Any] = {}
    for field, value in fields(event):
        if isinstance(value, int):
            kind = signed(value) if field == 1 else kind
            offset_ps = signed(value) if field == 2 else offset_ps
            duration_ps = signed(value) if field == 3 else duration_ps
        elif field == 4:
            key, content = _stat(value, stats)
            known[stats.get(key, "")] = content
    process, label, thread, base_ns = line
    return JaxEvent(
        process=process,
        line=label,
        thread=thread,
        name=names.get(kind, ""),
        start_ns=_check_bounds(base_ns + offset_ps // 1000),
        dur_ns=max(_check_bounds(duration_ps // 1000), 0),
        hlo_op=str(known.get("hlo_op", "")),
        hlo_module=str(known.get("hlo_module", "")),
        device=_whole(known.get("device_ordinal")),
        step=_whole(known.get("step_num")),
        run=_whole(known.get("run_id")),
        correlation=_whole(known.get("correlation_id")),
    )


def _check_bounds(ns: int) -> int:
    return ns if abs(ns) < 2**62 else 0


def _stat(stat: memoryview, stats: dict[int, str]) -> tuple[int, Any]:
    key = 0
    content: str | int | None = None
    for field, value in fields(stat):
        if field == 1 and isinstance(value, int):
            key = signed(value)
        kind = _STAT_VALUES.get(field)
        if kind == "text":
            content = text(value)
        elif kind and isinstance(value, int):
            content = stats.get(value, "") if kind == "reference" else signed(value)
    return key, content


def _whole(value: Any) -> int:
    if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) < 19:
        return int(value)
    return value if isinstance(value, int) and abs(value) < 2**63 else NO_VALUE
