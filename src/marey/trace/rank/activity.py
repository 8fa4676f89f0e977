"""One rank reduced to what cross-rank questions need: communications, compute between, idle causes.

The event table of a rank is read once and let go; what stays grows with the number of
communications, not of kernels, so that a run of any size fits in memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.training.symbols import Symbols
from marey.model.training.traces import COMMUNICATION_KINDS, NO_VALUE, EventKind
from marey.stats.intervals import EMPTY, Intervals, complement, merge, unite
from marey.trace.rank.idle import LAUNCH_LATENCY_NS, HostTime, IdleTime, divide_idle
from marey.trace.rank.recording import Recording, describe_recording
from marey.trace.readers.kernel_names import is_communication_call
from marey.trace.run.name_codes import codes_of
from marey.trace.run.trace_run import TraceRun

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]

COLUMNS = (
    "start_ns",
    "dur_ns",
    "kind",
    "name",
    "on_device",
    "stream",
    "launch",
    "step",
    "group",
    "sequence",
    "comms_id",
    "bytes",
    "dtype",
    "peer",
    "tag",
    "collective",
    "forward",
)
# Columns of a communication that are kept as they are.
CARRIED = (
    "kind",
    "collective",
    "group",
    "sequence",
    "comms_id",
    "bytes",
    "dtype",
    "peer",
    "tag",
    "stream",
)
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

# A pause of compute worth asking about.
LONG_GAP_NS = 100_000
# Run-loop threads log the end of a gloo call up to this long after the waiting thread went on.
LATE_LOG_NS = 2_000_000


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
    """Whether this is the autograd engine itself: on the host, also where that is the device."""
    return ENGINE_NAME.search(name) is not None


FORWARD_PHASE, BACKWARD_PHASE, UPDATE_PHASE = 0, 1, 2
PHASE_NAMES = ("forward", "backward", "update")


@dataclass(frozen=True)
class Communications:
    """The device-side communications of a rank in order of start; -1 where the trace is silent."""

    row: Ints
    start_ns: Ints
    end_ns: Ints
    launch_ns: Ints
    step: Ints
    kind: Ints
    collective: Ints
    group: Ints
    sequence: Ints
    comms_id: Ints
    bytes: Ints
    dtype: Ints
    peer: Ints
    tag: Ints
    stream: Ints

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class Segments:
    """Compute between two neighbouring communication boundaries, in order of time."""

    start_ns: Ints
    end_ns: Ints
    busy_ns: Ints
    # Gaps inside the segment in which the device had run dry because the host launched late.
    starved_ns: Ints
    # When the host launched the first kernel of the segment, or -1.
    launch_ns: Ints
    step: Ints
    phase: Ints

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True)
class OperatorTimes:
    """Device time of each kernel name in each step."""

    step: Ints
    name: Ints
    dur_ns: Ints


@dataclass(frozen=True)
class RankActivity:
    """What one rank contributes to the analysis of the run, on its own clock."""

    rank: int
    communications: Communications
    segments: Segments
    operators: OperatorTimes
    # Host time inside data loading, and outside any profiled step.
    loading: Intervals
    between_steps: Intervals
    steps: Ints  # step, start, end in rows
    first_ns: int
    last_ns: int
    has_launches: bool
    # Why its device did nothing, and what the recording can tell at all.
    idle: IdleTime = field(default_factory=IdleTime)
    recording: Recording = field(default_factory=Recording)

    def step_windows(self) -> tuple[Ints, Ints, Ints]:
        """Number, start and end of each step, which lasts until the next; one without any steps."""
        if not len(self.steps):
            return np.zeros(1, np.int64), np.array([self.first_ns]), np.array([self.last_ns])
        start = self.steps[:, 1]
        last = max(int(self.steps[-1, 2]), self.last_ns)
        return self.steps[:, 0], start, np.append(start[1:], last)


def host_delay(activity: RankActivity) -> Intervals:
    """Return idle time that the host is to answer for.

    Where it is the device itself, all its pauses.
    """
    idle = activity.idle
    return idle.host if activity.recording.has_device else unite(idle.host, idle.unlinked)


def reduce_rank(run: TraceRun, rank: int) -> RankActivity:
    """Read one rank's events once and keep what the run's analysis needs."""
    table = run.events(rank, COLUMNS)
    events = {name: _column(table, name) for name in COLUMNS}
    return reduce_events(rank, events, run.symbols, has_device=run.info(rank).has_device)


def _column(table: pa.Table, name: str) -> Ints:
    return np.asarray(table[name].to_numpy(zero_copy_only=False)).astype(np.int64)


def reduce_events(
    rank: int, events: dict[str, Ints], symbols: Symbols, *, has_device: bool = True
) -> RankActivity:
    """Return the reduction on plain columns."""
    end = events["start_ns"] + events["dur_ns"]
    on_device = events["on_device"] != 0
    talks = np.isin(events["kind"], COMMUNICATION_KINDS) & on_device
    computes = on_device & ~talks & (events["dur_ns"] > 0)
    steps = _steps(events, end, symbols)
    threads = _launch_threads(events)
    launched = _launch_times(events)
    backward = computes & _backward(events, threads, launched, symbols)
    communications = _communications(events, end, talks, steps)
    fetches = find_fetches({**events, "on_device": on_device}, symbols)
    loading = merge(events["start_ns"][fetches], events["dur_ns"][fetches])
    work = merge(events["start_ns"][computes], events["dur_ns"][computes])
    communications = _is_ended_by_waking(communications, work, launched[computes])
    waits = _waits_inside(work, communications)
    marks = (communications.start_ns, communications.end_ns, *loading, waits)
    segments = _segments(
        events,
        end=end,
        computes=computes,
        backward=backward,
        launched=launched,
        marks=np.concatenate(marks),
        steps=steps,
    )
    device = np.flatnonzero(on_device)
    busy = merge(events["start_ns"][device], events["dur_ns"][device])
    host = host_time({**events, "on_device": on_device}, symbols)
    first = int(events["start_ns"][device].min()) if len(device) else 0
    last = int(end[device].max()) if len(device) else 0
    gaps = _find_gaps(busy, steps, (first, last))
    idle = divide_idle({**events, "on_device": on_device}, gaps, host, has_device=has_device)
    return RankActivity(
        rank=rank,
        communications=communications,
        segments=segments,
        operators=_operators(events, computes),
        loading=loading,
        between_steps=_between(steps),
        steps=steps,
        first_ns=first,
        last_ns=last,
        has_launches=bool((events["launch"][computes] >= 0).any()),
        idle=idle,
        recording=describe_recording(
            events, symbols, idle=idle, busy=busy, host=host, has_device=has_device
        ),
    )


def _find_gaps(busy: Intervals, steps: Ints, span: tuple[int, int]) -> Intervals:
    """Find the gaps between a device's first and last work, and before it in the first step."""
    if not len(busy.start_ns):
        return EMPTY
    first, last = span
    if len(steps):
        first = min(first, int(steps[0, 1]))
    return complement(busy, first, last)


