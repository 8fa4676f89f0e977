"""What had to be over before what on one rank: host operators, calls, and the work on its devices.

Every event is two points in time, its start and its end; an edge leads from a point to one that
could not come before it and carries the time that passed. The model is the one that
HolisticTraceAnalysis describes for its critical path: operators follow each other on their thread,
a kernel starts after its launch or after the kernel before it on its stream, and a synchronising
call ends after the work it waited for. Added to it: a backward operator follows its forward one,
and a thread that paused for its backward pass goes on after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from marey.model.training.symbols import Symbols
from marey.model.training.traces import DEVICE_KINDS, EventKind
from marey.stats.compiled import njit
from marey.trace.rank.device_waits import (
    NEVER,
    Columns,
    DeviceWork,
    Flags,
    Ints,
    Waits,
    device_work,
    find_recorded_waits,
    infer_waits,
    is_blocking_call,
)
from marey.trace.run.name_codes import codes_of

GRAPH_COLUMNS = (
    *("start_ns", "dur_ns", "kind", "name", "on_device", "device", "stream"),
    *("launch", "correlation", "forward", "wait_stream", "wait_correlation"),
)
NOBODY = -1


class EdgeKind(IntEnum):
    """Why the later point could not come before the earlier one."""

    # Time inside a host operator or call, or of work on the device.
    WORK = 0
    # From the launching call to the start of work on an idle stream.
    LAUNCH_DELAY = 1
    # Between work and the next on the same stream, or on one that waited for it.
    STREAM_DELAY = 2
    # From the end of device work to the end of the call that waited for it.
    SYNC = 3
    # Mere order: the next operator of the thread.
    ORDER = 4
    # Order between threads: from forward to backward, and back.
    HANDOVER = 5


# Edges between threads and streams; those within one have an order even where no time passes.
CROSSING = (EdgeKind.SYNC, EdgeKind.HANDOVER)


@dataclass(frozen=True)
class Edges:
    """Parallel arrays; a point is ``2 * row`` for the start and ``2 * row + 1`` for the end."""

    source: Ints
    target: Ints
    time_ns: Ints
    kind: Ints
    # The event whose time it is, or -1.
    owner: Ints

    def where(self, kept: Flags | Ints) -> Edges:
        """Return only some of the edges, or all in another order."""
        return Edges(*(getattr(self, name)[kept] for name in self.__dataclass_fields__))


def join(parts: list[Edges]) -> Edges:
    """Return all edges of several sets."""
    names = Edges.__dataclass_fields__
    return Edges(*(np.concatenate([getattr(p, name) for p in parts]) for name in names))


def operator_edges(
    columns: Columns, chosen: Flags, symbols: Symbols, *, strict: bool = False
) -> Edges:
    """Return the edges among the chosen events of one rank; none leads back in time.

    Clocks are coarse: an edge between threads or streams may join two points of one moment, and a
    damaged trace may make a circle of such. ``strict`` leaves them out; then there is no circle.
    """
    on_device = (columns["device"] >= 0) & np.isin(columns["kind"], DEVICE_KINDS)
    on_host = (columns["device"] < 0) & np.isin(
        columns["kind"], (*DEVICE_KINDS, EventKind.CPU_OP, EventKind.RUNTIME)
    )
    # A call that took no time and launched nothing adds nothing.
    on_host &= (columns["dur_ns"] > 0) | _launches(columns)
    # What was recorded or launched outside the window still says who waited for whom.
    work = device_work(columns, on_device)
    recorded = (columns["kind"] == EventKind.SYNC).any()
    find_waits = find_recorded_waits if recorded else infer_waits
    host_waits, stream_waits = find_waits(columns, work, symbols)
    blocking = _find_blocking(columns, symbols)
    end_ns = columns["start_ns"] + columns["dur_ns"]
    parts = [
        _thread_edges(columns, on_host & chosen, blocking, end_ns),
        _device_edges(columns, work=work, waits=stream_waits, host=on_host & chosen, chosen=chosen),
        _wait_edges(host_waits),
        _backward_edges(columns, on_host),
        _return_edges(columns, on_host),
    ]
    edges = join(parts)
    kept = chosen[edges.source // 2] & chosen[edges.target // 2]
    passed = _moment(columns, end_ns, edges.target) - _moment(columns, end_ns, edges.source)
    kept &= (passed > 0) | ((passed == 0) & ~(strict & np.isin(edges.kind, CROSSING)))
    return edges.where(kept)


NO_EDGES = Edges(*[np.zeros(0, np.int64)] * 5)


def _launches(columns: Columns) -> Flags:
    launching = np.zeros(len(columns["launch"]), bool)
    launch = columns["launch"][np.isin(columns["kind"], DEVICE_KINDS) & (columns["device"] >= 0)]
    launching[launch[launch >= 0]] = True
    return launching


def _find_blocking(columns: Columns, symbols: Symbols) -> Flags:
    blocking: Flags = np.isin(columns["name"], codes_of(symbols, is_blocking_call))
    blocking &= columns["kind"] == EventKind.RUNTIME
    return blocking


def _moment(columns: Columns, end_ns: Ints, point: Ints) -> Ints:
    return np.where(point % 2, end_ns[point // 2], columns["start_ns"][point // 2])


def _thread_edges(columns: Columns, host: Flags, blocking: Flags, end_ns: Ints) -> Edges:
    """Return each thread's chain of points.

    An event that outlasts its parent is cut in ``end_ns``.
    """
    rows = np.flatnonzero(host)
    start, end, thread = columns["start_ns"][rows], end_ns[rows], columns["stream"][rows]
    order = np.lexsort((-end, start, thread))
    made = _chain(rows, thread, start, end, blocking[rows], order)
    end_ns[rows] = end
    return Edges(*made)


@njit(cache=True, nogil=True)
def _chain(
    rows: Ints, thread: Ints, start: Ints, end: Ints, blocking: Flags, order: Ints
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Start and end points of each thread's nested events, one after the other."""
    count = len(rows)
    source = np.empty(2 * count, np.int64)
    target = np.empty(2 * count, np.int64)
    time = np.zeros(2 * count, np.int64)
    kind = np.full(2 * count, 4, np.int64)
    owner = np.full(2 * count, -1, np.int64)
    stack = np.empty(count, np.int64)
    made, depth = 0, 0
    last, last_ns = np.int64(NOBODY), np.int64(0)
    for k in range(count + 1):
        new_thread = k == count or k == 0 or thread[order[k]] != thread[order[k - 1]]
        while depth and (new_thread or end[stack[depth - 1]] <= start[order[k]]):
            depth -= 1
            top = stack[depth]
            source[made], target[made] = last, 2 * rows[top] + 1
            if not blocking[top]:
                time[made] = end[top] - last_ns
            kind[made], owner[made] = 0, rows[top]
            made += 1
            last, last_ns = 2 * rows[top] + 1, end[top]
        if k == count:
            break
        item = order[k]
        if new_thread:
            last = np.int64(NOBODY)
        if last >= 0:
            source[made], target[made] = last, 2 * rows[item]
            if depth:
                time[made] = start[item] - last_ns
                kind[made], owner[made] = 0, rows[stack[depth - 1]]
            made += 1
        last, last_ns = 2 * rows[item], start[item]
        if depth:
            end[item] = min(end[item], end[stack[depth - 1]])
        stack[depth] = item
        depth += 1
    return source[:made], target[:made], time[:made], kind[:made], owner[:made]


