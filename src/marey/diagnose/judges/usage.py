"""How well the GPUs are used by what runs on them, and how memory develops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.diagnose.findings import Claim, Evidence
from marey.diagnose.signals import Signals, quiet_median
from marey.model.faults import FaultKind
from marey.model.times import HOUR_MS, MINUTE_MS

# Input-bound: low in this share of the time, again and again, all GPUs together.
STARVED_SHARE = (0.15, 0.85)
STARVED_CYCLES_PER_HOUR = 8.0
# Long pauses: at a standstill for this share, with a beat; evaluation and checkpoints are shorter.
PAUSED_SHARE = 0.2
PAUSED_CYCLES = 6
PAUSED_BEAT = 0.5
# Pauses that last longer than this on average may be anything that a host does now and then.
LONGEST_WAIT_MIN = 5.0
LEAK_PER_HOUR = 0.004
LEAK_MS = 30 * MINUTE_MS
LEAK_FIT = 0.9
# A slower leak needs hours of a straight line on nearly all GPUs: allocators wander as much.
SLOW_LEAK_PER_HOUR, SLOW_LEAK_MS = 0.0008, 3 * HOUR_MS
SLOW_LEAK_FIT, SLOW_LEAK_SHARE = 0.93, 0.8
UNDERUSED_UTIL = 60.0
UNDERUSED_SM = 32.0
UNDERUSED_TENSOR = 7.0
UNDERUSED_POWER = 0.33
OVERSIZED_UTIL = 35.0
OVERSIZED_MEMORY = 0.12


def judge_input_bound(signals: Signals) -> Iterator[Claim]:
    """Find utilization that rises and falls together and regularly on all GPUs: they
    wait for data.
    """
    if not signals.has("util"):
        return
    rows = ~signals.idle_rows
    util = quiet_median(signals.after_start("util")[rows], 0)
    util = util[~np.isnan(util)]
    if len(util) * signals.matrix.step_ms < 20 * MINUTE_MS:
        return
    top = float(np.percentile(util, 95))
    if top < 20.0:
        return
    hours = len(util) * signals.matrix.step_ms / HOUR_MS
    wait = _find_short_waits(util, top, hours, training=bool(signals.matrix.progress))
    wait = wait or _find_long_pauses(util, top, hours)
    if wait is None:
        return
    evidence = [
        Evidence("share of time with starved GPUs", 100 * wait.share, 100 * STARVED_SHARE[0], "%"),
        Evidence("waits per hour", wait.per_hour),
    ]
    cpu = signals.matrix.host_columns.get("host_cpu")
    if cpu is not None:
        evidence.append(Evidence("host CPU", float(quiet_median(cpu)), 50.0, "%"))
    yield Claim(
        kind=FaultKind.INPUT_BOUND,
        rows=rows,
        span=(signals.begin, len(signals.matrix.time_ms)),
        summary=wait.summary,
        evidence=tuple(evidence),
        confidence=wait.confidence,
        lost=wait.share,
        next="Give the data loader more workers and prefetching, move decoding off the critical "
        "path, or stage the data on local disks.",
    )


@dataclass(frozen=True, slots=True)
class WaitPattern:
    """How the GPUs wait: what share of the time, how often, and how sure that is."""

    share: float
    per_hour: float
    summary: str
    confidence: float


def _find_short_waits(
    util: NDArray[np.float64], top: float, hours: float, *, training: bool
) -> WaitPattern | None:
    starved = util < 0.6 * top
    share, begun = float(starved.mean()), _count_beginnings(starved)
    often = begun / hours >= STARVED_CYCLES_PER_HOUR
    if not STARVED_SHARE[0] <= share <= STARVED_SHARE[1] or not often:
        return None
    # People at a notebook come and go irregularly; a loader has a beat.
    if _measure_regularity(util) < (0.25 if training else 0.65):
        return None
    text = "The GPUs wait for data again and again."
    return WaitPattern(share, begun / hours, text, 0.93 if training else 0.8)


def _find_long_pauses(util: NDArray[np.float64], top: float, hours: float) -> WaitPattern | None:
    still = util < 0.25 * top
    share, begun = float(still.mean()), _count_beginnings(still)
    if not PAUSED_SHARE <= share <= STARVED_SHARE[1] or begun < PAUSED_CYCLES:
        return None
    if _measure_regularity(util) < PAUSED_BEAT:
        return None
    text = "The GPUs stand still in long, regular pauses: the host or the input holds them up."
    # An evaluation on the host or a slow checkpoint has a beat too, and is no wait for input.
    brief = 60 * share * hours / begun < LONGEST_WAIT_MIN
    return WaitPattern(share, begun / hours, text, 0.7 if brief else 0.55)


def _count_beginnings(flags: NDArray[np.bool_]) -> int:
    return int((np.diff(flags.astype(np.int8)) == 1).sum())


def _measure_regularity(values: NDArray[np.float64]) -> float:
    """Return the highest autocorrelation after the first dip: near 1 for a steady beat."""
    centred = values - values.mean()
    size = 1 << int(np.ceil(np.log2(2 * len(centred))))
    spectrum = np.fft.rfft(centred, size)
    correlation = np.fft.irfft(spectrum * np.conj(spectrum))[: len(centred) // 2]
    if correlation[0] <= 0:
        return 0.0
    correlation = correlation / correlation[0]
    dips = np.flatnonzero(correlation < 0.1)
    return float(correlation[dips[0] :].max()) if len(dips) else 0.0


def judge_memory_leak(signals: Signals) -> Iterator[Claim]:
    """Find memory that grows steadily on most GPUs and will run out."""
    if not signals.has("mem_used"):
        return
    memory = signals.by_block("mem_used")[:, 1:]
    if memory.shape[1] * signals.per_block * signals.matrix.step_ms < LEAK_MS:
        return
    hours = np.arange(memory.shape[1]) * signals.per_block * signals.matrix.step_ms / HOUR_MS
    slope, fit = _fit_trend(memory, hours)
    capacity = _find_capacity(signals, memory)
    growing = (slope > LEAK_PER_HOUR * capacity) & (fit >= LEAK_FIT) & ~signals.idle_rows
    used = ~signals.idle_rows
    slow = growing.sum() < max(1, 0.5 * used.sum())
    if slow:
        growing = (slope > SLOW_LEAK_PER_HOUR * capacity) & (fit >= SLOW_LEAK_FIT) & used
        lasted_ms = memory.shape[1] * signals.per_block * signals.matrix.step_ms
        if lasted_ms < SLOW_LEAK_MS or growing.sum() < max(2, SLOW_LEAK_SHARE * used.sum()):
            return
    rate = float(np.median(slope[growing]))
    last = np.nanmax(memory[growing], axis=1)
    left = float(np.median((capacity[growing] - last) / np.maximum(slope[growing], 1e-9)))
    known = all(gpu.memory_mib for gpu in signals.matrix.gpus)
    least = SLOW_LEAK_PER_HOUR if slow else LEAK_PER_HOUR
    yield Claim(
        kind=FaultKind.MEMORY_LEAK,
        rows=growing,
        span=(signals.begin, len(signals.matrix.time_ms)),
        summary=f"GPU memory grows by {rate:.0f} MiB an hour"
        + (f"; it is full in about {max(0.0, left):.1f} h." if known else "."),
        evidence=(Evidence("growth per hour", rate, least * float(np.median(capacity)), "MiB"),),
        confidence=0.65 if slow else 0.95 if float(np.median(fit[growing])) > 0.97 else 0.85,
        lost=0.01 if slow else 0.1,
        next="Look for tensors kept between steps (losses appended with their graph, caches, "
        "growing sequences); save a checkpoint before it runs out.",
    )


def _fit_trend(
    values: NDArray[np.float64], hours: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return slope per row and the share of the variance that a straight line explains."""
    known = ~np.isnan(values)
    n = np.maximum(known.sum(axis=1), 1)
    x = np.where(known, hours[None, :], 0.0)
    y = np.where(known, values, 0.0)
    dx = np.where(known, x - (x.sum(axis=1) / n)[:, None], 0.0)
    dy = np.where(known, y - (y.sum(axis=1) / n)[:, None], 0.0)
    sxx, sxy, syy = (dx * dx).sum(1), (dx * dy).sum(1), (dy * dy).sum(1)
    slope = sxy / np.maximum(sxx, 1e-12)
    fit = np.where(syy > 0, sxy**2 / np.maximum(sxx * syy, 1e-12), 0.0)
    return slope, fit


