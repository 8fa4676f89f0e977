"""Who waits for device work on one rank: later work of the stream, other streams, the host.

Read off the profiler's records of synchronisation. Where a trace has none (they are an option of
the profiler), times have to do: a host call that returned after device work ended, and work that
began late and just after the last work of another stream, are taken to have waited for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.model.training.symbols import Symbols
from marey.model.training.traces import EventKind
from marey.stats.compiled import njit
from marey.trace.rank.idle import LAUNCH_LATENCY_NS
from marey.trace.run.name_codes import codes_of

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Columns = dict[str, Ints]

# Host calls that return when device work is done; an asynchronous copy of pageable memory too.
# cuda, hip and the driver's cu spell them alike.
BLOCKING_CALL = re.compile(
    r"^(?:cuda|hip|cu)(?:(?:Device|Stream|Event|Ctx)Synchronize|EventQuery"
    r"|Memcpy(?:Async|HtoD|DtoH|DtoD)?(?:Async)?(?:_v2)?$)"
)
EVENT_RECORD = re.compile(r"^(?:cuda|hip|cu)EventRecord")
CONTEXT_SYNC = re.compile(r"^(?:context|device) sync", re.IGNORECASE)
STREAM_SYNC = re.compile(r"^stream sync", re.IGNORECASE)
EVENT_SYNC = re.compile(r"^event sync", re.IGNORECASE)
STREAM_WAIT = re.compile(r"^stream wait", re.IGNORECASE)


def is_blocking_call(name: str) -> bool:
    """Return whether a runtime call of this name may hold the host until device work is done."""
    return BLOCKING_CALL.match(name) is not None


def is_event_record(name: str) -> bool:
    """Return whether a runtime call of this name records an event on a stream."""
    return EVENT_RECORD.match(name) is not None


def is_context_sync(name: str) -> bool:
    """Return whether a synchronisation of this name waits for the whole device."""
    return CONTEXT_SYNC.match(name) is not None


def is_stream_sync(name: str) -> bool:
    """Return whether a synchronisation of this name waits for its stream."""
    return STREAM_SYNC.match(name) is not None


def is_event_sync(name: str) -> bool:
    """Return whether with a synchronisation of this name the host waits for a recorded event."""
    return EVENT_SYNC.match(name) is not None


def is_stream_wait(name: str) -> bool:
    """Return whether with a synchronisation of this name a stream waits for a recorded event."""
    return STREAM_WAIT.match(name) is not None


@dataclass(frozen=True)
class Lanes:
    """The pairs of device and stream on which something ran, numbered."""

    devices: Ints
    streams: Ints
    keys: Ints

    @property
    def device(self) -> Ints:
        """The device of each lane."""
        return self.devices[self.keys // max(len(self.streams), 1)]

    def number(self, device: Ints, stream: Ints) -> Ints:
        """Return the lane of each device and stream, or -1."""
        known, keys = _lane_keys(self.devices, self.streams, device, stream)
        at, present = _position(self.keys, keys)
        return np.where(known & present, at, -1)


def _lanes(device: Ints, stream: Ints) -> Lanes:
    devices, streams = np.unique(device), np.unique(stream)
    _, keys = _lane_keys(devices, streams, device, stream)
    return Lanes(devices, streams, np.unique(keys))


def _lane_keys(devices: Ints, streams: Ints, device: Ints, stream: Ints) -> tuple[Flags, Ints]:
    of_device, device_known = _position(devices, device)
    of_stream, stream_known = _position(streams, stream)
    return device_known & stream_known, of_device * len(streams) + of_stream


def _position(values: Ints, wanted: Ints) -> tuple[Ints, Flags]:
    """Return where each wanted value stands among sorted ones, and whether it is there at all."""
    if not len(values):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), bool)
    at = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return at, values[at] == wanted


@dataclass(frozen=True)
class DeviceWork:
    """Device events in order of lane (device and stream) and start, and when each was launched."""

    rows: Ints
    lane: Ints
    start_ns: Ints
    end_ns: Ints
    launched_ns: Ints
    lanes: Lanes
    # Where each lane begins in the arrays above.
    first: Ints

    def last_launched(self, lane: Ints, before_ns: Ints) -> Ints:
        """Return the row of the last work put on each lane before each time, or -1."""
        at: Ints = _last_before(self.first, self.launched_ns, lane, before_ns)
        return np.where(at >= 0, np.append(self.rows, -1)[at], -1)

    def next_launched(self, lane: Ints, after_ns: Ints) -> Ints:
        """Return the row of the first work put on each lane after each time, or -1."""
        at: Ints = _first_after(self.first, self.launched_ns, lane, after_ns)
        return np.where(at >= 0, np.append(self.rows, -1)[at], -1)


@dataclass(frozen=True)
class Waits:
    """Pairs of rows: the device work waited for, and the waiting device work or host call."""

    work: Ints
    waiter: Ints


NO_WAITS = Waits(*[np.zeros(0, np.int64)] * 2)
NEVER = np.iinfo(np.int64).min


def device_work(columns: Columns, chosen: Flags) -> DeviceWork:
    """Return the chosen events that run on a device."""
    rows = np.flatnonzero(chosen)
    device, stream = columns["device"][rows], columns["stream"][rows]
    lanes = _lanes(device, stream)
    lane = lanes.number(device, stream)
    start = columns["start_ns"][rows]
    order = np.lexsort((start, lane))
    rows, lane, start = rows[order], lane[order], start[order]
    launch = columns["launch"][rows]
    called = np.where(launch >= 0, columns["start_ns"][np.maximum(launch, 0)], start)
    # Work of a lane runs in the order of its launches; a clock that disagrees does not change it.
    first = np.searchsorted(lane, np.arange(len(lanes.keys) + 1))
    launched: Ints = _raise_to(first, called)
    return DeviceWork(
        rows=rows,
        lane=lane,
        start_ns=start,
        end_ns=start + columns["dur_ns"][rows],
        launched_ns=launched,
        lanes=lanes,
        first=first,
    )


def find_recorded_waits(
    columns: Columns, work: DeviceWork, symbols: Symbols
) -> tuple[Waits, Waits]:
    """Return the waits of host calls and of device work, as the profiler recorded them."""
    syncs = np.flatnonzero((columns["kind"] == EventKind.SYNC) & (columns["launch"] >= 0))
    name = columns["name"][syncs]
    called = columns["start_ns"][columns["launch"][syncs]]
    lane = work.lanes.number(columns["device"][syncs], columns["stream"][syncs])
    recorded, recorded_ns = _records(columns, syncs, symbols)
    of_event = work.lanes.number(columns["device"][syncs], columns["wait_stream"][syncs])
    source = np.where(recorded, work.last_launched(of_event, recorded_ns), -1)
    by_event = np.isin(name, codes_of(symbols, is_event_sync))
    by_stream = np.isin(name, codes_of(symbols, is_stream_sync))
    source = np.where(by_stream, work.last_launched(lane, called), source)
    held = np.flatnonzero((by_event | by_stream) & (source >= 0))
    whole = np.flatnonzero(np.isin(name, codes_of(symbols, is_context_sync)))
    found, at = _of_context(work, columns["device"][syncs[whole]], called[whole])
    host = Waits(
        np.concatenate([source[held], found]),
        columns["launch"][syncs[np.concatenate([held, whole[at]])]],
    )
    joins = np.isin(name, codes_of(symbols, is_stream_wait))
    target = np.where(joins, work.next_launched(lane, called), -1)
    kept = np.flatnonzero((target >= 0) & (source >= 0))
    return host, Waits(source[kept], target[kept])


def _records(columns: Columns, syncs: Ints, symbols: Symbols) -> tuple[Flags, Ints]:
    """Return whether the event each synchronisation waits for was recorded in the
    trace, and when.
    """
    rows = np.flatnonzero(
        (columns["kind"] == EventKind.RUNTIME)
        & np.isin(columns["name"], codes_of(symbols, is_event_record))
    )
    wanted = columns["wait_correlation"][syncs]
    if not len(rows):
        return np.zeros(len(syncs), bool), wanted
    rows = rows[np.argsort(columns["correlation"][rows], kind="stable")]
    at, present = _position(columns["correlation"][rows], wanted)
    return present & (wanted >= 0), columns["start_ns"][rows[at]]


def _of_context(work: DeviceWork, device: Ints, called: Ints) -> tuple[Ints, Ints]:
    """Return the last work of every lane with new work since the device's last synchronisation."""
    moment = np.concatenate([work.launched_ns, called])
    is_call = np.arange(len(moment)) >= len(work.rows)
    order = np.lexsort((~is_call, moment))
    of_lanes = work.lanes.device
    devices, number = np.unique(np.concatenate([of_lanes, device]), return_inverse=True)
    of_lane, of_call = number[: len(of_lanes)], number[len(of_lanes) :]
    at, call = _collect(order, work.lane, of_lane, of_call, len(devices))
    return work.rows[at], call


