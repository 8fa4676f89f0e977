"""JAX and TensorFlow profiles: what XLA ran on which device, from trace.json or xplane.pb."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from marey.model.training.symbols import Symbols
from marey.model.training.traces import NO_VALUE, EventKind
from marey.trace.readers.devices import split_devices
from marey.trace.readers.json.raw_columns import NO_TIME, RawEvents
from marey.trace.readers.kernel_names import (
    collective_name,
    communication_kind,
    hlo_collective,
    is_communication_kernel,
)
from marey.trace.readers.kineto.header import placed
from marey.trace.readers.spans import RankEvents, order_by_start
from marey.trace.readers.trace_info import RankInfo

_DEVICE = re.compile(r"/device:(?:GPU|TPU|CUSTOM)[^0-9]*([0-9]{1,6})", re.IGNORECASE)
# Lines of a device that summarise the others rather than add work.
_SUMMARY = re.compile(
    r"^(?:steps|xla modules|xla traceme|framework (?:ops|name scope)|source code|.*name scope"
    r"|sparse ?core|tensorflow (?:ops|name scope))",
    re.IGNORECASE,
)
# Streams of a GPU hold its kernels; "XLA Ops" of the same device then only group them.
_STREAM = re.compile(r"^stream\b", re.IGNORECASE)
_XLA_OPS = re.compile(r"^(?:async )?xla ops", re.IGNORECASE)
# TensorFlow's older timeline: what an executor scheduled, and what the streams of a device ran.
_TIMELINE_STREAM = re.compile(r"/stream:")
_TIMELINE = re.compile(r"^/(?:job:|device:).* (?:Compute|Tensors)$")
# A TPU names an operation by its whole text: "%all-gather.3 = bf16[8]{0} all-gather(…)".
_HLO_TEXT = re.compile(r"^%?([\w.-]+) = ")
# TensorFlow on a host: "model/dense/MatMul:MatMul" on the threads of its executor is an operator.
_OPERATOR = re.compile(r"^[^:]+:_?[A-Z]\w*$")
_EXECUTOR = re.compile(r"^tf_(?:Compute|inter_op|numa\S*_inter)", re.IGNORECASE)
_COPY = re.compile(r"^(?:memcpy|copy-start|copy-done|infeed|outfeed)", re.IGNORECASE)


class JaxEvent(NamedTuple):
    """One event as both formats give it."""

    process: str
    line: str
    thread: int
    name: str
    start_ns: int
    dur_ns: int
    hlo_op: str = ""
    hlo_module: str = ""
    device: int = NO_VALUE
    step: int = NO_VALUE
    run: int = NO_VALUE
    correlation: int = NO_VALUE


def fits(raw: RawEvents, members: dict[str, object]) -> bool:
    """Return whether processes are named as JAX does: ``/host:CPU``, ``/device:GPU:0``.

    TensorFlow's too.
    """
    return any(
        name.startswith(("/host:", "/device:")) or _TIMELINE.match(name)
        for name in lane_names(raw, "process_name").values()
    )


def read_json(raw: RawEvents, members: dict[str, object], source: str) -> Iterator[RankEvents]:
    """Yield the rank in a ``trace.json``: as marey.record states it, else as the file is named."""
    events = list(_from_raw(raw))
    if events:
        found = interpret(events, source)
        found.info = placed(found.info, members)
        yield from split_devices(found)


def lane_names(raw: RawEvents, what: str) -> dict[Any, str]:
    """Process (or thread) → name, from the metadata events."""
    names = raw.metadata.args.get("name")
    found: dict[Any, str] = {}
    if names is not None:
        for row, code in zip(names.rows.tolist(), names.values.tolist(), strict=True):
            if raw.texts[raw.metadata.name[row]] == what:
                lane = raw.lanes[raw.metadata.lane[row]]
                found[lane[0] if what == "process_name" else lane] = raw.texts[code]
    return found


def _from_raw(raw: RawEvents) -> Iterator[JaxEvent]:
    processes, threads = lane_names(raw, "process_name"), lane_names(raw, "thread_name")
    spans, texts = raw.spans, raw.texts

    def values(key: str) -> dict[int, int]:
        sparse = spans.args.get(key)
        return (
            dict(zip(sparse.rows.tolist(), sparse.values.tolist(), strict=True)) if sparse else {}
        )

    ops, modules = values("hlo_op"), values("hlo_module")
    devices, steps, runs = values("device_ordinal"), values("step_num"), values("run_id")
    for row in np.flatnonzero((spans.phase == ord("X")) & (spans.start_ns != NO_TIME)).tolist():
        lane = raw.lanes[spans.lane[row]]
        yield JaxEvent(
            process=processes.get(lane[0], ""),
            line=threads.get(lane, ""),
            thread=lane[1] if isinstance(lane[1], int) else NO_VALUE,
            name=texts[spans.name[row]],
            start_ns=int(spans.start_ns[row]),
            dur_ns=int(spans.dur_ns[row]),
            hlo_op=texts[ops[row]] if row in ops else "",
            hlo_module=texts[modules[row]] if row in modules else "",
            device=devices.get(row, NO_VALUE),
            step=steps.get(row, NO_VALUE),
            run=runs.get(row, NO_VALUE),
        )


class _Row(NamedTuple):
    kind: EventKind
    on_device: bool
    device: int
    collective: str


def interpret(events: Sequence[JaxEvent], source: str, *, host: str = "") -> RankEvents:
    """Return the kinds of all events; a step is the one that started last before them."""
    events = [_plain(e) for e in events if not e.name.startswith("end: ")]
    events = _without_groups(events)
    start = np.array([e.start_ns for e in events], np.int64)
    dur = np.array([e.dur_ns for e in events], np.int64)
    order = order_by_start(start, dur)
    events = [events[n] for n in order]
    has_device = any(_DEVICE.search(e.process) for e in events)
    by_operator = not has_device and not any(e.hlo_op for e in events)
    rows = [_row(e, has_device, by_operator=by_operator) for e in events]
    symbols = Symbols()
    modules = [symbols.add(e.hlo_module) if e.hlo_module else NO_VALUE for e in events]
    columns: dict[str, Any] = {
        "rank": NO_VALUE,
        "host": symbols.add(host),
        "device": np.array([r.device for r in rows], np.int32),
        "on_device": np.array([r.on_device for r in rows], bool),
        "stream": np.array([e.thread for e in events], np.int64),
        "start_ns": start[order],
        "dur_ns": dur[order],
        "kind": np.array([r.kind for r in rows], np.int8),
        "name": symbols.add_all([e.hlo_op or e.name for e in events]),
        "correlation": np.array([e.run for e in events], np.int64),
        "launch": _launches(events, rows),
        "step": _steps(events, start[order]),
        "module": np.array(modules, np.int32),
        "collective": np.array(
            [symbols.add(r.collective) if r.collective else NO_VALUE for r in rows], np.int32
        ),
    }
    info = RankInfo(
        rank=-1,
        host=host,
        framework="jax",
        device_name=_device_name(events) if has_device else None,
        source=source,
        has_device=has_device,
        untried=_find_untried(events),
    )
    return RankEvents(info, symbols, columns)


def _plain(event: JaxEvent) -> JaxEvent:
    """Return the event under the operation's own name."""
    found = _HLO_TEXT.match(event.name)
    return event._replace(name=found.group(1)) if found else event


