"""Where every event belongs: the training step and the module that it is part of."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from marey.model.training.traces import NO_VALUE, EventKind
from marey.trace.readers.columns_in_progress import Work
from marey.trace.readers.thread_nesting import innermost

_STEP = re.compile(r"^ProfilerStep\s*#\s*([0-9]{1,9})\b")
_MODULE = "nn.Module: "


def is_step(name: str) -> bool:
    """Return whether an event of this name marks a step."""
    return _STEP.match(name) is not None


def number_steps(work: Work) -> None:
    """Return the step of host events by time, of device events by what launched them."""
    step = work.column("step")
    host = work.kinds(EventKind.ANNOTATION, EventKind.CPU_OP, EventKind.COMPUTE) & (
        work.columns["device"] < 0
    )
    rows = np.flatnonzero(host & work.names_where(is_step))
    if not len(rows):
        return
    starts, ends = work.start_ns[rows], work.start_ns[rows] + work.dur_ns[rows]
    first = np.searchsorted(work.start_ns, starts)
    # A step that has not ended when the next begins is cut there.
    last = np.searchsorted(work.start_ns, np.minimum(ends, np.append(starts[1:], ends[-1])))
    for row, low, high in zip(rows.tolist(), first.tolist(), last.tolist(), strict=True):
        step[low:high] = _step_number(work.name_of(row))
    follow_launch(work, step)
    step[_count_left_over(work)] = NO_VALUE


def _count_left_over(work: Work) -> npt.NDArray[np.bool_]:
    """Count device work launched before the recording began: its step is not in it."""
    linked = work.on_device & (work.columns["launch"] >= 0)
    first = np.full(len(work.raw.lanes), np.iinfo(np.int64).min)
    for_lane = work.lane[linked][::-1]
    # Rows are sorted by start, so that written backwards the earliest stays.
    first[for_lane] = work.start_ns[linked][::-1]
    left: npt.NDArray[np.bool_] = work.on_device & ~linked & (work.start_ns < first[work.lane])
    return left


def _step_number(name: str) -> int:
    found = _STEP.match(name)
    return min(int(found.group(1)), 2**31 - 1) if found else NO_VALUE


def follow_launch(work: Work, column: npt.NDArray[Any]) -> None:
    """Give device events the value of the event that launched them, where that has one."""
    rows = np.flatnonzero(work.on_device & (work.columns["launch"] >= 0))
    value = column[work.columns["launch"][rows]]
    column[rows[value != NO_VALUE]] = value[value != NO_VALUE]


def name_modules(work: Work) -> None:
    """Set the module of host events by the innermost ``nn.Module`` around them.

    Backward as forward.
    """
    rows = np.flatnonzero(work.names_where(lambda n: n.startswith(_MODULE)))
    hierarchy = work.args.get("Module Hierarchy")
    if not len(rows) and hierarchy is None:
        return
    module = work.column("module")
    if len(rows):
        own = work.symbols.add_all([work.raw.texts[c][len(_MODULE) :] for c in work.name[rows]])
        found = rows_around(work, rows)
        module[found >= 0] = own[found[found >= 0]]
    if hierarchy is not None:
        module[hierarchy.rows] = work.symbols.add_all([work.raw.texts[c] for c in hierarchy.values])
    forward = work.columns["forward"]
    backward = np.flatnonzero(forward >= 0)
    if len(backward):
        found = rows_around(work, backward)
        taken = np.flatnonzero((found >= 0) & (module < 0))
        module[taken] = module[forward[backward[found[taken]]]]
    follow_launch(work, module)


def rows_around(work: Work, owners: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return for every row the position in ``owners`` of the innermost one around its
    start, or -1.
    """
    start = work.start_ns[owners]
    spans = (work.lane[owners], start, start + work.dur_ns[owners])
    return innermost(spans, work.lane, work.start_ns)
