"""What no other judge has a word for: GPUs that hardly work, or behave unlike all the others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from marey.diagnose.clusters import cluster_gpus, rank_pattern
from marey.diagnose.findings import Claim, Evidence
from marey.diagnose.signals import IDLE_UTIL, Flags, Signals, quiet_mean, quiet_median
from marey.model.faults import FaultKind
from marey.model.metrics import catalogue
from marey.model.times import MINUTE_MS

# Below this share of the usual utilization, where the usual is work, a GPU hardly takes part.
HARDLY = 0.25
WORKING_UTIL = 40.0
# A cluster whose members' usual value is this far from the others' (as a share of the axis, or of
# the others' value where a metric has no fixed one) is no noise and no stage of a pipeline.
APART = 0.25
METRICS = ("util", "power")
LEAST_GPUS = 4
# Evaluation, checkpoints and restarts leave GPUs idle for less than this share of the time.
IDLE_SHARE = 0.3
# Work that uses less than this on average may be well, but hardly needs these GPUs.
LITTLE_UTIL = 40.0
# Nothing at all for so long before the last sample is more than a pause.
STOPPED_MS = 30 * MINUTE_MS


def hardly_working(signals: Signals) -> Iterator[Claim]:
    """Find GPUs that do a little now and then while the others work: as good as unused."""
    if not signals.has("util") or signals.count < LEAST_GPUS:
        return
    util = quiet_median(signals.after_start("util"), 1)
    usual = float(quiet_median(util))
    # Of load that comes and goes the median says little: a GPU may be at work for half of the time.
    mean = quiet_mean(signals.after_start("util"), 1)
    rows: Flags = (util < HARDLY * usual) & (mean < HARDLY * float(quiet_median(mean)))
    if usual < WORKING_UTIL or not rows.any() or rows.sum() * 2 > signals.count:
        return
    yield Claim(
        kind=FaultKind.IDLE_GPUS,
        rows=rows,
        span=(signals.begin, len(signals.matrix.time_ms)),
        summary=f"{_capitalise(rank_pattern(signals.matrix.gpus, rows))} hardly work "
        "while the others are busy.",
        evidence=(Evidence("utilization", float(quiet_median(util[rows])), usual, "%", "others"),),
        confidence=0.7,
        lost=float(rows.mean()) * (1.0 - float(quiet_median(util[rows])) / usual),
        next="See whether ranks run on these GPUs at all, and what they wait for; if nothing does, "
        "ask for fewer GPUs.",
    )


def find_unexplained_clusters(signals: Signals) -> tuple[Evidence, ...]:
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
                found.append(Evidence(what, own, rest, known.unit, "others"))
    return tuple(found)


def find_unexplained_idle(signals: Signals) -> tuple[str, Evidence] | None:
    """Return how long GPUs in use did nothing, or how little they did; no judge says why."""
    if not signals.has("util"):
        return None
    util = signals.after_start("util")[~signals.idle_rows]
    if not util.size or np.isnan(util).all():
        return None
    idle = float((util < IDLE_UTIL)[~np.isnan(util)].mean())
    common = np.nanmax(np.nan_to_num(util, nan=-1.0), axis=0)
    working = np.flatnonzero(common >= IDLE_UTIL)
    still_ms = (len(common) - 1 - working[-1] if len(working) else len(common)) * (
        signals.matrix.step_ms
    )
    mean = float(np.nanmean(util))
    if still_ms >= STOPPED_MS:
        minutes = still_ms / MINUTE_MS
        return "its GPUs stand still at the end", Evidence("without work", minutes, unit="min")
    if idle >= IDLE_SHARE:
        share = Evidence("share of time without work", 100 * idle, 100 * IDLE_SHARE, "%")
        return "its GPUs often do nothing", share
    if mean < LITTLE_UTIL:
        return "it uses little of its GPUs", Evidence("mean utilization", mean, LITTLE_UTIL, "%")
    return None


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]
