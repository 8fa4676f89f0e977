"""Where a rank's device time went: compute, communication, copies, and idle by what it waits on.

The definitions are those of TraceLens: *busy* is the union of all device activity; *compute* the
union of kernels and memsets; communication is *exposed* where nothing computes meanwhile; copies
are exposed where neither computes nor communicates; *idle* is the rest of the span from the first
to the last device activity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.traces import COMMUNICATION_KINDS, EventKind
from marey.trace.activity import is_input
from marey.trace.intervals import (
    Intervals,
    complement,
    cover,
    intersect,
    merge,
    subtract,
    unite,
)
from marey.trace.kernels import is_communication_call
from marey.trace.name_codes import codes_of
from marey.trace.symbols import Symbols

BREAKDOWN_COLUMNS = ["on_device", "start_ns", "dur_ns", "kind", "name", "launch", "step"]
_HOST_WAITS = (EventKind.CPU_OP, EventKind.ANNOTATION, EventKind.PYTHON, *COMMUNICATION_KINDS)


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
    idle_input: Intervals
    idle_peers: Intervals
    idle_host: Intervals
    idle_other: Intervals

    @property
    def span_ns(self) -> tuple[int, int]:
        """The first and the last moment of device activity; (0, 0) without any."""
        if not len(self.busy.start_ns):
            return 0, 0
        return int(self.busy.start_ns[0]), int(self.busy.end_ns[-1])


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
    gaps = _gaps(busy, around_ns)
    starved = _starved(column, gaps) if has_device else np.ones(len(gaps.start_ns), bool)
    input_, peers, host, other = _idle(column, gaps, starved, symbols)
    return DeviceTime(
        compute=compute,
        communication=communication,
        memcpy=memcpy,
        busy=busy,
        exposed_communication=subtract(communication, compute),
        exposed_memcpy=subtract(memcpy, unite(compute, communication)),
        idle_input=input_,
        idle_peers=peers,
        idle_host=host,
        idle_other=other,
    )


def _gaps(busy: Intervals, around_ns: tuple[int, int] | None) -> Intervals:
    """When the device did nothing."""
    if not len(busy.start_ns):
        return busy
    lo, hi = int(busy.start_ns[0]), int(busy.end_ns[-1])
    if around_ns is not None:
        lo, hi = min(lo, around_ns[0]), max(hi, around_ns[1])
    return complement(busy, lo, hi)


def _idle(
    column: dict[str, NDArray[Any]],
    gaps: Intervals,
    starved: NDArray[np.bool_],
    symbols: Symbols,
) -> tuple[Intervals, Intervals, Intervals, Intervals]:
    """The gaps, split by what the device waited on: input, peers, host, other."""
    hosts_fault = Intervals(gaps.start_ns[starved], gaps.end_ns[starved])
    other = Intervals(gaps.start_ns[~starved], gaps.end_ns[~starved])
    fetching = _host_events(column, codes_of(symbols, is_input))
    talking = _host_events(column, codes_of(symbols, is_communication_call))
    input_ = intersect(hosts_fault, fetching)
    peers = subtract(intersect(hosts_fault, talking), fetching)
    return input_, peers, subtract(hosts_fault, unite(fetching, talking)), other


def _starved(column: dict[str, NDArray[Any]], gaps: Intervals) -> NDArray[np.bool_]:
    """Which gaps end with work that the host had not yet launched when the device fell idle."""
    rows = np.flatnonzero(column["on_device"])
    starts = column["start_ns"][rows]
    if not len(rows):
        return np.zeros(len(gaps.start_ns), bool)
    order = np.argsort(starts, kind="stable")
    at = np.searchsorted(starts[order], gaps.end_ns)
    following = rows[order[np.minimum(at, len(rows) - 1)]]
    launch = column["launch"][following]
    launched_ns = np.where(launch >= 0, column["start_ns"][np.maximum(launch, 0)], -1)
    # After the last work nothing follows, and nobody is known to have been waited for.
    late: NDArray[np.bool_] = (launched_ns >= gaps.start_ns) & (at < len(rows))
    return late


def _host_events(column: dict[str, NDArray[Any]], codes: NDArray[np.int32]) -> Intervals:
    rows = np.isin(column["name"], codes) & np.isin(column["kind"], _HOST_WAITS)
    rows &= ~column["on_device"]
    return merge(column["start_ns"][rows], column["dur_ns"][rows])


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
        pa.field("idle_other_ms", pa.float64()),
    ]
)


def breakdown_of(time: DeviceTime) -> dict[str, float]:
    """The whole span of a rank as one row of ``BREAKDOWN``."""
    lo, hi = time.span_ns
    row: dict[str, float] = breakdown_within(time, [lo], [hi]).to_pylist()[0]
    return row


def breakdown_within(time: DeviceTime, lo_ns: Any, hi_ns: Any) -> pa.Table:
    """One row of ``BREAKDOWN`` per window; outside the span of activity a rank idles for others."""
    lo, hi = np.asarray(lo_ns, np.int64), np.asarray(hi_ns, np.int64)

    def ms(part: Intervals) -> NDArray[np.float64]:
        covered: NDArray[np.float64] = cover(part, lo, hi) / 1e6
        return covered

    span = (hi - lo) / 1e6
    comm, exposed, busy = ms(time.communication), ms(time.exposed_communication), ms(time.busy)
    named = [ms(time.idle_input), ms(time.idle_peers), ms(time.idle_host)]
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
        np.maximum(idle - sum(named), 0.0),
    ]
    return pa.table([pa.array(c, pa.float64()) for c in columns], schema=BREAKDOWN)
