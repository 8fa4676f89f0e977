"""Timelines of Ascend devices: msprof's, MindSpore's older display, and torch_npu's trace view.

A row is work only on a stream of the hardware or as a whole communication. Rows that summarise
others ("Overlap Analysis", step traces), the parts of a communication ("Plane 3") and rows that
wait (NOTIFY_WAIT, EVENT_WAIT) are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from marey.model.training.traces import NO_VALUE, EventKind
from marey.trace.readers.columns_in_progress import Work
from marey.trace.readers.jax import lane_names
from marey.trace.readers.json.raw_columns import LAUNCH_FLOWS, Lane, RawEvents
from marey.trace.readers.kernel_names import collective_name, communication_kind
from marey.trace.readers.kineto import kineto_reader
from marey.trace.readers.kineto.header import describe, read_stated_rank
from marey.trace.readers.kineto.links import Locator, flow_pairs
from marey.trace.readers.spans import RankEvents

FRAMEWORK = "ascend"
_PROCESSES = frozenset({"Ascend Hardware", "HCCL", "Overlap Analysis", "Step Trace"})
_SUMMARIES = re.compile(r"^(?:Overlap Analysis|AI Core Freq|NPU MEM|Step Trace|Plane \d)")
_COMMUNICATION = re.compile(r"^(?:HCCL|Communication)")
_ITERATION = re.compile(r"^Iteration ([0-9]{1,9})$")
_WAITS = re.compile(
    r"^(?:EVENT_|NOTIFY_|WAIT|Stream ?(?:Active|Switch|Wait)|PLACE_HOLDER|WRITE_VALUE)",
    re.IGNORECASE,
)
_NOTIFIES = re.compile(r"^NOTIFY", re.IGNORECASE)
_COPIES = re.compile(r"^(?:MEMCPY|SDMA|PCIE_DMA)", re.IGNORECASE)
# Tasks that carry out a communication on its streams: the communication itself is a row elsewhere.
_PARTS = re.compile(r"^(?:MEMCPY|REDUCE|SDMA|RDMA|NOTIFY|EVENT)", re.IGNORECASE)
# The kernel that carries a communication out stands on a stream beside the communication itself.
_CARRIERS = re.compile(
    r"^hcom_|^(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all\w*?|broadcast|scatter|reduce"
    r"|send|recv|receive)_?(?:Aicpu|Aiv)Kernel",
    re.IGNORECASE,
)
# A flow ends where its task begins, to the microsecond.
_FLOW_SLACK_NS = 1_000
# MindSpore's older display names what a stream does as a whole, and has no names of processes.
_DISPLAY = re.compile(r"^stream_\d+_parallel_\d+$")
# … and each of its operators by its type and number, wherever it ran.
_OPERATOR = re.compile(r"^(?:[\w./-]*/)?[A-Za-z]\w*-op\d+$")
# The rows of the display that are not the device's: AI CPU, and on GPUs the host's operators.
_AI_CPU, _HOST_ROW = 9000, "Ops"
_FILE = re.compile(
    r"(?:msprof|task_time|hccl|ascend_timeline_display|timeline_display)_([0-9]{1,6})"
)


def fits(raw: RawEvents, members: dict[str, object]) -> bool:
    """Return whether processes are named as msprof does, or rows are of MindSpore's display."""
    if _PROCESSES & set(lane_names(raw, "process_name").values()):
        return True
    used, counts = np.unique(raw.spans.name, return_counts=True)
    if any(_DISPLAY.match(raw.texts[code]) for code in used.tolist()):
        return True
    operators = [_OPERATOR.match(raw.texts[code]) is not None for code in used.tolist()]
    named = int(counts[operators].sum()) if len(used) else 0
    has_rows_beside = any(_is_beside(lane) for lane in raw.lanes)
    return named > 0 and (has_rows_beside or 2 * named >= counts.sum())


def read(raw: RawEvents, members: dict[str, object], source: str) -> Iterator[RankEvents]:
    """Yield the device of one file; its number is in the file's name."""
    rank = read_stated_rank(members)
    found = _FILE.search(source)
    if rank is None and found is not None:
        rank = int(found.group(1))
    info = describe(members, rank=-1 if rank is None else rank, source=source)
    info = replace(info, framework=FRAMEWORK)
    if len(raw.spans.phase):
        yield kineto_reader.interpret(raw, info, before=(_tell_rows_apart, _link_flows))


