"""Ranks that wait for something: for a slow GPU, a slow node, or the network."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from marey.diagnose.findings import Claim, Evidence
from marey.diagnose.judges.common_wait import (
    SLIGHT,
    activity_metric,
    find_common_wait,
    judge_waited_for_gpu,
)
from marey.diagnose.signals import Flags, Signals, quiet_median, runs
from marey.model.faults import FaultKind
from marey.model.metrics import catalogue

# The slow one keeps its kernels resident while the others' share of a step shrinks.
RESIDENT = 1.2
# A node that feeds its GPUs late leaves gaps that the others fill by spinning.
LATE = 0.9
LEAST_BLOCKS = 2
# Noise lifts a GPU above its peers now and then: one that is slow is so for half an hour in all,
# and for a fair share of the time since it began.
SLOW_BLOCKS, SLOW_SHARE = 6, 0.25
# A node that is late for less of the work than this, or for less than half an hour, and no longer,
# was late for a while.
LASTING_SHARE, LASTING_BLOCKS = 0.15, 6
PASSING = 0.55
# Twenty minutes without an end: longer than what others' work on a node usually takes.
GOES_ON_BLOCKS = 4
# A GPU that is only a little slow: how much busier than the others, of how many, for how long.
STEADY_EXCESS, STEADY_DEVIATIONS = 0.08, 5.0
STEADY_GPUS, STEADY_BLOCKS = 8, 6
# Communication-bound: activity falls at least this far while utilization stays.
FALLEN = 0.75
AT_USUAL = 0.85
FALLEN_BLOCKS = 3
WORKING_UTIL = 50.0
# What a plain fall is worth, and one that a slow GPU might be behind as well.
PLAIN, DOUBT = 0.85, 0.55
MAD_TO_DEVIATION = 1.4826

Floats = NDArray[np.float64]


def judge_slow_gpu(signals: Signals) -> Iterator[Claim]:
    """Find one GPU at full clocks whose multiprocessors are busy while all others wait."""
    if not signals.has("util") or signals.count < 4:
        return
    if not signals.has("sm_active"):
        wait = find_common_wait(signals)
        if wait is not None:
            yield from judge_waited_for_gpu(signals, wait)
        return
    active, util = signals.by_block("sm_active"), signals.by_block("util")
    usual = quiet_median(active, 0)
    peers = quiet_median(util, 0)
    # Peers spin at high utilization: where they are idle instead, it is the load that is uneven.
    resident = (active > RESIDENT * usual[None, :]) & (peers[None, :] >= WORKING_UTIL)
    resident &= util >= 0.95 * peers[None, :]
    slow = np.array([_is_lasting(flags) for flags in resident])
    if not slow.any():
        yield from _judge_slightly_slow_gpu(signals, active, util)
        return
    if slow.sum() > max(1, signals.count // 16):
        return
    spans = runs(resident[slow].any(axis=0), LEAST_BLOCKS)
    first, last = spans[0][0], spans[-1][1]
    own = float(quiet_median(active[slow][:, first:last]))
    others = float(quiet_median(active[~slow][:, first:last]))
    evidence = [Evidence("SM activity", own, others, "%", "others")]
    if signals.has("sm_clock"):
        clock = signals.by_block("sm_clock")[:, first:last]
        evidence.append(
            Evidence(
                "SM clock",
                float(quiet_median(clock[slow])),
                float(quiet_median(clock[~slow])),
                "MHz",
                "others",
            )
        )
    yield Claim(
        kind=FaultKind.SLOW_GPU,
        rows=slow,
        span=signals.columns_of(first, last),
        summary="This GPU takes longer for the same work at full clocks; all others wait for it.",
        evidence=tuple(evidence),
        confidence=0.93,
        lost=1.0 - min(1.0, others / own),
        next="Run a burn-in on it and compare with a neighbour; exclude it and have it replaced.",
    )


def _is_lasting(resident: Flags) -> bool:
    """Return whether a GPU is busier than its peers for long enough to be slow."""
    spans = runs(resident, LEAST_BLOCKS)
    if not spans:
        return False
    since = resident[spans[0][0] :]
    return bool(since.sum() >= min(SLOW_BLOCKS, len(resident)) and since.mean() >= SLOW_SHARE)


def _judge_slightly_slow_gpu(signals: Signals, active: Floats, util: Floats) -> Iterator[Claim]:
    """Judge a GPU that became a little slower, or was so all the time.

    Where work fell, only the blocks before and after say whether a GPU was always busier.
    """
    wait = find_common_wait(signals)
    if wait is None:
        yield from _judge_slow_gpu_steadily(signals, active, util)
    elif wait.slow_gpu is not None:
        yield from judge_waited_for_gpu(signals, wait)
    else:
        high = wait.fall.high
        yield from _judge_slow_gpu_steadily(signals, active[:, high], util[:, high])


def _judge_slow_gpu_steadily(signals: Signals, active: Floats, util: Floats) -> Iterator[Claim]:
    """Find one GPU alone that is a little busier than all others, nearly all the time.

    A little is what healthy GPUs differ by, too: it must be the only one, and far outside of what
    the others differ by.
    """
    peers = quiet_median(util, 0)
    working = peers >= WORKING_UTIL
    if signals.count < STEADY_GPUS or working.sum() < STEADY_BLOCKS:
        return
    beyond = active[:, working] / quiet_median(active, 0)[None, working] - 1.0
    excess = quiet_median(beyond, 1)
    excess[signals.idle_rows] = np.nan
    usual = float(quiet_median(excess))
    spread = MAD_TO_DEVIATION * float(quiet_median(np.abs(excess - usual)))
    order = np.argsort(np.nan_to_num(excess, nan=-1.0))
    first, second = int(order[-1]), int(order[-2])
    alone = excess[first] - excess[second] > STEADY_EXCESS / 2
    far = excess[first] - usual > max(STEADY_EXCESS, STEADY_DEVIATIONS * spread)
    steady = np.mean(beyond[first] > STEADY_EXCESS / 2) >= 0.6
    busy = float(quiet_median(util[first, working])) >= 0.95 * float(quiet_median(peers[working]))
    if not (alone and far and steady and busy):
        return
    own = float(quiet_median(active[first, working]))
    others = float(quiet_median(np.delete(active, first, 0)[:, working]))
    yield Claim(
        kind=FaultKind.SLOW_GPU,
        rows=np.arange(signals.count) == first,
        span=(signals.begin, len(signals.matrix.time_ms)),
        summary="This GPU is a little busier than all others nearly all the time: they seem to "
        "wait for it.",
        evidence=(Evidence("SM activity", own, others, "%", "others"),),
        confidence=0.65,
        lost=1.0 - min(1.0, others / own),
        next="Run a burn-in on it and compare with a neighbour.",
    )


def judge_slow_node(signals: Signals) -> Iterator[Claim]:
    """Find a node whose GPUs all have gaps while those of the other nodes wait busily."""
    matrix = signals.matrix
    if not signals.has("util") or len(matrix.hosts) < 2:
        return
    util = signals.by_block("util")
    by_host = np.stack(
        [quiet_median(util[signals.host_of == h], 0) for h in range(len(matrix.hosts))]
    )
    usual = quiet_median(by_host, 0)
    late = (by_host < LATE * usual[None, :]) & (usual[None, :] >= WORKING_UTIL)
    # Nearly idle is not late: those are unused GPUs, or the workload has ended there.
    late &= by_host >= 0.25 * usual[None, :]
    slow = np.array([bool(runs(flags, LEAST_BLOCKS)) for flags in late])
    if not slow.any() or slow.sum() * 2 > len(matrix.hosts):
        return
    for host in np.flatnonzero(slow):
        first, last, lasting = _find_lateness(late[host], usual >= WORKING_UTIL)
        own = float(quiet_median(by_host[host, first:last]))
        others = float(quiet_median(usual[first:last]))
        evidence = [Evidence("utilization", own, others, "%", "others")]
        evidence += _collect_host_evidence(signals, int(host), signals.columns_of(first, last))
        yield Claim(
            kind=FaultKind.SLOW_NODE,
            rows=signals.host_of == host,
            span=signals.columns_of(first, last),
            summary=f"Node {matrix.hosts[host]} feeds its GPUs late"
            + ("; the other nodes wait for it." if lasting else " for a while."),
            evidence=tuple(evidence),
            confidence=PASSING if not lasting else 0.93 if len(evidence) > 1 else 0.85,
            lost=1.0 - own / others,
            next="Look at the node's CPU load, memory and PCIe links; exclude it and compare.",
        )


def _find_lateness(late: Flags, working: Flags) -> tuple[int, int, bool]:
    """Return from when to when a node is late, and whether that lasts.

    It lasts if it is late most of that time and that is a fair share of the work, or if it has not
    ended yet. Otherwise only the longest stretch is reported: somebody else's work on the node, a
    slow file, an hour's backup look alike.
    """
    spans = runs(late, LEAST_BLOCKS)
    first, last = spans[0][0], spans[-1][1]
    goes_on = last >= len(late) and spans[-1][1] - spans[-1][0] >= GOES_ON_BLOCKS
    blocks = int(late[first:last].sum())
    lasts = blocks >= max(LASTING_BLOCKS, LASTING_SHARE * working.sum())
    if goes_on or (late[first:last].mean() >= 0.5 and lasts):
        return first, last, True
    first, last = max(spans, key=lambda span: span[1] - span[0])
    return first, last, False


def _collect_host_evidence(signals: Signals, host: int, span: tuple[int, int]) -> list[Evidence]:
    values = signals.matrix.host_columns.get("host_cpu")
    if values is None:
        return []
    own = float(quiet_median(values[host, span[0] : span[1]]))
    others = float(quiet_median(np.delete(values, host, 0)[:, span[0] : span[1]]))
    return (
        [Evidence("host CPU", own, others, "%", "others")]
        if own == own and own > 1.2 * others
        else []
    )


def judge_slow_fabric(signals: Signals) -> Iterator[Claim]:
    """Find several nodes whose ranks all wait in communication.

    Less work at the same utilization: a fall that all share and the network confirms, or one by so
    much that nothing else explains it.
    """
    activity = activity_metric(signals)
    if activity is None or not signals.has("util") or len(signals.matrix.hosts) < 2:
        return
    level = signals.common_by_block(activity)
    wait = find_common_wait(signals)
    if wait is not None and wait.is_network:
        now = float(quiet_median(level[wait.fall.low]))
        sure = activity == "tensor_active" and wait.fall.share > 1.0 - FALLEN
        yield _claim_slow_fabric(
            signals, wait.fall.span, (now, wait.fall.usual), PLAIN if sure else SLIGHT
        )
        return
    found = _find_fall(level, signals.common_by_block("util"))
    if found is None:
        return
    first, last, usual = found
    now = float(quiet_median(level[first:last]))
    # One slow GPU makes all others wait as well; without profiling metrics it is not excluded.
    confidence = PLAIN if activity == "tensor_active" else DOUBT
    yield _claim_slow_fabric(signals, (first, last), (now, usual), confidence)


def _claim_slow_fabric(
    signals: Signals, blocks: tuple[int, int], levels: tuple[float, float], confidence: float
) -> Claim:
    """Return the finding for these blocks, by what is done in them and what was usual."""
    now, usual = levels
    span = signals.columns_of(*blocks)
    evidence = [against_before(activity_metric(signals) or "", now, usual)]
    network = signals.matrix.host_columns.get("host_net_rx")
    if network is not None:
        carried = float(quiet_median(network[:, span[0] : span[1]]))
        before = float(quiet_median(network[:, signals.begin : span[0]]))
        if before == before:
            evidence.append(Evidence("network received", carried, before, "MB/s", "before"))
    return Claim(
        kind=FaultKind.SLOW_FABRIC,
        rows=~signals.idle_rows,
        span=span,
        summary="All ranks wait in communication between nodes; no single GPU or node is slower.",
        evidence=tuple(evidence),
        confidence=confidence,
        lost=1.0 - now / usual,
        next="Check the links and switches between these nodes (errors, speed, congestion) and "
        "where else the same switches are used.",
    )


def against_before(metric: str, now: float, before: float) -> Evidence:
    """Return a metric of all GPUs against what it was before."""
    known = catalogue()[metric]
    return Evidence(known.label, now, before, known.unit, "before")


def _find_fall(
    level: NDArray[np.float64], util: NDArray[np.float64]
) -> tuple[int, int, float] | None:
    """Find the blocks in which activity is far below its usual while utilization is not."""
    working = util >= WORKING_UTIL
    if working.sum() < FALLEN_BLOCKS + 1:
        return None
    usual = float(np.nanpercentile(level[working], 90))
    # Utilization while activity was at its usual: a job that does less of both has a phase.
    before = float(np.nanpercentile(util[working & (level >= AT_USUAL * usual)], 50))
    low: Flags = working & (level < FALLEN * usual) & (util >= 0.93 * before)
    # A single block may hold an evaluation; what stays low is not one.
    spans = runs(low, FALLEN_BLOCKS)
    if not spans:
        return None
    first, last = spans[0][0], spans[-1][1]
    return first, last, usual