_FETCHING = (EventKind.CPU_OP, EventKind.ANNOTATION, EventKind.PYTHON)
_HOST_WAITS = (EventKind.CPU_OP, EventKind.ANNOTATION, EventKind.PYTHON, *COMMUNICATION_KINDS)


def host_time(column: Mapping[str, NDArray[Any]], symbols: Symbols) -> HostTime:
    """Return what the host was seen doing: loading, in communication calls, between steps,
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
        between_steps=_between(_steps(column, end, symbols)),
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


def _steps(events: Mapping[str, NDArray[Any]], end: Ints, symbols: Symbols) -> Ints:
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


def _between(steps: Ints) -> Intervals:
    """Return the time between one step's end and the next one's start."""
    if len(steps) < 2:
        return EMPTY
    start, end = steps[:-1, 2], steps[1:, 1]
    return merge(start, np.maximum(end - start, 0))


def _launch_threads(events: dict[str, Ints]) -> Ints:
    """Return the host thread each event was launched from.

    Its own thread where there is no launch.
    """
    launcher = np.where(events["launch"] >= 0, events["launch"], np.arange(len(events["launch"])))
    threads: Ints = events["stream"][launcher]
    return threads


def _launch_times(events: dict[str, Ints]) -> Ints:
    launcher = events["launch"]
    return np.where(launcher >= 0, events["start_ns"][np.maximum(launcher, 0)], NO_VALUE)


def _backward(events: dict[str, Ints], threads: Ints, launched: Ints, symbols: Symbols) -> Flags:
    """Return events that the autograd engine launched, from its own threads or on the main one."""
    named = codes_of(symbols, is_backward)
    host = (events["on_device"] == 0) | (events["kind"] == EventKind.CPU_OP)
    marks = (np.isin(events["name"], named) | (events["forward"] >= 0)) & host
    marks |= np.isin(events["name"], codes_of(symbols, is_engine))
    engine = np.unique(events["stream"][marks])
    stepping = codes_of(symbols, is_step_mark)
    main = np.unique(events["stream"][np.isin(events["name"], stepping) & host])
    chosen = np.isin(threads, np.setdiff1d(engine, main))
    called = np.where(launched >= 0, launched, events["start_ns"])
    for thread in np.intersect1d(engine, main):
        inside = marks & (events["stream"] == thread)
        spans = merge(events["start_ns"][inside], events["dur_ns"][inside])
        at = np.searchsorted(spans.start_ns, called, side="right") - 1
        chosen |= (threads == thread) & (at >= 0) & (called < np.append(spans.end_ns, 0)[at])
    return chosen


def _communications(
    events: dict[str, Ints], end: Ints, talks: Flags, steps: Ints
) -> Communications:
    rows = np.flatnonzero(talks)
    rows = rows[np.argsort(events["start_ns"][rows], kind="stable")]
    launch = _launch_times(events)[rows]
    start = events["start_ns"][rows]
    step = events["step"][rows]
    called = np.where(launch >= 0, launch, start)
    step = np.where(step >= 0, step, _step_at(steps, called))
    rest = {name: events[name][rows] for name in CARRIED}
    return Communications(
        row=rows, start_ns=start, end_ns=end[rows], launch_ns=launch, step=step, **rest
    )


def _waits_inside(work: Intervals, talks: Communications) -> Ints:
    """Return where compute resumes after a long gap in which a communication was under way."""
    resumed, paused = work.start_ns[1:], work.end_ns[:-1]
    begun = np.searchsorted(talks.start_ns, resumed, side="left")
    over = np.searchsorted(np.sort(talks.end_ns), paused, side="right")
    return resumed[(resumed - paused >= LONG_GAP_NS) & (begun > over)]


def _is_ended_by_waking(talks: Communications, work: Intervals, launched: Ints) -> Communications:
    """Return where a wait is over when work goes on, not when it is logged.

    The host is the device.
    """
    if (launched >= 0).any() or not len(work.start_ns) or not len(talks):
        return talks
    resumed, paused = work.start_ns[1:], work.end_ns[:-1]
    long = resumed[resumed - paused >= LONG_GAP_NS]
    at = np.searchsorted(long, talks.end_ns, side="left") - 1
    woke = np.where(at >= 0, np.append(long, 0)[at], 0)
    early = (talks.end_ns - woke <= LATE_LOG_NS) & (woke > talks.start_ns)
    return replace(talks, end_ns=np.where(early, woke, talks.end_ns))


def _step_at(steps: Ints, times: Ints) -> Ints:
    """Return the step that was running at each time, or the last one begun."""
    if not len(steps):
        return np.zeros(len(times), np.int64)
    at = np.searchsorted(steps[:, 1], times, side="right") - 1
    running: Ints = steps[np.clip(at, 0, len(steps) - 1), 0]
    return running


def _segments(
    events: dict[str, Ints],
    *,
    end: Ints,
    computes: Flags,
    backward: Flags,
    launched: Ints,
    marks: Ints,
    steps: Ints,
) -> Segments:
    """Cut the union of compute at every mark and change of phase, and sum each piece."""
    rows = np.flatnonzero(computes)
    rows = rows[np.argsort(events["start_ns"][rows], kind="stable")]
    start, stop = events["start_ns"][rows], end[rows]
    pieces = merge(start, stop - start)
    if not len(pieces.start_ns):
        empty = np.zeros(0, np.int64)
        return Segments(
            start_ns=empty,
            end_ns=empty,
            busy_ns=empty,
            starved_ns=empty,
            launch_ns=empty,
            step=empty,
            phase=empty,
        )
    launch = launched[rows]
    step = events["step"][rows]
    step = np.where(step >= 0, step, _step_at(steps, np.where(launch >= 0, launch, start)))
    phase = np.where(backward[rows], BACKWARD_PHASE, FORWARD_PHASE)
    changed = (np.diff(phase) != 0) | (np.diff(step) != 0)
    cuts = np.unique(np.concatenate([marks, start[1:][changed]]))
    cut_start, cut_end = _cut(pieces, cuts)
    slot = np.searchsorted(cuts, cut_start, side="right")
    _, first = np.unique(slot, return_index=True)
    last = np.append(first[1:], len(slot)) - 1
    busy = np.add.reduceat(cut_end - cut_start, first)
    begins = cut_start[first]
    kernel = np.clip(np.searchsorted(start, begins, side="right") - 1, 0, len(start) - 1)
    of_segment = _with_updates(phase[kernel], step[kernel])
    starved = _find_starved(start, stop, launch, begins)
    return Segments(
        start_ns=begins,
        end_ns=cut_end[last],
        busy_ns=busy,
        starved_ns=starved,
        launch_ns=launch[kernel],
        step=step[kernel],
        phase=of_segment,
    )


def _find_starved(start: Ints, stop: Ints, launch: Ints, begins: Ints) -> Ints:
    """Return for each segment, the gaps before its later kernels that end with a kernel just
    launched.
    """
    done = np.maximum.accumulate(stop)
    before = np.append(start[:1], done[:-1])
    gap = np.maximum(start - before, 0)
    # Without launches the device is the host itself: every gap is the host's.
    late = (launch < 0) | (launch >= before - LAUNCH_LATENCY_NS)
    at = np.searchsorted(begins, start, side="right") - 1
    inner = (start > begins[np.maximum(at, 0)]) & late & (at >= 0)
    return np.bincount(at[inner], weights=gap[inner], minlength=len(begins)).astype(np.int64)


def _cut(pieces: Intervals, cuts: Ints) -> tuple[Ints, Ints]:
    """Return the pieces divided wherever a cut falls inside one."""
    at = np.searchsorted(pieces.end_ns, cuts, side="right")
    inside = at < len(pieces.end_ns)
    inside &= pieces.start_ns[np.minimum(at, len(pieces.start_ns) - 1)] < cuts
    start = np.sort(np.concatenate([pieces.start_ns, cuts[inside]]))
    end = np.sort(np.concatenate([pieces.end_ns, cuts[inside]]))
    return start, end


def _with_updates(phase: Ints, step: Ints) -> Ints:
    """Mark what follows a step's last backward as the update."""
    place = np.arange(len(phase))
    backward = phase == BACKWARD_PHASE
    numbers, at = np.unique(step, return_inverse=True)
    last = np.full(len(numbers), len(phase))
    last_backward = np.full(len(numbers), -1)
    np.maximum.at(last_backward, at[backward], place[backward])
    last[last_backward >= 0] = last_backward[last_backward >= 0]
    return np.where(place > last[at], UPDATE_PHASE, phase)


def _operators(events: dict[str, Ints], computes: Flags) -> OperatorTimes:
    rows = np.flatnonzero(computes)
    if not len(rows):
        empty = np.zeros(0, np.int64)
        return OperatorTimes(empty, empty, empty)
    step, name = events["step"][rows], events["name"][rows]
    width = int(name.max()) + 1
    keys, place = np.unique((step + 1) * width + name, return_inverse=True)
    total = np.bincount(place, weights=events["dur_ns"][rows]).astype(np.int64)
    return OperatorTimes(keys // width - 1, keys % width, total)


def find_backward(events: dict[str, Ints], symbols: Symbols) -> Flags:
    """Return which events the autograd engine launched; needs the columns that a reduction
    reads.
    """
    return _backward(events, _launch_threads(events), _launch_times(events), symbols)