def _device_edges(
    columns: Columns, *, work: DeviceWork, waits: Waits, host: Flags, chosen: Flags
) -> Edges:
    """Return the work itself, and why each piece of it did not start earlier."""
    rows, start = work.rows, work.start_ns
    before, before_ns = _before(work)
    waited_ns = _latest_end(columns, waits, chosen)[rows]
    launch = columns["launch"][rows]
    known = (launch >= 0) & host[launch]
    called = np.where(known, columns["start_ns"][launch], NEVER)
    launched = known & (called > before_ns) & (called > waited_ns)
    queued = ~launched & (before >= 0) & (before_ns > waited_ns)
    # Behind work outside the window there is still the launch, but no longer its whole delay.
    behind = queued & known & ~chosen[before]
    queued &= chosen[before]
    delay, sync = EdgeKind.STREAM_DELAY, EdgeKind.SYNC
    nothing = np.zeros(len(waits.work), np.int64)
    return join(
        [
            _edges(
                2 * rows,
                target=2 * rows + 1,
                time_ns=work.end_ns - start,
                kind=EdgeKind.WORK,
                owner=rows,
            ),
            _delays(
                2 * launch,
                rows=rows,
                time_ns=start - called,
                kind=EdgeKind.LAUNCH_DELAY,
                kept=launched,
            ),
            _delays(2 * launch, rows=rows, time_ns=start - before_ns, kind=delay, kept=behind),
            _delays(2 * before + 1, rows=rows, time_ns=start - before_ns, kind=delay, kept=queued),
            _edges(
                2 * waits.work + 1,
                target=2 * waits.waiter,
                time_ns=nothing,
                kind=sync,
                owner=waits.waiter,
            ),
        ]
    )