def _tell_rows_apart(work: Work) -> None:
    """Give every row the kind that its process, its thread and its name say."""
    processes, threads = lane_names(work.raw, "process_name"), lane_names(work.raw, "thread_name")
    place = [
        (str(processes.get(lane[0], "")), str(threads.get(lane, ""))) for lane in work.raw.lanes
    ]
    hardware = np.array([p == "Ascend Hardware" for p, _ in place], bool)
    talking = np.array([bool(_COMMUNICATION.match(p)) for p, _ in place], bool)
    summary = np.array([any(_SUMMARIES.match(t) for t in pair) for pair in place], bool)
    if not hardware.any():
        beside = np.array([_is_beside(lane) for lane in work.raw.lanes], bool)
        hardware = ~summary & ~talking & ~beside
    _fill_kinds(work, hardware & ~summary, talking & ~summary, summary)
    _fill_steps(work)


def _is_beside(lane: Lane) -> bool:
    """Return whether a row of MindSpore's display is not one of the device's streams."""
    return lane[0] in (_AI_CPU, str(_AI_CPU)) or lane[1] == _HOST_ROW


def _fill_kinds(work: Work, hardware: Any, talking: Any, summary: Any) -> None:
    waits, copies = _find_named(work, _WAITS), _find_named(work, _COPIES)
    on_hardware, on_talk = hardware[work.lane], talking[work.lane]
    notified = np.zeros(len(work.raw.lanes), bool)
    notified[np.unique(work.lane[on_hardware & _find_named(work, _NOTIFIES)])] = True
    parts = notified[work.lane] & _find_named(work, _PARTS)
    parts |= on_hardware & _find_named(work, _CARRIERS)
    # Where no row is the communication itself (task_time_*.json), its tasks stand for it.
    stand_ins = on_hardware & parts & ~waits & (not on_talk.any())
    works = on_hardware & ~waits & (~parts | stand_ins)
    work.kind[summary[work.lane] | (on_hardware & ~works)] = EventKind.ANNOTATION
    work.kind[works] = np.where(copies[works], EventKind.MEMCPY, EventKind.COMPUTE)
    work.kind[stand_ins] = EventKind.COLLECTIVE
    kinds = np.full(len(work.raw.texts), int(EventKind.COLLECTIVE), np.int8)
    for code in work.used_names:
        kinds[code] = communication_kind(collective_name(work.raw.texts[code]))
    work.kind[on_talk] = kinds[work.name[on_talk]]
    work.on_device[works | on_talk] = True


def _find_named(work: Work, pattern: re.Pattern[str]) -> Any:
    return work.names_where(lambda name: pattern.match(name) is not None)


def _link_flows(work: Work) -> None:
    """Link each task of the device to the host's call that launched it, by their flow."""
    flows = work.raw.flows
    wanted = np.array([text == LAUNCH_FLOWS for text in work.raw.texts] or [False])
    begins, ends = flow_pairs(flows, wanted)
    if not len(begins):
        return
    base = np.int64(work.info.base_ns)
    is_call = ~work.on_device & ~work.kinds(EventKind.ANNOTATION)
    calls = Locator(work.lane, work.start_ns, np.flatnonzero(is_call))
    tasks = Locator(work.lane, work.start_ns, np.flatnonzero(work.on_device))
    call = calls.find(flows.lane[begins], flows.start_ns[begins] + base)
    task = tasks.find(flows.lane[ends], flows.start_ns[ends] + base)
    good = (call >= 0) & (task >= 0)
    near = np.abs(work.start_ns[task] - flows.start_ns[ends] - base) <= _FLOW_SLACK_NS
    work.column("launch")[task[good & near]] = call[good & near]


def _fill_steps(work: Work) -> None:
    """Number everything that begins in an iteration of the step trace by it."""
    rows = np.flatnonzero(_find_named(work, _ITERATION))
    step = work.column("step")
    for row in rows.tolist():
        found = _ITERATION.match(work.name_of(row))
        end = work.start_ns[row] + work.dur_ns[row]
        low, high = np.searchsorted(work.start_ns, [work.start_ns[row], end])
        step[low:high] = int(found.group(1)) if found else NO_VALUE