def _find_capacity(signals: Signals, memory: NDArray[np.float64]) -> NDArray[np.float64]:
    stated = np.array([gpu.memory_mib or np.nan for gpu in signals.matrix.gpus])
    return np.where(np.isnan(stated), np.nanmax(memory, axis=1) * 1.25, stated)


def judge_underused(signals: Signals) -> Iterator[Claim]:
    """Find GPUs that always run a kernel, and always a small one: they hardly work."""
    if not signals.has("util"):
        return
    rows = ~signals.idle_rows
    util = float(quiet_median(signals.after_start("util")[rows]))
    if not util >= UNDERUSED_UTIL:
        return
    evidence = [Evidence("utilization", util, UNDERUSED_UTIL, "%")]
    low: list[bool] = []
    for metric, label, limit in (
        ("sm_active", "SM activity", UNDERUSED_SM),
        ("tensor_active", "tensor activity", UNDERUSED_TENSOR),
    ):
        if signals.has(metric):
            value = float(quiet_median(signals.after_start(metric)[rows]))
            low.append(value < limit)
            evidence.append(Evidence(label, value, limit, "%"))
    confidence = 0.93
    if not low:
        share = signals.power_share
        if share is None:
            return
        value = float(quiet_median(share[rows, signals.begin :]))
        low.append(value < UNDERUSED_POWER)
        evidence.append(
            Evidence("share of the power between idle and the limit", 100 * value, 33.0, "%")
        )
        confidence = 0.75 if signals.knows_limits else 0.6
    if not all(low):
        return
    yield Claim(
        kind=FaultKind.UNDERUSED,
        rows=rows,
        span=(signals.begin, len(signals.matrix.time_ms)),
        summary="Utilization is high but SM activity is low: the kernels use little of each GPU.",
        evidence=tuple(evidence),
        confidence=confidence,
        lost=0.5,
        next="Use larger batches, mixed precision or compiled (fused) kernels; several such runs "
        "could share one GPU.",
    )


