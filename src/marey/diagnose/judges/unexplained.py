"""What no other judge has a word for: GPUs that hardly work, or behave unlike all the others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from marey.diagnose.clusters import cluster_gpus, rank_pattern
from marey.diagnose.findings import Claim, Evidence
from marey.diagnose.signals import Flags, Signals, quiet_median
from marey.model.faults import FaultKind
from marey.model.metrics import catalogue

# Below this share of the usual utilization, where the usual is work, a GPU hardly takes part.
HARDLY = 0.25
WORKING_UTIL = 40.0
# A cluster whose members' usual value is this far from the others' (as a share of the axis, or of
# the others' value where a metric has no fixed one) is no noise and no stage of a pipeline.
APART = 0.25
METRICS = ("util", "power")
LEAST_GPUS = 4


def hardly_working(signals: Signals) -> Iterator[Claim]:
    """Find GPUs that do a little now and then while the others work: as good as unused."""
    if not signals.has("util") or signals.count < LEAST_GPUS:
        return
    util = quiet_median(signals.after_start("util"), 1)
    usual = float(quiet_median(util))
    rows: Flags = util < HARDLY * usual
    if usual < WORKING_UTIL or not rows.any() or rows.sum() * 2 > signals.count:
        return
    yield Claim(
        kind=FaultKind.IDLE_GPUS,
        rows=rows,
        span=(signals.begin, len(signals.matrix.time_ms)),
        summary=f"{_capitalise(rank_pattern(signals.matrix.gpus, rows))} hardly work "
        "while the others are busy.",
        evidence=(Evidence("utilization", float(quiet_median(util[rows])), usual, "%"),),
        confidence=0.7,
        lost=float(rows.mean()) * (1.0 - float(quiet_median(util[rows])) / usual),
        next="See whether ranks run on these GPUs at all, and what they wait for; if nothing does, "
        "ask for fewer GPUs.",
    )


def strange_clusters(signals: Signals) -> tuple[Evidence, ...]:
    """Return groups of GPUs that stand apart in a metric, where nothing that is known
    explains it.
    """
    if signals.count < LEAST_GPUS:
        return ()
    found: list[Evidence] = []
    for metric in METRICS:
        if not signals.has(metric):
            continue
        report = cluster_gpus(signals.matrix, metric)
        known = catalogue()[metric]
        for cluster in report.clusters[1:]:
            inside = report.labels == cluster.id
            own = float(quiet_median(report.medians[inside]))
            rest = float(quiet_median(report.medians[~inside]))
            size = known.maximum - known.minimum if known.unit == "%" else abs(rest)
            if np.isfinite(own) and abs(own - rest) >= APART * max(size, 1e-9):
                what = f"{known.label} of {rank_pattern(signals.matrix.gpus, inside)}"
                found.append(Evidence(what, own, rest, known.unit))
    return tuple(found)


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]
