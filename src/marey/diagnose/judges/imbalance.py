"""Load and memory that are unevenly spread over ranks that should be alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.diagnose.findings import Claim, Evidence
from marey.diagnose.signals import Flags, Signals, quiet_mean, quiet_median
from marey.model.faults import FaultKind

# The first GPU of a node does at least this much more than its neighbours.
BIAS = 1.15
# A step in memory between ranks that no pipeline stage explains (stages differ by 10-20 %).
MEMORY_STEP = 1.3
LEAST_GPUS = 4
LEAST_UTIL = 10.0


def first_of_node(signals: Signals) -> Flags:
    """Return the GPU with the least local rank (else index) on every node."""
    gpus = signals.matrix.gpus
    first: dict[str, int] = {}
    for row, gpu in enumerate(gpus):
        place = gpu.local_rank if gpu.local_rank is not None else gpu.index
        best = first.get(gpu.host)
        if best is None:
            first[gpu.host] = row
            continue
        other = gpus[best].local_rank if gpus[best].local_rank is not None else gpus[best].index
        if place < (other if other is not None else 0):
            first[gpu.host] = row
    flags = np.zeros(len(gpus), bool)
    flags[list(first.values())] = True
    return flags


def judge_biased_load(signals: Signals) -> Iterator[Claim]:
    """Find the first GPU of every node working more, and holding more, than all the others."""
    if not signals.has("util") or signals.count < LEAST_GPUS:
        return
    masters = first_of_node(signals)
    if masters.sum() * 2 > signals.count:
        return
    util = quiet_mean(signals.after_start("util"), 1)
    if util[masters].mean() < LEAST_UTIL or not _stands_apart(util, masters, BIAS):
        return
    evidence = [
        Evidence(
            "mean utilization",
            float(util[masters].mean()),
            float(util[~masters].mean()),
            "%",
            "others",
        )
    ]
    confidence = 0.85
    if signals.has("mem_used"):
        memory = quiet_median(signals.after_start("mem_used"), 1)
        heavier = _stands_apart(memory, masters, 1.05)
        confidence = 0.97 if heavier else 0.75
        evidence.append(
            Evidence(
                "memory used",
                float(memory[masters].mean()),
                float(memory[~masters].mean()),
                "MiB",
                "others",
            )
        )
    yield Claim(
        kind=FaultKind.BIASED_LOAD,
        rows=masters,
        span=(signals.begin, len(signals.matrix.time_ms)),
        summary="The first GPU of every node carries more load than the others, which wait for it.",
        evidence=tuple(evidence),
        confidence=confidence,
        lost=1.0 - float(util[~masters].mean() / util[masters].mean()),
        next="Move work off local rank 0: replace DataParallel by DistributedDataParallel, spread "
        "evaluation, logging, loss and gathering of outputs over the ranks.",
    )


def _stands_apart(values: NDArray[Any], inside: Flags, factor: float) -> bool:
    """Return whether the least inside is clearly above the others' usual and nearly all of them."""
    others = values[~inside]
    return bool(
        values[inside].min() >= factor * np.nanmedian(others)
        and values[inside].min() >= np.nanpercentile(others, 95)
    )


def judge_memory_imbalance(signals: Signals) -> Iterator[Claim]:
    """Find ranks that hold far more memory than the rest."""
    used = ~signals.idle_rows
    if not signals.has("mem_used") or used.sum() < LEAST_GPUS:
        return
    memory = quiet_median(signals.after_start("mem_used"), 1)
    values = np.where(used, memory, np.nan)
    order = np.argsort(values)
    ranked = values[order][: int(np.isfinite(values).sum())]
    if len(ranked) < LEAST_GPUS or ranked[0] <= 0:
        return
    steps = ranked[1:] / ranked[:-1]
    at = int(np.argmax(steps)) + 1
    if steps[at - 1] < MEMORY_STEP:
        return
    rows = np.zeros(signals.count, bool)
    heavy_are_few = len(ranked) - at <= at
    rows[order[at : len(ranked)] if heavy_are_few else order[:at]] = True
    yield Claim(
        kind=FaultKind.MEMORY_IMBALANCE,
        rows=rows,
        span=(signals.begin, len(signals.matrix.time_ms)),
        summary=f"{rows.sum()} GPUs hold {'more' if heavy_are_few else 'less'} memory "
        "than their peers.",
        evidence=(
            Evidence(
                "memory used",
                float(np.nanmedian(values[rows])),
                float(np.nanmedian(values[used & ~rows])),
                "MiB",
                "others",
            ),
        ),
        confidence=0.92,
        lost=0.05,
        next="Check how data and parameters are sharded: uneven batches, a tensor kept "
        "on some ranks, or another process on the same GPU.",
    )
