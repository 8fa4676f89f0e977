"""The life of a workload as a strip: waiting, initialisation, training, pauses, stalls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from marey.diagnose.findings import FaultFinding
from marey.diagnose.matrix import WorkloadMatrix
from marey.diagnose.signals import IDLE_UTIL, Signals, quiet_median, runs
from marey.model.events import ClusterEventKind
from marey.model.faults import FaultKind
from marey.model.times import MINUTE_MS

# A standstill this long is no checkpoint any more.
STALL_MS = 10 * MINUTE_MS
# An evaluation whose end nobody reports is over when work is back, at the latest after this.
EVALUATION_LIMIT_MS = 15 * MINUTE_MS
BACK_AT_WORK = 0.9
# No GPU does more than this: the whole workload stands still (saving keeps a GPU a little busy).
STILL_UTIL = 2 * IDLE_UTIL


class Phase(StrEnum):
    """What a workload does for a while."""

    WAITING = "waiting"
    INITIALISATION = "initialisation"
    TRAINING = "training"
    EVALUATION = "evaluation"
    CHECKPOINT = "checkpoint"
    PAUSE = "pause"
    STALL = "stall"


@dataclass(frozen=True, slots=True)
class LifeSpan:
    """One phase, half-open."""

    phase: Phase
    from_ms: int
    to_ms: int


_CODES = tuple(Phase)


def life_strip(
    matrix: WorkloadMatrix, findings: Sequence[FaultFinding] = ()
) -> tuple[LifeSpan, ...]:
    """Return the phases in order of time; what the samples do not show is not claimed."""
    strip = list(_show_waiting(matrix))
    if not len(matrix.time_ms):
        return tuple(strip)
    codes = _code_phases(matrix, findings)
    edges = np.flatnonzero(np.diff(codes)) + 1
    for first, last in zip([0, *edges], [*edges, len(codes)], strict=True):
        to_ms = int(matrix.time_ms[last - 1]) + matrix.step_ms
        strip.append(LifeSpan(_CODES[codes[first]], int(matrix.time_ms[first]), to_ms))
    return tuple(strip)


def _show_waiting(matrix: WorkloadMatrix) -> Sequence[LifeSpan]:
    submit, start = matrix.facts.submit_ms, matrix.facts.start_ms
    if submit is None:
        return ()
    if start is None:
        start = int(matrix.time_ms[0]) if len(matrix.time_ms) else None
    return (LifeSpan(Phase.WAITING, submit, start),) if start is not None and start > submit else ()


def _code_phases(matrix: WorkloadMatrix, findings: Sequence[FaultFinding]) -> NDArray[np.int8]:
    time_ms, step = matrix.time_ms, matrix.step_ms
    codes = np.full(len(time_ms), _CODES.index(Phase.TRAINING), np.int8)
    begin = Signals(matrix).begin
    # The beginning is only seen where the window reaches back to the start.
    start = matrix.facts.start_ms
    if start is not None and time_ms[0] - start <= 2 * step + MINUTE_MS:
        codes[:begin] = _CODES.index(Phase.INITIALISATION)
    util = matrix.columns.get("util")
    if util is not None:
        _mark_standstills(matrix, codes, np.fmax.reduce(util, axis=0), begin)
        _mark_evaluations(matrix, codes, quiet_median(util, 0))
    for finding in findings:
        if finding.kind is FaultKind.STALLED:
            inside = (time_ms >= finding.from_ms) & (time_ms < finding.to_ms)
            codes[inside] = _CODES.index(Phase.STALL)
    return codes


def _mark_standstills(
    matrix: WorkloadMatrix, codes: NDArray[np.int8], busiest: NDArray[np.float32], begin: int
) -> None:
    saved = np.array([e.time_ms for e in matrix.events if e.kind is ClusterEventKind.CHECKPOINT])
    still = busiest < STILL_UTIL
    still[:begin] = False
    for first, last in runs(still, 1):
        from_ms = int(matrix.time_ms[first]) - matrix.step_ms
        to_ms = int(matrix.time_ms[last - 1]) + matrix.step_ms
        if to_ms - from_ms >= STALL_MS:
            phase = Phase.STALL
        elif ((saved >= from_ms - MINUTE_MS) & (saved <= to_ms)).any():
            phase = Phase.CHECKPOINT
        else:
            phase = Phase.PAUSE
        codes[first:last] = _CODES.index(phase)


def _mark_evaluations(
    matrix: WorkloadMatrix, codes: NDArray[np.int8], activity: NDArray[np.float64]
) -> None:
    working = activity[codes == _CODES.index(Phase.TRAINING)]
    usual = float(np.nanmedian(working)) if np.isfinite(working).any() else 0.0
    saved = sorted(e.time_ms for e in matrix.events if e.kind is ClusterEventKind.CHECKPOINT)
    for event in matrix.events:
        if event.kind is not ClusterEventKind.EVALUATION:
            continue
        first = int(np.searchsorted(matrix.time_ms, event.time_ms))
        limit = event.time_ms + EVALUATION_LIMIT_MS
        ends = [t for t in saved if event.time_ms < t <= limit]
        last = int(np.searchsorted(matrix.time_ms, ends[0] if ends else limit))
        if not ends:
            back = np.flatnonzero(activity[first + 1 : last] >= BACK_AT_WORK * usual)
            last = first + 1 + int(back[0]) if len(back) else last
        span = codes[first:last]
        span[span == _CODES.index(Phase.TRAINING)] = _CODES.index(Phase.EVALUATION)