def _before(work: DeviceWork) -> tuple[Ints, Ints]:
    """Return the work before each on its stream and when it was over.

    Nobody and never for the first.
    """
    if not len(work.rows):
        return work.rows, work.rows
    same_lane = np.append(False, work.lane[1:] == work.lane[:-1])
    before = np.where(same_lane, np.append(NOBODY, work.rows[:-1]), NOBODY)
    return before, np.where(same_lane, np.append(NEVER, work.end_ns[:-1]), NEVER)


def _delays(source: Ints, *, rows: Ints, time_ns: Ints, kind: EdgeKind, kept: Flags) -> Edges:
    return _edges(
        source[kept], target=2 * rows[kept], time_ns=time_ns[kept], kind=kind, owner=rows[kept]
    )


def _latest_end(columns: Columns, waits: Waits, chosen: Flags) -> Ints:
    """Return for every row, when the last work of another stream that it waited for was over, or
    never.
    """
    latest = np.full(len(chosen), NEVER)
    kept = chosen[waits.work]
    end = columns["start_ns"][waits.work] + columns["dur_ns"][waits.work]
    np.maximum.at(latest, waits.waiter[kept], end[kept])
    return latest


def _wait_edges(waits: Waits) -> Edges:
    return _edges(
        2 * waits.work + 1,
        target=2 * waits.waiter + 1,
        time_ns=np.zeros(len(waits.work), np.int64),
        kind=EdgeKind.SYNC,
        owner=waits.waiter,
    )


def _backward_edges(columns: Columns, host: Flags) -> Edges:
    """Return a backward operator needs its forward one, which may have run on another thread."""
    forward = columns["forward"]
    rows = np.flatnonzero(host & (forward >= 0))
    rows = rows[host[forward[rows]]]
    nothing = np.zeros(len(rows), np.int64)
    return _edges(
        2 * forward[rows] + 1,
        target=2 * rows,
        time_ns=nothing,
        kind=EdgeKind.HANDOVER,
        owner=nothing - 1,
    )


def _return_edges(columns: Columns, host: Flags) -> Edges:
    """Return a thread that paused while its backward pass ran on another one waited for that."""
    rows = np.flatnonzero(host)
    thread = columns["stream"][rows]
    found = [NO_EDGES]
    for caller, engine in _backward_threads(columns, host):
        source, target = _returns(columns, rows[thread == caller], rows[thread == engine])
        nothing = np.zeros(len(source), np.int64)
        found.append(
            _edges(
                2 * source + 1,
                target=2 * target,
                time_ns=nothing,
                kind=EdgeKind.HANDOVER,
                owner=nothing - 1,
            )
        )
    return join(found)


# A process has one or two autograd threads per device; more pairs than this are no training.
MOST_THREAD_PAIRS = 32


def _backward_threads(columns: Columns, host: Flags) -> list[tuple[int, int]]:
    """Return pairs of a thread and the other thread that ran its backward pass."""
    rows = np.flatnonzero(host & (columns["forward"] >= 0))
    rows = rows[host[columns["forward"][rows]]]
    caller, engine = columns["stream"][columns["forward"][rows]], columns["stream"][rows]
    pairs = np.stack([caller, engine], axis=1)[caller != engine]
    unique, count = np.unique(pairs, axis=0, return_counts=True)
    chosen = unique[np.argsort(-count, kind="stable")[:MOST_THREAD_PAIRS]]
    return [(int(a), int(b)) for a, b in chosen]


def _returns(columns: Columns, caller: Ints, engine: Ints) -> tuple[Ints, Ints]:
    """Return pairs of the engine's last operator in a pause of the caller, and what ended the
    pause.
    """
    start = columns["start_ns"][caller]
    done = np.maximum.accumulate(start + columns["dur_ns"][caller])
    resumed = np.flatnonzero(start[1:] >= done[:-1]) + 1
    ends = columns["start_ns"][engine] + columns["dur_ns"][engine]
    order = np.argsort(ends, kind="stable")
    at = np.searchsorted(ends[order], start[resumed], side="right") - 1
    last = order[np.maximum(at, 0)]
    waited = (at >= 0) & (ends[last] > done[resumed - 1])
    return engine[last[waited]], caller[resumed[waited]]


def _edges(source: Ints, *, target: Ints, time_ns: Ints, kind: EdgeKind, owner: Ints) -> Edges:
    return Edges(source, target, time_ns, np.full(len(source), kind, np.int64), owner)
