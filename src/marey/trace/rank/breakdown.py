"""Where a rank's device time went: compute, communication, copies, and idle by what it waits on.

The definitions are those of TraceLens: *busy* is the union of all device activity; *compute* the
union of kernels and memsets; communication is *exposed* where nothing computes meanwhile; copies
are exposed where neither computes nor communicates; *idle* is the rest of the span from the first
to the last device activity. What an idle device waited on is decided in ``idle``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.training.symbols import Symbols
from marey.model.training.traces import COMMUNICATION_KINDS, EventKind
from marey.stats.intervals import (
    Intervals,
    complement,
    cover,
    merge,
    subtract,
    unite,
)
from marey.trace.rank.host_work import host_time
from marey.trace.rank.idle import IdleTime, divide_idle

BREAKDOWN_COLUMNS = [
    "on_device",
    "start_ns",
    "dur_ns",
    "kind",
    "name",
    "stream",
    "launch",
    "step",
]


@dataclass(frozen=True)
class DeviceTime:
    """A rank's device activity as sets of intervals on its own clock."""

    compute: Intervals
    communication: Intervals
    memcpy: Intervals
    busy: Intervals
    exposed_communication: Intervals
    exposed_memcpy: Intervals
    # Idle, by what the device waited on.
    idle: IdleTime
    # The first and the last moment of device activity, of work shorter than the clock's tick too;
    # (0, 0) without any.
    span_ns: tuple[int, int] = (0, 0)


def device_time(
    events: pa.Table,
    symbols: Symbols,
    *,
    has_device: bool = True,
    only: NDArray[np.bool_] | None = None,
    around_ns: tuple[int, int] | None = None,
) -> DeviceTime:
    """Sort a rank's device activity into sets; ``events`` needs ``BREAKDOWN_COLUMNS``.

    ``only`` counts some rows of it; the table stays whole, because launches are row numbers.
    ``around_ns`` also tells what the device waited on before its first and after its last work.
    """
    column = {n: events[n].to_numpy(zero_copy_only=False) for n in BREAKDOWN_COLUMNS}
    if only is not None:
        column["on_device"] = column["on_device"] & only
    device, kind = column["on_device"], column["kind"]

    def of(*kinds: EventKind) -> Intervals:
        rows = device & np.isin(kind, kinds)
        return merge(column["start_ns"][rows], column["dur_ns"][rows])

    communication = of(*COMMUNICATION_KINDS)
    memcpy = of(EventKind.MEMCPY)
    rest = device & ~np.isin(kind, (*COMMUNICATION_KINDS, EventKind.MEMCPY))
    compute = merge(column["start_ns"][rest], column["dur_ns"][rest])
    busy = unite(compute, communication, memcpy)
    span = _find_span(column) if len(busy.start_ns) else (0, 0)
    lo, hi = around_ns or span
    gaps = find_gaps(busy, (min(lo, span[0]), max(hi, span[1])))
    host = host_time(column, symbols)
    return DeviceTime(
        compute=compute,
        communication=communication,
        memcpy=memcpy,
        busy=busy,
        exposed_communication=subtract(communication, compute),
        exposed_memcpy=subtract(memcpy, unite(compute, communication)),
        idle=divide_idle(column, gaps, host, has_device=has_device),
        span_ns=span,
    )


def _find_span(column: dict[str, NDArray[Any]]) -> tuple[int, int]:
    """Return from the first to the last moment of device activity; there must be some."""
    device = column["on_device"].astype(bool)
    start = column["start_ns"][device].astype(np.int64)
    return int(start.min()), int((start + column["dur_ns"][device]).max())


def find_gaps(busy: Intervals, around_ns: tuple[int, int] | None) -> Intervals:
    """Return when the device did nothing."""
    if not len(busy.start_ns):
        return busy
    lo, hi = int(busy.start_ns[0]), int(busy.end_ns[-1])
    if around_ns is not None:
        lo, hi = min(lo, around_ns[0]), max(hi, around_ns[1])
    return complement(busy, lo, hi)


class IdleRecord(TypedDict):
    """A window of ``BREAKDOWN`` without its length."""

    compute_ms: float
    comm_ms: float
    exposed_comm_ms: float
    hidden_comm_ms: float
    memcpy_ms: float
    exposed_memcpy_ms: float
    busy_ms: float
    idle_ms: float
    idle_input_ms: float
    idle_peers_ms: float
    idle_host_ms: float
    idle_start_ms: float
    idle_other_ms: float
    idle_unexplained_ms: float


class BreakdownRecord(IdleRecord):
    """One row of ``BREAKDOWN``."""

    span_ms: float


BREAKDOWN = pa.schema(
    [
        pa.field("span_ms", pa.float64()),
        pa.field("compute_ms", pa.float64()),
        pa.field("comm_ms", pa.float64()),
        pa.field("exposed_comm_ms", pa.float64()),
        pa.field("hidden_comm_ms", pa.float64()),
        pa.field("memcpy_ms", pa.float64()),
        pa.field("exposed_memcpy_ms", pa.float64()),
        pa.field("busy_ms", pa.float64()),
        pa.field("idle_ms", pa.float64()),
        pa.field("idle_input_ms", pa.float64()),
        pa.field("idle_peers_ms", pa.float64()),
        pa.field("idle_host_ms", pa.float64()),
        # Between two steps, and no data loading seen.
        pa.field("idle_start_ms", pa.float64()),
        # Launched in time and started within the usual latency; also after a step's last work.
        pa.field("idle_other_ms", pa.float64()),
        # What nothing in the recording accounts for.
        pa.field("idle_unexplained_ms", pa.float64()),
    ]
)


def breakdown_of(time: DeviceTime) -> BreakdownRecord:
    """Return the whole span of a rank as one row of ``BREAKDOWN``."""
    lo, hi = time.span_ns
    row: BreakdownRecord = breakdown_within(time, [lo], [hi]).to_pylist()[0]
    return row


def breakdown_within(time: DeviceTime, lo_ns: Any, hi_ns: Any) -> pa.Table:
    """Return one row of ``BREAKDOWN`` per window.

    Outside the span of activity a rank idles for others.
    """
    lo, hi = np.asarray(lo_ns, np.int64), np.asarray(hi_ns, np.int64)

    def ms(part: Intervals) -> NDArray[np.float64]:
        covered: NDArray[np.float64] = cover(part, lo, hi) / 1e6
        return covered

    span = (hi - lo) / 1e6
    comm, exposed, busy = ms(time.communication), ms(time.exposed_communication), ms(time.busy)
    why = time.idle
    named = [ms(why.input), ms(why.peers), ms(why.host), ms(why.start)]
    unexplained = ms(why.unexplained)
    idle = np.maximum(span - busy, 0.0)
    columns = [
        span,
        ms(time.compute),
        comm,
        exposed,
        comm - exposed,
        ms(time.memcpy),
        ms(time.exposed_memcpy),
        busy,
        idle,
        *named,
        np.maximum(idle - sum(named) - unexplained, 0.0),
        unexplained,
    ]
    return pa.table([pa.array(c, pa.float64()) for c in columns], schema=BREAKDOWN)
