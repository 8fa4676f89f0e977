"""What one rank contributes to a report: breakdown, steps, names, launches, memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.stats.intervals import Intervals, cover, intersect, merge
from marey.trace.rank.breakdown import (
    DeviceTime,
    IdleRecord,
    breakdown_of,
    breakdown_within,
    device_time,
)
from marey.trace.rank.kernel_tables import OPERATOR_COLUMNS, kernel_table, operator_table
from marey.trace.rank.launches import LaunchStatistics, launch_statistics
from marey.trace.rank.memory import DeviceMemory, memory_timeline
from marey.trace.rank.recompute import recomputed
from marey.trace.rank.steps import step_windows, window_span
from marey.trace.report.report_types import RankBreakdown, RankStepTimes
from marey.trace.run.trace_run import TraceRun

COLUMNS = [*OPERATOR_COLUMNS, "step"]


@dataclass(frozen=True)
class RankReport:
    """One rank, reduced to what a reader looks at."""

    rank: int
    host: str
    # Where a process drives several devices: which process, and which device.
    process: int | None
    device: int | None
    events: int
    device_events: int
    breakdown: RankBreakdown
    steps: list[RankStepTimes]
    kernels: pa.Table
    operators: pa.Table
    launches: LaunchStatistics
    memory: list[DeviceMemory]


@dataclass(frozen=True)
class CollectiveWaits:
    """How long a rank's communications waited for a late peer: row of the event, nanoseconds."""

    row: NDArray[np.int64]
    wait_ns: NDArray[np.int64]


NO_WAITS = CollectiveWaits(np.empty(0, np.int64), np.empty(0, np.int64))


def report_rank(run: TraceRun, rank: int, waits: CollectiveWaits = NO_WAITS) -> RankReport:
    """Read one rank once and let go of its events."""
    info = run.info(rank)
    events = run.events(rank, COLUMNS)
    windows = step_windows(events, run.symbols)
    time = device_time(
        events, run.symbols, has_device=info.has_device, around_ns=window_span(windows)
    )
    waiting = intersect(
        time.exposed_communication, merge(events["start_ns"].to_numpy()[waits.row], waits.wait_ns)
    )
    return RankReport(
        rank=rank,
        host=info.host,
        process=info.process if info.device is not None else None,
        device=info.device,
        events=events.num_rows,
        device_events=int(events["on_device"].to_numpy(zero_copy_only=False).sum()),
        breakdown={
            **breakdown_of(time),
            "exposed_wait_ms": waiting.total_ns / 1e6,
            "recompute_ms": _recompute_ms(events, run),
        },
        steps=_steps(windows, time, waiting),
        kernels=kernel_table(events, run.symbols),
        operators=operator_table(events, run.symbols),
        launches=launch_statistics(events),
        memory=memory_timeline(run.memory(rank)),
    )


def _steps(windows: pa.Table, time: DeviceTime, waiting: Intervals) -> list[RankStepTimes]:
    start, end = windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy()
    within = breakdown_within(time, start, end)
    spans: list[float] = within["span_ms"].to_pylist()
    parts: list[IdleRecord] = within.drop_columns("span_ms").to_pylist()
    waited = (cover(waiting, start, end) / 1e6).tolist()
    steps = zip(windows["step"].to_pylist(), spans, parts, waited, strict=True)
    return [
        {"step": step, "duration_ms": span, "exposed_wait_ms": wait, **part}
        for step, span, part, wait in steps
    ]


def _recompute_ms(events: pa.Table, run: TraceRun) -> float:
    rows = np.flatnonzero(recomputed(events, run.symbols))
    start, dur = events["start_ns"].to_numpy(), events["dur_ns"].to_numpy()
    return merge(start[rows], dur[rows]).total_ns / 1e6


# A row of a table of kernels or operators while it is added up.
Row = dict[str, Any]
_KEYS = ("name", "kind", "module")
_DROPPED = ("share", "mean_us")


def add_names(tables: list[pa.Table], by: str, limit: int) -> list[Any]:
    """Return the same table of every rank added up by name, the most costly ``limit``
    names first.
    """
    sums: dict[tuple[Any, ...], Row] = {}
    for table in tables:
        for row in table.to_pylist():
            key = tuple(row.get(k) for k in _KEYS)
            known = sums.setdefault(key, {k: row[k] for k in _KEYS if k in row})
            for name, value in row.items():
                if name not in _KEYS and name not in _DROPPED:
                    known[name] = _join_rows(name, known.get(name), value)
    # Where operators stand for the device they launch nothing: then their own time decides.
    rows = sorted(sums.values(), key=lambda row: (-row[by], -row.get("host_self_ms", 0.0)))
    if by == "total_ms":
        whole = max(sum(row["total_ms"] for row in rows), 1e-12)
        for row in rows:
            row["mean_us"] = 1e3 * row["total_ms"] / max(row["count"], 1)
            row["share"] = row["total_ms"] / whole
    return rows[:limit]


def _join_rows(name: str, known: Any, value: Any) -> Any:
    if known is None:
        return value
    if name.startswith("min_"):
        return min(known, value)
    return max(known, value) if name.startswith("max_") else known + value
