"""One rank reduced to what cross-rank questions need.

The event table of a rank is read once and let go; what stays grows with the number of
communications, not of kernels, so that a run of any size fits in memory.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from marey.model.training.symbols import Symbols
from marey.model.training.traces import COMMUNICATION_KINDS, NO_VALUE, EventKind
from marey.stats.intervals import EMPTY, Intervals, complement, merge
from marey.trace.rank.activity import (
    BACKWARD_PHASE,
    FORWARD_PHASE,
    UPDATE_PHASE,
    Communications,
    Flags,
    Ints,
    OperatorTimes,
    RankActivity,
    Segments,
)
from marey.trace.rank.host_work import (
    find_between,
    find_fetches,
    host_time,
    is_backward,
    is_engine,
    is_step_mark,
    read_steps,
)
from marey.trace.rank.idle import LAUNCH_LATENCY_NS, divide_idle
from marey.trace.rank.recording import describe_recording
from marey.trace.run.name_codes import codes_of
from marey.trace.run.trace_run import TraceRun

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
# A pause of compute worth asking about.
LONG_GAP_NS = 100_000
# Run-loop threads log the end of a gloo call up to this long after the waiting thread went on.
LATE_LOG_NS = 2_000_000


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
    steps = read_steps(events, end, symbols)
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
        between_steps=find_between(steps),
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
