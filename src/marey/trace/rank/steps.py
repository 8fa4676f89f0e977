"""The steps of one rank: when each began and ended on its own clock, and how they vary."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np
import pyarrow as pa

from marey.model.training.symbols import Symbols
from marey.model.training.traces import EventKind
from marey.trace.rank.host_work import is_step_mark
from marey.trace.run.name_codes import codes_of

STEP_WINDOWS = pa.schema(
    [
        pa.field("step", pa.int32(), nullable=False),
        pa.field("start_ns", pa.int64(), nullable=False),
        pa.field("end_ns", pa.int64(), nullable=False),
    ]
)

STEP_COLUMNS = ["step", "start_ns", "dur_ns", "kind", "name", "on_device"]


def step_windows(events: pa.Table, symbols: Symbols) -> pa.Table:
    """Return one row per step of a rank's events, in time order.

    The profiler's own marks decide where they exist: a step lasts until the next one starts.
    Elsewhere a step spans the events that carry its number.
    """
    step = events["step"].to_numpy()
    start = events["start_ns"].to_numpy()
    end = start + events["dur_ns"].to_numpy()
    marks = np.isin(events["name"].to_numpy(), codes_of(symbols, is_step_mark))
    marks &= (events["kind"].to_numpy() == EventKind.ANNOTATION) & (step >= 0)
    marks &= ~events["on_device"].to_numpy(zero_copy_only=False)
    if marks.any():
        return _windows_of_marks(step[marks], start[marks], end[marks])
    return _windows_of_extents(step, start, end)


def _windows_of_marks(step: Any, start: Any, end: Any) -> pa.Table:
    # The same mark is also drawn on the device's lanes; the earliest is the host's.
    order = np.lexsort((start, step))
    numbers, first = np.unique(step[order], return_index=True)
    start, end = start[order][first], end[order][first]
    by_time = np.argsort(start, kind="stable")
    numbers, start, end = numbers[by_time], start[by_time], end[by_time]
    # Back-to-back marks leave a sliver between them that belongs to the step before it.
    if len(start) > 1:
        gap = start[1:] - end[:-1]
        typical = np.median(end - start)
        joined = (gap > 0) & (gap < 0.5 * typical)
        end[:-1] = np.where(joined, start[1:], end[:-1])
    return _table(numbers, start, end)


def _windows_of_extents(step: Any, start: Any, end: Any) -> pa.Table:
    known = step >= 0
    if not known.any():
        return STEP_WINDOWS.empty_table()
    step, start, end = step[known], start[known], end[known]
    order = np.argsort(step, kind="stable")
    numbers, first = np.unique(step[order], return_index=True)
    return _table(
        numbers,
        np.minimum.reduceat(start[order], first),
        np.maximum.reduceat(end[order], first),
    )


def _table(step: Any, start: Any, end: Any) -> pa.Table:
    return pa.table(
        [pa.array(step, pa.int32()), pa.array(start, pa.int64()), pa.array(end, pa.int64())],
        schema=STEP_WINDOWS,
    )


def window_span(windows: pa.Table) -> tuple[int, int] | None:
    """Return from the first step's start to the last one's end, or None without steps."""
    if not windows.num_rows:
        return None
    return int(windows["start_ns"].to_numpy().min()), int(windows["end_ns"].to_numpy().max())


class StepStatistics(TypedDict, total=False):
    """Count, mean, median, spread and extremes of step times; empty without steps."""

    count: int
    mean_ms: float
    median_ms: float
    p95_ms: float
    min_ms: float
    max_ms: float
    spread: float


def step_statistics(duration_ms: Any) -> StepStatistics:
    """Count, mean, median, spread and extremes of step times; empty without steps."""
    ms = np.asarray(duration_ms, float)
    if not len(ms):
        return {}
    return {
        "count": len(ms),
        "mean_ms": float(ms.mean()),
        "median_ms": float(np.median(ms)),
        "p95_ms": float(np.percentile(ms, 95)),
        "min_ms": float(ms.min()),
        "max_ms": float(ms.max()),
        # Robust: one long first step does not make a steady run look unsteady.
        "spread": float(np.median(np.abs(ms - np.median(ms))) / max(np.median(ms), 1e-12)),
    }
