"""What a host does by the names of its events: waiting for input, steps, the backward pass."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.model.training.symbols import Symbols
from marey.model.training.traces import COMMUNICATION_KINDS, EventKind
from marey.stats.intervals import EMPTY, Intervals, merge
from marey.trace.rank.activity import (
    Flags,
    Ints,
)
from marey.trace.rank.idle import HostTime
from marey.trace.readers.kernel_names import is_communication_call
from marey.trace.run.name_codes import codes_of

# What data loaders and the people who annotate them call the wait for input.
INPUT_NAMES = re.compile(
    r"data\s*_?loader|data\s*_?loading|load\s*_?(?:data|batch)"
    r"|(?:next|get)\s*_?batch(?!_?(?:size|len|idx|index))"
    r"|fetch\s*_?(?:data|batch)|input\s*_?pipeline|GetNext(?:-op\d+)?$|IteratorGetNext|DataPipe|_next_data",
    re.IGNORECASE,
)
# A Python frame is named by its file and function; the folders before them say nothing.
_FOLDERS = re.compile(r"^.*/(?=[^/]+\.py\(\d+\): )")
# What launches this share of the work, or lasts for this share of a recording without launches, is
# a frame around the run that is merely named after its input.
FRAME_LAUNCH_SHARE = 0.25
FRAME_SPAN_SHARE = 0.9
STEP_NAME = re.compile(
    r"^(?:ProfilerStep#|step |StepTrace#?|train_step|Iteration \d+$)", re.IGNORECASE
)
BACKWARD_NAME = re.compile(r"^autograd::engine|Backward\d*$")
ENGINE_NAME = re.compile(r"^autograd::engine")
_FETCHING = (EventKind.CPU_OP, EventKind.ANNOTATION, EventKind.PYTHON)
_HOST_WAITS = (EventKind.CPU_OP, EventKind.ANNOTATION, EventKind.PYTHON, *COMMUNICATION_KINDS)


def is_input(name: str) -> bool:
    """Return whether an operator or annotation of this name fetches the next batch."""
    return INPUT_NAMES.search(_FOLDERS.sub("", name)) is not None


def is_step_mark(name: str) -> bool:
    """Return whether an annotation of this name is a profiler's mark of a whole step."""
    return STEP_NAME.match(name) is not None


def is_backward(name: str) -> bool:
    """Return whether an operator of this name belongs to the backward pass."""
    return BACKWARD_NAME.search(name) is not None


def is_engine(name: str) -> bool:
    """Say whether this is the autograd engine itself: on the host, or where that is the device."""
    return ENGINE_NAME.search(name) is not None


def host_time(column: Mapping[str, NDArray[Any]], symbols: Symbols) -> HostTime:
    """Return the host's recorded time: loading, in communication calls, between steps,
    anything.
    """
    host = ~column["on_device"].astype(bool)
    end = column["start_ns"] + column["dur_ns"]
    marks = np.isin(column["name"], codes_of(symbols, is_step_mark))
    waiting = host & np.isin(column["kind"], _HOST_WAITS)

    def during(rows: Flags) -> Intervals:
        return merge(column["start_ns"][rows], column["dur_ns"][rows])

    return HostTime(
        fetching=during(find_fetches(column, symbols)),
        talking=during(waiting & np.isin(column["name"], codes_of(symbols, is_communication_call))),
        between_steps=find_between(read_steps(column, end, symbols)),
        recorded=during(host & ~marks & (column["kind"] != EventKind.ANNOTATION)),
    )


def find_fetches(column: Mapping[str, NDArray[Any]], symbols: Symbols) -> Flags:
    """Return which events of the host fetch input; ``column`` needs the stream that launched.

    A name alone is not enough: ``main`` of a file called data_loader_test.py has it too. What
    itself launches the run's compute, or lasts as long as the run where no launch was recorded,
    is not a wait for input.
    """
    host = ~column["on_device"].astype(bool)
    named = host & np.isin(column["kind"], _FETCHING)
    named &= np.isin(column["name"], codes_of(symbols, is_input))
    rows = np.flatnonzero(named)
    if len(rows):
        named[rows[_is_frame(column, rows, host)]] = False
    return named


def _is_frame(column: Mapping[str, NDArray[Any]], rows: Ints, host: Flags) -> Flags:
    """Return which of these events enclose the run rather than a part of it."""
    start, dur = column["start_ns"].astype(np.int64), column["dur_ns"].astype(np.int64)
    computes = (column["kind"] == EventKind.COMPUTE) & (column["launch"] >= 0)
    launches = np.unique(column["launch"][computes]).astype(np.int64)
    if not len(launches):
        span = int((start + dur)[host].max()) - int(start[host].min())
        whole: Flags = dur[rows] >= FRAME_SPAN_SHARE * max(span, 1)
        return whole
    inside = np.zeros(len(rows), np.int64)
    thread = column["stream"]
    for one in np.unique(thread[rows]):
        mine = np.flatnonzero(thread[rows] == one)
        called = np.sort(start[launches[thread[launches] == one]])
        begin = start[rows[mine]]
        inside[mine] = np.searchsorted(called, begin + dur[rows[mine]]) - np.searchsorted(
            called, begin
        )
    _, place = np.unique(column["name"][rows], return_inverse=True)
    share = np.bincount(place, inside) / len(launches)
    frames: Flags = share[place] >= FRAME_LAUNCH_SHARE
    return frames


def read_steps(events: Mapping[str, NDArray[Any]], end: Ints, symbols: Symbols) -> Ints:
    """Return rows of step, start, end: from step annotations, else from the events' own step
    numbers.
    """
    named = codes_of(symbols, is_step_mark)
    marks = (events["kind"] == EventKind.ANNOTATION) & np.isin(events["name"], named)
    marks &= (events["on_device"] == 0) & (events["step"] >= 0)
    chosen = np.flatnonzero(marks)
    if not len(chosen):
        chosen = np.flatnonzero((events["step"] >= 0) & (events["on_device"] != 0))
    numbers, place = np.unique(events["step"][chosen], return_inverse=True)
    first = np.full(len(numbers), np.iinfo(np.int64).max)
    last = np.full(len(numbers), np.iinfo(np.int64).min)
    np.minimum.at(first, place, events["start_ns"][chosen])
    np.maximum.at(last, place, end[chosen])
    order = np.argsort(first, kind="stable")
    return np.stack([numbers, first, last], axis=1)[order].astype(np.int64)


def find_between(steps: Ints) -> Intervals:
    """Return the time between one step's end and the next one's start."""
    if len(steps) < 2:
        return EMPTY
    start, end = steps[:-1, 2], steps[1:, 1]
    return merge(start, np.maximum(end - start, 0))