def infer_waits(columns: Columns, work: DeviceWork, symbols: Symbols) -> tuple[Waits, Waits]:
    """Return the likely waits of host calls and of device work, by their
    times alone.
    """
    if not len(work.rows):
        return NO_WAITS, NO_WAITS
    return _host_waits(columns, work, symbols), _stream_waits(columns, work)


# A process uses a handful of streams; of more than this only the busiest are looked at.
MOST_LANES = 32
# Work that begins this soon, of the whole time it was late, after other work ended waited for it.
SOON = 0.05


def _stream_waits(columns: Columns, work: DeviceWork) -> Waits:
    """Work that began late, and soon after the last work launched before it elsewhere ended."""
    same_lane = np.append(False, work.lane[1:] == work.lane[:-1])
    before = np.where(same_lane, np.append(NEVER, work.end_ns[:-1]), NEVER)
    could = np.maximum(work.launched_ns, before)
    late = np.flatnonzero(
        (work.start_ns - could > LAUNCH_LATENCY_NS) & (columns["launch"][work.rows] >= 0)
    )
    start = work.start_ns[late]
    sooner = start - np.maximum(LAUNCH_LATENCY_NS, SOON * (start - could[late])).astype(np.int64)
    cause, ended = np.full(len(late), -1, np.int64), np.full(len(late), NEVER)
    device = work.lanes.device
    for lane in np.argsort(-np.diff(work.first), kind="stable")[:MOST_LANES]:
        asked = np.full(len(late), lane)
        last = work.last_launched(asked, work.launched_ns[late])
        end = columns["start_ns"][last] + columns["dur_ns"][last]
        better = (
            (last >= 0) & (end <= start) & (end >= sooner) & (end > np.maximum(ended, could[late]))
        )
        better &= (work.lane[late] != lane) & (device[work.lane[late]] == device[lane])
        cause, ended = np.where(better, last, cause), np.where(better, end, ended)
    found = cause >= 0
    return Waits(cause[found], work.rows[late[found]])


