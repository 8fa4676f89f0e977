"""Faults of the machine: dead nodes, driver errors, throttled clocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from marey.diagnose.findings import Claim, Evidence
from marey.diagnose.signals import Flags, Signals, quiet_median, runs
from marey.model.events import ClusterEventKind
from marey.model.faults import FaultKind
from marey.model.times import MINUTE_MS
from marey.model.workloads import WorkloadState

# A host whose GPUs are all silent this long, while others report, has gone.
SILENT_MS = 3 * MINUTE_MS
# Clocks below this share of the peers' (or the GPU's own best) are held down by something.
THROTTLED_SHARE = 0.85
BUSY_UTIL = 50.0


def judge_node_failure(signals: Signals) -> Iterator[Claim]:
    """Find a node that the scheduler called down, or that fell silent while others go on."""
    matrix = signals.matrix
    down_ms = {
        event.host: event.time_ms
        for event in matrix.events
        if event.kind is ClusterEventKind.NODE_DOWN and event.host in matrix.hosts
    }
    for row, host in enumerate(matrix.hosts):
        members = signals.host_of == row
        silent_from = _find_silence(signals, members)
        # The scheduler says that a node failed; with one node there is no question which.
        lone = len(matrix.hosts) == 1 and matrix.facts.state == WorkloadState.NODE_FAIL
        if host not in down_ms and silent_from is None and not lone:
            continue
        columns = len(matrix.time_ms)
        if host in down_ms:
            first = int(np.searchsorted(matrix.time_ms, down_ms[host]))
        else:
            first = silent_from if silent_from is not None else columns - 1
        first = min(first, columns - 1)
        minutes = (matrix.time_ms[-1] - matrix.time_ms[first]) / MINUTE_MS
        yield Claim(
            kind=FaultKind.NODE_FAILURE,
            rows=members,
            span=(first, columns),
            summary=f"Node {host} died or vanished; the workload cannot go on without its GPUs.",
            evidence=(Evidence("no samples of the node for", float(minutes), unit="min"),),
            confidence=0.97 if host in down_ms or lone else 0.8,
            lost=1.0,
            next="Restart from the last checkpoint without this node; have it drained and checked.",
        )


def _find_silence(signals: Signals, members: Flags) -> int | None:
    """Find the column from which on none of the members report while others do."""
    matrix = signals.matrix
    if not matrix.columns or members.all():
        return None
    reporting = signals.reported[members].sum(axis=0)
    own: Flags = np.asarray(reporting > 0)
    others: Flags = np.asarray(signals.reports > reporting)
    if not own.any() or own[-1]:
        return None
    last = int(np.flatnonzero(own)[-1]) + 1
    least = max(2, round(SILENT_MS / matrix.step_ms))
    return last if others[last:].sum() >= least else None


def judge_xid(signals: Signals) -> Iterator[Claim]:
    """Find errors that the driver reported for GPUs of the workload."""
    matrix = signals.matrix
    names = {gpu.gpu: row for row, gpu in enumerate(matrix.gpus)}
    found = [e for e in matrix.events if e.kind is ClusterEventKind.XID and e.gpu in names]
    if not found or not len(matrix.time_ms):
        return
    rows = np.zeros(signals.count, bool)
    for event in found:
        rows[names[event.gpu]] = True
    first = int(np.searchsorted(matrix.time_ms, min(e.time_ms for e in found)))
    first = min(first, len(matrix.time_ms) - 1)
    texts = sorted({e.text for e in found if e.text})
    yield Claim(
        kind=FaultKind.XID,
        rows=rows,
        span=(first, len(matrix.time_ms)),
        summary=f"The driver reported an error: {texts[0] if texts else 'XID'}.",
        evidence=tuple(Evidence(f"XID on {e.gpu}", e.value or 0.0) for e in found[:8]),
        confidence=0.99,
        lost=float(rows.mean()),
        next="Look the number up in the vendor's table; reset or replace the GPU if it comes back.",
    )


def judge_throttled_gpu(signals: Signals) -> Iterator[Claim]:
    """Find a busy GPU whose clock stays well below that of its peers."""
    if not signals.has("sm_clock", "util"):
        return
    clock, util = signals.by_block("sm_clock"), signals.by_block("util")
    busy = util >= BUSY_UTIL
    # Peers of the same model; a lone GPU is compared with its own best.
    models = np.array([gpu.model for gpu in signals.matrix.gpus])
    usual = np.full_like(clock, np.nan)
    for model in np.unique(models):
        same = models == model
        if same.sum() > 1:
            usual[same] = quiet_median(np.where(busy[same], clock[same], np.nan), 0)[None, :]
    own = np.nanmax(clock, axis=1, keepdims=True)
    usual = np.where(np.isnan(usual), own, np.maximum(usual, 0.9 * own))
    low = busy & (clock < THROTTLED_SHARE * usual)
    rows = np.array([bool(runs(flags, 2)) for flags in low])
    if not rows.any():
        return
    spans = runs(low[rows].any(axis=0), 2)
    first, last = spans[0][0], spans[-1][1]
    share = float(quiet_median((clock / usual)[rows][:, first:last]))
    evidence = [
        Evidence(
            "SM clock",
            float(quiet_median(clock[rows][:, first:last])),
            float(quiet_median(usual[rows][:, first:last])),
            "MHz",
            "usual",
        )
    ]
    if signals.has("temp") and not rows.all():
        temp = signals.by_block("temp")[:, first:last]
        evidence.append(
            Evidence(
                "temperature",
                float(quiet_median(temp[rows])),
                float(quiet_median(temp[~rows])),
                "°C",
                "others",
            )
        )
    yield Claim(
        kind=FaultKind.THROTTLED_GPU,
        rows=rows,
        span=signals.columns_of(first, last),
        summary="Clocks are throttled by heat or power; the other ranks wait for this GPU.",
        evidence=tuple(evidence),
        confidence=0.95,
        lost=1.0 - share,
        next="Check cooling, power cap and the node's inlet; "
        "exclude the node until it is repaired.",
    )