def _without_groups(events: list[JaxEvent]) -> list[JaxEvent]:
    """Return the events without rows that only group, or schedule, what streams of a device ran."""
    streams = {e.process for e in events if _STREAM.match(e.line)}
    timeline = any(_TIMELINE_STREAM.search(e.process) for e in events)
    return [
        e
        for e in events
        if not (e.process in streams and _XLA_OPS.match(e.line))
        and not (timeline and _DEVICE.search(e.process) and "/stream:" not in e.process)
    ]


def _find_untried(events: Sequence[JaxEvent]) -> str:
    processes = {e.process for e in events}
    if any("TPU" in name for name in processes):
        return "a TPU profile"
    if any(_TIMELINE.match(name) for name in processes):
        return "a timeline of TensorFlow 1"
    return ""


def _launches(events: Sequence[JaxEvent], rows: Sequence[_Row]) -> Any:
    """Return the runtime call of each device event, where both carry one correlation id."""
    calls = {
        event.correlation: n
        for n, (event, row) in enumerate(zip(events, rows, strict=True))
        if event.correlation > 0 and not row.on_device and row.kind == EventKind.RUNTIME
    }
    found = [
        calls.get(event.correlation, NO_VALUE) if row.on_device and calls else NO_VALUE
        for event, row in zip(events, rows, strict=True)
    ]
    return np.array(found, np.int64)


def _device_name(events: Sequence[JaxEvent]) -> str | None:
    found = (_DEVICE.search(e.process) for e in events)
    return next((f.group().removeprefix("/device:") for f in found if f), None)


def _row(event: JaxEvent, has_device: bool, *, by_operator: bool) -> _Row:
    """Make XLA's operations the device activity, also where the host is the device.

    Without XLA the operators of TensorFlow's executor stand for them (``by_operator``).
    """
    device = _DEVICE.search(event.process)
    number = int(device.group(1)) if device else min(max(event.device, NO_VALUE), 2**31 - 1)
    if device and _SUMMARY.match(event.line):
        return _Row(EventKind.ANNOTATION, False, number, "")
    if device or (event.hlo_op and not has_device):
        name = event.hlo_op or event.name
        collective = hlo_collective(name)
        if not collective and is_communication_kernel(event.name):
            collective = collective_name(event.name)
        if collective:
            return _Row(communication_kind(collective), True, number, collective)
        copies = _COPY.match(event.name) is not None
        return _Row(EventKind.MEMCPY if copies else EventKind.COMPUTE, True, number, "")
    if by_operator and _is_host_operator(event):
        return _Row(EventKind.COMPUTE, True, NO_VALUE, "")
    if event.name.startswith("$"):
        return _Row(EventKind.PYTHON, False, NO_VALUE, "")
    marks = event.step != NO_VALUE or "IteratorGetNext" in event.name
    kind = EventKind.ANNOTATION if marks else EventKind.RUNTIME
    return _Row(kind, False, NO_VALUE, "")


def _is_host_operator(event: JaxEvent) -> bool:
    """Return whether TensorFlow's executor computed this; waiting for the next batch is no work."""
    if not _EXECUTOR.match(event.line) or "IteratorGetNext" in event.name:
        return False
    return _OPERATOR.match(event.name) is not None


def _steps(events: Sequence[JaxEvent], start_ns: Any) -> Any:
    marks = [(e.start_ns, e.step) for e in events if 0 <= e.step < 2**31]
    step = np.full(len(events), NO_VALUE, np.int32)
    if marks:
        times = np.array([t for t, _ in marks], np.int64)
        numbers = np.array([n for _, n in marks], np.int32)
        place = np.searchsorted(times, start_ns, side="right") - 1
        step[place >= 0] = numbers[place[place >= 0]]
    return step