def _host_waits(columns: Columns, work: DeviceWork, symbols: Symbols) -> Waits:
    """Return blocking calls during which the last device work launched before them ended."""
    calls = np.flatnonzero(
        (columns["kind"] == EventKind.RUNTIME)
        & np.isin(columns["name"], codes_of(symbols, is_blocking_call))
    )
    by_end = np.argsort(work.end_ns, kind="stable")
    ends = work.end_ns[by_end]
    start = columns["start_ns"][calls]
    returned = start + columns["dur_ns"][calls]
    at = by_end[np.maximum(np.searchsorted(ends, returned, side="right") - 1, 0)]
    # A copy is launched by the very call that waits for it.
    waited = (work.end_ns[at] >= start) & (work.end_ns[at] <= returned)
    waited &= work.launched_ns[at] <= start
    return Waits(work.rows[at[waited]], calls[waited])


@njit(cache=True, nogil=True)
def _raise_to(first: Ints, called: Ints) -> Ints:
    raised = called.copy()
    for lane in range(len(first) - 1):
        for at in range(first[lane] + 1, first[lane + 1]):
            raised[at] = max(raised[at], raised[at - 1])
    return raised


@njit(cache=True, nogil=True)
def _last_before(first: Ints, launched: Ints, lane: Ints, before: Ints) -> Ints:
    found = np.full(len(lane), -1, np.int64)
    for k in range(len(lane)):
        if lane[k] >= 0:
            low, high = first[lane[k]], first[lane[k] + 1]
            at = low + np.searchsorted(launched[low:high], before[k]) - 1
            if at >= low:
                found[k] = at
    return found


@njit(cache=True, nogil=True)
def _first_after(first: Ints, launched: Ints, lane: Ints, after: Ints) -> Ints:
    found = np.full(len(lane), -1, np.int64)
    for k in range(len(lane)):
        if lane[k] >= 0:
            low, high = first[lane[k]], first[lane[k] + 1]
            at = low + np.searchsorted(launched[low:high], after[k], side="right")
            if at < high:
                found[k] = at
    return found


@njit(cache=True, nogil=True)
def _collect(
    order: Ints, lane: Ints, of_lane: Ints, of_call: Ints, devices: int
) -> tuple[Ints, Ints]:
    """Walk launches and calls in time; a call takes the last work of each changed lane."""
    works = len(lane)
    last = np.full(len(of_lane), -1, np.int64)
    changed = np.zeros(len(of_lane), np.bool_)
    head = np.full(devices, -1, np.int64)
    after = np.full(len(of_lane), -1, np.int64)
    # Each work is taken once at most, so the result is no longer than the work.
    found = np.empty(works, np.int64)
    calls = np.empty(works, np.int64)
    count = 0
    for k in range(len(order)):
        item = order[k]
        if item < works:
            own = lane[item]
            last[own] = item
            if not changed[own]:
                changed[own] = True
                after[own] = head[of_lane[own]]
                head[of_lane[own]] = own
            continue
        call = item - works
        own = head[of_call[call]]
        while own >= 0:
            found[count], calls[count] = last[own], call
            count += 1
            changed[own] = False
            own = after[own]
        head[of_call[call]] = -1
    return found[:count], calls[:count]
