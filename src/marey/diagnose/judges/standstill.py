"""Work that does not move: stalls, unused GPUs, sessions that nobody uses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from marey.diagnose.findings import Claim, Evidence
from marey.diagnose.signals import IDLE_UTIL, Flags, Signals, quiet_median, runs
from marey.model.faults import FaultKind
from marey.model.times import HOUR_MS, MINUTE_MS

SPIN_UTIL = 90.0
# A spinning collective computes nothing: at most this much tensor and memory activity.
SPIN_TENSOR = 0.5
SPIN_DRAM = 1.0
SPIN_COPY = 2.0
SPIN_POWER_SHARE = 0.2
STALL_MS = 8 * MINUTE_MS
SESSION_BUSY_SHARE = 0.08
SESSION_MS = 45 * MINUTE_MS


def judge_stalled(signals: Signals) -> Iterator[Claim]:
    """Find utilization near 100 % while nothing is computed, on nearly all GPUs."""
    if not signals.has("util"):
        return
    spinning, confidence = _find_spinning(signals)
    if spinning is None:
        return
    known = ~np.isnan(signals.matrix.columns["util"])
    rows_used = ~signals.idle_rows
    share = (spinning & known)[rows_used].sum(axis=0) / np.maximum(1, known[rows_used].sum(axis=0))
    least = max(2, round(STALL_MS / signals.matrix.step_ms))
    spans = [span for span in runs(share >= 0.9, least) if not _has_progressed(signals, span)]
    if not spans:
        return
    first, last = max(spans, key=lambda span: span[1] - span[0])
    rows = (spinning | ~known)[:, first:last].mean(axis=1) >= 0.9
    util = float(quiet_median(signals.matrix.columns["util"][rows, first:last]))
    evidence = [Evidence("utilization", util, SPIN_UTIL, "%")]
    evidence += _collect_activity(signals, rows, (first, last))
    yield Claim(
        kind=FaultKind.STALLED,
        rows=rows,
        span=(first, last),
        summary="The GPUs spin without computing: a collective that never completes.",
        evidence=tuple(evidence),
        confidence=confidence,
        lost=1.0,
        next="Stop it and restart from the last checkpoint; look for the rank that left the "
        "collective first (its log ends earliest) and set a collective timeout.",
    )


def _find_spinning(signals: Signals) -> tuple[Flags | None, float]:
    """Return which samples look like a spin, judged by the best of what there is."""
    columns = signals.matrix.columns
    busy = columns["util"] >= SPIN_UTIL
    share = signals.power_share
    if signals.has("tensor_active", "dram_active"):
        still = (columns["tensor_active"] <= SPIN_TENSOR) & (columns["dram_active"] <= SPIN_DRAM)
        return busy & still, 0.97 if share is not None else 0.9
    if share is None:
        return None, 0.0
    calm = share <= SPIN_POWER_SHARE
    confidence = 0.8 if signals.knows_limits else 0.6
    if signals.has("mem_copy"):
        return busy & calm & (columns["mem_copy"] <= SPIN_COPY), confidence + 0.1
    return busy & calm, confidence


def _has_progressed(signals: Signals, span: tuple[int, int]) -> bool:
    times = signals.matrix.time_ms
    # The first minutes may still see a report of a step made before.
    first = int(times[span[0]]) + 2 * MINUTE_MS
    steps = [
        p.step
        for p in signals.matrix.progress
        if p.step is not None and first <= p.time_ms <= int(times[span[1] - 1])
    ]
    return len(steps) > 1 and steps[-1] > steps[0]


def _collect_activity(signals: Signals, rows: Flags, span: tuple[int, int]) -> list[Evidence]:
    first, last = span
    found = []
    for metric, label, unit in (
        ("tensor_active", "tensor activity", "%"),
        ("power", "power", "W"),
        ("mem_copy", "memory-copy activity", "%"),
    ):
        if not signals.has(metric):
            continue
        values = signals.matrix.columns[metric][rows]
        before = values[:, signals.begin : first]
        usual = float(quiet_median(before)) if before.size else float("nan")
        now = float(quiet_median(values[:, first:last]))
        found.append(Evidence(label, now, usual, unit, "before"))
    return [e for e in found if e.against == e.against]


def judge_idle_gpus(signals: Signals) -> Iterator[Claim]:
    """Find GPUs of the allocation that never work while others do."""
    rows = signals.idle_rows
    if not rows.any():
        return
    util = signals.after_start("util")
    minutes = util.shape[1] * signals.matrix.step_ms / MINUTE_MS
    yield Claim(
        kind=FaultKind.IDLE_GPUS,
        rows=rows,
        span=(0, len(signals.matrix.time_ms)),
        summary=f"{rows.sum()} of {signals.count} GPUs have never been used.",
        evidence=(
            Evidence(
                "mean utilization",
                float(np.nanmean(util[rows])),
                float(np.nanmean(util[~rows])),
                "%",
                "others",
            ),
        ),
        confidence=0.97 if minutes >= 20 else 0.7,
        lost=float(rows.mean()),
        next="Ask for fewer GPUs, or start one process per GPU (check the launcher's world size).",
    )


def judge_idle_session(signals: Signals) -> Iterator[Claim]:
    """Find an allocation that is held for long and hardly used."""
    if not signals.has("util"):
        return
    util = signals.matrix.columns["util"]
    span_ms = len(signals.matrix.time_ms) * signals.matrix.step_ms
    known = ~np.isnan(util)
    busy = ((util >= IDLE_UTIL) & known).sum(axis=1) / np.maximum(1, known.sum(axis=1))
    if span_ms < SESSION_MS or busy.max() > SESSION_BUSY_SHARE:
        return
    yield Claim(
        kind=FaultKind.IDLE_SESSION,
        rows=np.ones(signals.count, bool),
        span=(0, len(signals.matrix.time_ms)),
        summary="The GPUs are allocated but hardly ever used.",
        evidence=(
            Evidence(
                "share of time in use", 100 * float(busy.max()), 100 * SESSION_BUSY_SHARE, "%"
            ),
            Evidence("held for", span_ms / HOUR_MS, SESSION_MS / HOUR_MS, "h"),
        ),
        confidence=0.95,
        lost=1.0 - float(busy.mean()),
        next="Release the session; run interactively on a smaller or shared GPU.",
    )
