"""Any other Chrome trace (MXNet's and the like): complete events, and begin / end pairs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from marey.model.training.traces import NO_VALUE, EventKind
from marey.trace.readers.columns_in_progress import Work
from marey.trace.readers.devices import split_devices
from marey.trace.readers.foreign.converted_rows import Role, find_role, name_converter
from marey.trace.readers.jax import lane_names
from marey.trace.readers.json.raw_columns import NO_TIME, Block, RawEvents, Sparse
from marey.trace.readers.kernel_names import (
    collective_name,
    communication_kind,
    is_communication_call,
    is_communication_kernel,
    spell_collective,
)
from marey.trace.readers.kineto import kineto_reader
from marey.trace.readers.spans import RankEvents
from marey.trace.readers.trace_info import RankInfo

# How tools name the process of a device: MXNet "gpu/0", rocprof "GPU0", others "GPU 0 (…)",
# "CUDA device 1".
_MXNET = re.compile(r"^(?:gpu|cpu|cpu pinned)/\d+$")
_NUMBER = re.compile(r"[0-9]{1,6}")
# What frameworks call copies between host and device when no category says it.
_COPY = re.compile(
    r"^(?:memcpy|CopyCPU2GPU|CopyGPU2CPU|CopyGPU2GPU|zeCommandListAppendMemory)", re.IGNORECASE
)
# A device's rows become its work once all are found; what they hold there, their names say.
_KINDS = {
    Role.DEVICE: int(EventKind.CPU_OP),
    Role.CALLS: int(EventKind.RUNTIME),
    Role.MARKS: int(EventKind.ANNOTATION),
    Role.HOST: int(EventKind.CPU_OP),
}
_DEVICE_PROCESS = re.compile(r"\b(?:gpu|cuda|device|npu|tpu)[0-9]{0,6}\b", re.IGNORECASE)


def read(raw: RawEvents, members: dict[str, object], source: str) -> Iterator[RankEvents]:
    """Yield the one rank of a trace that says nothing about ranks."""
    if len(raw.spans.phase):
        info = RankInfo(rank=-1, framework="chrome", source=source, untried=_find_untried(raw))
        found = kineto_reader.interpret(raw, info, before=(_find_devices,))
        yield from split_devices(found)


def is_named(raw: RawEvents, members: dict[str, object]) -> bool:
    """Return whether processes are named as MXNet or a converter names its devices.

    Kineto would take their operators.
    """
    return bool(_name_program(raw))


def _name_program(raw: RawEvents) -> str:
    """Return the program that names processes as these are named, or ""."""
    stated = lane_names(raw, "process_name")
    if any(_MXNET.match(name) for name in stated.values()):
        return "an MXNet profile"
    processes = {lane[0] for lane in raw.lanes}
    found = {name_converter(process, stated.get(process, "")) for process in processes}
    return min(found - {""}, default="")


def _find_untried(raw: RawEvents) -> str:
    """Return which format this is that was never tried: MXNet's, a converter's, an unknown one."""
    return _name_program(raw) or "a Chrome trace of an unknown program"


def pair_events(spans: Block) -> Block:
    """Begin and end events of a thread as complete ones; what is left open is left out."""
    is_begin, is_end = spans.phase == ord("B"), spans.phase == ord("E")
    if not is_begin.any():
        return spans
    # File order is kept among equal times: an end that comes first closes what came before.
    rows = np.flatnonzero((is_begin | is_end) & (spans.start_ns != NO_TIME))
    rows = rows[np.argsort(spans.start_ns[rows], kind="stable")]
    open_rows: dict[int, list[int]] = {}
    phase, dur_ns = spans.phase.copy(), spans.dur_ns.astype(np.int64)
    for row in rows.tolist():
        stack = open_rows.setdefault(int(spans.lane[row]), [])
        if is_begin[row]:
            stack.append(row)
        elif stack:
            begin = stack.pop()
            phase[begin] = ord("X")
            dur_ns[begin] = max(int(spans.start_ns[row] - spans.start_ns[begin]), 0)
    return replace(spans, phase=phase, dur_ns=dur_ns)


def _find_devices(work: Work) -> None:
    """Make events of processes named like devices device events.

    Transfers are known by their names.
    """
    devices = np.zeros(len(work.raw.lanes), bool)
    metadata = work.raw.metadata
    names = metadata.args.get("name")
    pids: dict[object, int] = {}
    if names is not None:
        for row, code in zip(names.rows.tolist(), names.values.tolist(), strict=True):
            is_process = work.raw.texts[metadata.name[row]] == "process_name"
            if is_process and _DEVICE_PROCESS.search(work.raw.texts[code]):
                found = _NUMBER.search(work.raw.texts[code])
                number = int(found.group()) if found else len(pids)
                pids[work.raw.lanes[metadata.lane[row]][0]] = number
    for n, lane in enumerate(work.raw.lanes):
        devices[n] = lane[0] in pids
    _read_converted_rows(work, devices, pids)
    on_device = devices[work.lane] & work.kinds(EventKind.CPU_OP)
    work.on_device |= on_device
    copies = on_device & work.names_where(lambda name: _COPY.match(name) is not None)
    work.kind[on_device] = EventKind.COMPUTE
    work.kind[copies] = EventKind.MEMCPY
    rows = np.flatnonzero(on_device).astype(np.int32)
    if len(rows) and "device" not in work.args:
        numbers = np.array([pids.get(lane[0], NO_VALUE) for lane in work.raw.lanes], np.int64)
        work.args["device"] = Sparse(rows, numbers[work.lane[rows]])
    kinds = np.full(len(work.raw.texts), -1, np.int8)
    for code in work.used_names:
        if collective := _transfer(work.raw.texts[code]):
            kinds[code] = communication_kind(collective)
    transfers = (kinds[work.name] >= 0) & (on_device | ~work.on_device.any())
    work.kind[transfers] = kinds[work.name[transfers]]


def _read_converted_rows(
    work: Work, devices: npt.NDArray[np.bool_], pids: dict[object, int]
) -> None:
    """Tell apart the rows of a converted trace; its devices are numbered in their order."""
    lanes = work.raw.lanes
    processes = lane_names(work.raw, "process_name")
    threads = lane_names(work.raw, "thread_name")
    roles = [
        find_role(lane[0], processes.get(lane[0], ""), str(threads.get(lane, lane[1] or "")))
        for lane in lanes
    ]
    if not any(roles):
        return
    busy = np.bincount(work.lane, minlength=len(roles)) > 0
    of_device = [n for n, role in enumerate(roles) if role is Role.DEVICE and busy[n]]
    numbered = sorted({str(lanes[n][0]) for n in of_device})
    for n, role in enumerate(roles):
        devices[n] = role is Role.DEVICE or (role is None and devices[n])
    for n in of_device:
        pids[lanes[n][0]] = numbered.index(str(lanes[n][0]))
    kinds = np.array([_KINDS[role] if role else -1 for role in roles], np.int8)[work.lane]
    work.kind[kinds >= 0] = kinds[kinds >= 0]
    work.on_device[kinds >= 0] = False


def _transfer(name: str) -> str:
    if is_communication_kernel(name) or is_communication_call(name):
        return collective_name(name)
    return spell_collective(name)