def judge_oversized(signals: Signals) -> Iterator[Claim]:
    """Find far more GPUs than the work can use: little memory, short bursts, long waits."""
    rows = ~signals.idle_rows
    if not signals.has("util", "mem_used") or rows.sum() < 2:
        return
    util = float(quiet_median(signals.after_start("util")[rows]))
    memory = quiet_median(signals.after_start("mem_used")[rows], 1)
    capacity = _find_capacity(signals, signals.by_block("mem_used"))[rows]
    known = all(gpu.memory_mib for gpu in signals.matrix.gpus)
    share = float(np.nanmedian(memory / capacity)) if known else float("nan")
    if not 2.0 <= util <= OVERSIZED_UTIL or (known and share > OVERSIZED_MEMORY):
        return
    if signals.has("sm_active"):
        active = float(quiet_median(signals.after_start("sm_active")[rows]))
        if active > 15.0:
            return
    evidence = [Evidence("utilization", util, OVERSIZED_UTIL, "%")]
    if known:
        evidence.append(Evidence("memory share", 100 * share, 100 * OVERSIZED_MEMORY, "%"))
    yield Claim(
        kind=FaultKind.OVERSIZED,
        rows=rows,
        span=(signals.begin, len(signals.matrix.time_ms)),
        summary=f"The work does not need {rows.sum()} GPUs: they are mostly idle and nearly empty.",
        evidence=tuple(evidence),
        confidence=0.92 if known else 0.6,
        lost=1.0 - util / 100.0,
        next="Run it on fewer or smaller GPUs; it will hardly be slower.",
    )
