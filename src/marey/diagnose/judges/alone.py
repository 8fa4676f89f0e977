"""One node alone: there is no other to compare it with, so it is judged against its own past."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.diagnose.findings import Claim, Evidence
from marey.diagnose.judges.common_wait import activity_metric
from marey.diagnose.judges.waiting import FALLEN, LATE, WORKING_UTIL, against_before
from marey.diagnose.signals import Flags, Signals, quiet_median, runs
from marey.model.faults import FaultKind

# Shorter than this it may be an evaluation, or another part of the data.
LEAST_BLOCKS = 3
LEAST_BEFORE = 2
# Blocks before and after must hardly mix: a load that comes and goes has no beginning.
SEPARATED = 0.8
# The work itself is slower, and the host busier, by at least this much.
SLOWER = 0.9
BUSIER = 1.2
# Where only the host bears witness, the GPUs must have lost more than a load that varies.
FAR = 0.8


@dataclass(frozen=True, slots=True)
class Decline:
    """From some block on all GPUs do less than before: in gaps, or spinning at full utilization."""

    kind: FaultKind
    blocks: tuple[int, int]
    evidence: Evidence

    @property
    def share(self) -> float:
        """What is left of what they did before."""
        return self.evidence.value / self.evidence.against


def judge_slow_alone(signals: Signals) -> Iterator[Claim]:
    """Find the only node, or what connects its GPUs, to be slower than it was, and so the work."""
    change = find_lasting_change(signals)
    if change is None:
        return
    span = signals.columns_of(*change.blocks)
    slower, busier = _find_slower_work(signals, span), _find_busier_host(signals, span)
    if slower is None and (busier is None or change.share > FAR):
        return
    host = signals.matrix.hosts[0]
    late = change.kind is FaultKind.SLOW_NODE
    yield Claim(
        kind=change.kind,
        rows=~signals.idle_rows,
        span=span,
        summary=f"Node {host} feeds its GPUs later than it did before."
        if late
        else f"All GPUs of node {host} wait for each other longer than they did before.",
        evidence=tuple(e for e in (change.evidence, slower, busier) if e is not None),
        confidence=0.7 if slower is not None and busier is not None else 0.6,
        lost=1.0 - change.share,
        next="There is no other node to compare with: run it on another one. "
        + (
            "Look at what else uses this node's CPUs, memory and disks."
            if late
            else "Look at the links between its GPUs (NVLink, PCIe: errors, width, speed)."
        ),
    )


def find_lasting_change(signals: Signals) -> Decline | None:
    """Find when all GPUs of a one-node workload do less than before, for the rest of it or for
    long.
    """
    if len(signals.matrix.hosts) != 1 or not signals.has("util"):
        return None
    util = signals.common_by_block("util")
    found = _find_fall(util, util >= 0.25 * WORKING_UTIL, LATE)
    # Below that it is no training at full speed: serving follows its users, sessions their owner.
    if found is not None and found[2] >= WORKING_UTIL:
        first, last, before = found
        now = float(quiet_median(util[first:last]))
        return Decline(FaultKind.SLOW_NODE, (first, last), against_before("util", now, before))
    metric = activity_metric(signals)
    if metric is None:
        return None
    level = signals.common_by_block(metric)
    found = _find_fall(level, util >= WORKING_UTIL, FALLEN)
    if found is None:
        return None
    first, last, before = found
    now = float(quiet_median(level[first:last]))
    return Decline(FaultKind.SLOW_FABRIC, (first, last), against_before(metric, now, before))


def _find_fall(
    level: NDArray[np.float64], working: Flags, share: float
) -> tuple[int, int, float] | None:
    """Find the first long run of blocks below a share of what was before it, and what that was."""
    if working.sum() < LEAST_BLOCKS + LEAST_BEFORE:
        return None
    usual = float(np.nanpercentile(level[working], 90))
    for first, last in runs(working & (level < share * usual), LEAST_BLOCKS):
        before = level[:first][working[:first]]
        if len(before) < LEAST_BEFORE:
            continue
        least = float(np.nanpercentile(before, 100 * (1 - SEPARATED)))
        most = float(np.nanpercentile(level[first:last], 100 * SEPARATED))
        reference = float(quiet_median(before))
        if most < least and most < share * reference:
            return first, last, reference
    return None


def _find_slower_work(signals: Signals, span: tuple[int, int]) -> Evidence | None:
    """Return the speed that the training script reports, in the window and before it."""
    times = signals.matrix.time_ms
    begin, first, end = times[signals.begin], times[span[0]], times[span[1] - 1]
    reported = [p for p in signals.matrix.progress if p.throughput is not None]
    before = [p.throughput for p in reported if begin <= p.time_ms < first]
    during = [p.throughput for p in reported if first <= p.time_ms <= end]
    if len(before) < LEAST_BEFORE or len(during) < LEAST_BEFORE:
        return None
    usual = float(quiet_median(np.array(before, np.float64)))
    now = float(quiet_median(np.array(during, np.float64)))
    unit = reported[0].unit
    return Evidence("progress", now, usual, unit, "before") if now < SLOWER * usual else None


def _find_busier_host(signals: Signals, span: tuple[int, int]) -> Evidence | None:
    cpu = signals.matrix.host_columns.get("host_cpu")
    if cpu is None:
        return None
    now = float(quiet_median(cpu[0, span[0] : span[1]]))
    usual = float(quiet_median(cpu[0, signals.begin : span[0]]))
    return Evidence("host CPU", now, usual, "%", "before") if now > BUSIER * usual else None
