"""The diagnosis of one workload: every judge in order, then what they agree on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from marey.diagnose.clusters import ClusterReport, cluster_gpus
from marey.diagnose.findings import Claim, Evidence, FaultFinding, to_finding
from marey.diagnose.judges import (
    alone,
    hardware,
    imbalance,
    standstill,
    unexplained,
    usage,
    waiting,
)
from marey.diagnose.matrix import WorkloadMatrix
from marey.diagnose.outcome.last_moments import LAST_MS
from marey.diagnose.outcome.outcome import judge_outcome
from marey.diagnose.outcome.siblings import Sibling
from marey.diagnose.signals import Signals
from marey.diagnose.unjudged import Unjudged, find_unjudged
from marey.model.events import ClusterEventKind
from marey.model.faults import NOT_FAULTS, FaultKind
from marey.model.times import MINUTE_MS
from marey.stats.outliers import mahalanobis

Judge = Callable[[Signals], Iterator[Claim]]

# In order of precedence: what stands earlier explains what a later one would see too.
JUDGES: tuple[Judge, ...] = (
    hardware.judge_node_failure,
    hardware.judge_xid,
    standstill.judge_idle_session,
    standstill.judge_stalled,
    standstill.judge_idle_gpus,
    hardware.judge_throttled_gpu,
    imbalance.judge_biased_load,
    waiting.judge_slow_gpu,
    waiting.judge_slow_node,
    waiting.judge_slow_fabric,
    alone.judge_slow_alone,
    usage.judge_memory_leak,
    imbalance.judge_memory_imbalance,
    usage.judge_input_bound,
    usage.judge_oversized,
    usage.judge_underused,
)

K = FaultKind
# A cause is named once, not again under each of its symptoms.
EXPLAINS: dict[FaultKind, frozenset[FaultKind]] = {
    K.NODE_FAILURE: frozenset({K.SLOW_NODE, K.IDLE_GPUS, K.SLOW_FABRIC, K.STALLED}),
    K.STALLED: frozenset(
        {K.UNDERUSED, K.SLOW_FABRIC, K.SLOW_GPU, K.SLOW_NODE, K.INPUT_BOUND, K.OVERSIZED}
    ),
    K.IDLE_SESSION: frozenset({K.OVERSIZED, K.INPUT_BOUND, K.UNDERUSED, K.IDLE_GPUS}),
    K.IDLE_GPUS: frozenset({K.BIASED_LOAD, K.MEMORY_IMBALANCE, K.SLOW_NODE, K.OVERSIZED}),
    K.THROTTLED_GPU: frozenset({K.SLOW_GPU, K.SLOW_NODE, K.SLOW_FABRIC}),
    K.BIASED_LOAD: frozenset(
        {K.MEMORY_IMBALANCE, K.INPUT_BOUND, K.SLOW_GPU, K.SLOW_FABRIC, K.OVERSIZED}
    ),
    K.SLOW_GPU: frozenset({K.SLOW_FABRIC, K.SLOW_NODE}),
    K.SLOW_NODE: frozenset({K.SLOW_FABRIC, K.INPUT_BOUND, K.UNDERUSED}),
    K.SLOW_FABRIC: frozenset({K.UNDERUSED}),
    K.INPUT_BOUND: frozenset({K.OVERSIZED, K.SLOW_FABRIC}),
    K.OVERSIZED: frozenset({K.UNDERUSED}),
}
# What is less sure than this is a doubt, not a finding.
SURE = 0.6
LEAST_MOMENTS = 2
# Below this nothing but broken hardware is judged: a start looks like any fault.
LEAST_MS = 10 * MINUTE_MS
LEAST_JUDGED_MOMENTS = 8
SHORT_JUDGES: tuple[Judge, ...] = (hardware.judge_node_failure, hardware.judge_xid)
# What can lie behind an end: the cause is named, and the end becomes its evidence.
CAUSES_OF: dict[FaultKind, tuple[FaultKind, ...]] = {
    K.NODE_FAILURE: (K.NODE_FAILURE,),
    K.SCRIPT_ERROR: (K.NODE_FAILURE, K.XID, K.STALLED, K.MEMORY_LEAK),
    K.OUT_OF_MEMORY: (K.NODE_FAILURE, K.MEMORY_LEAK),
    K.TIME_LIMIT: (K.NODE_FAILURE, K.STALLED),
    K.CANCELLED: (K.NODE_FAILURE, K.STALLED),
}
# They make work late: behind a time limit they are named first.
DELAYS = (
    K.SLOW_GPU, K.THROTTLED_GPU, K.SLOW_NODE, K.SLOW_FABRIC, K.INPUT_BOUND, K.BIASED_LOAD,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outlier:
    """A sample far from the cloud that all samples of the workload make."""

    time_ms: int
    gpu: str
    metrics: tuple[str, ...]
    score: float


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that was found out about a workload, most costly first."""

    findings: tuple[FaultFinding, ...]
    clusters: ClusterReport | None
    outliers: tuple[Outlier, ...]
    # What could not be judged, for want of which metrics.
    unjudged: tuple[Unjudged, ...] = ()


def diagnose(
    matrix: WorkloadMatrix, *, metric: str | None = None, siblings: Sequence[Sibling] = ()
) -> Diagnosis:
    """Run every analysis; what nobody finds fault with is called healthy."""
    if metric is None:
        metric = next((m for m in ("util", *matrix.columns) if m in matrix.columns), None)
    clusters = cluster_gpus(matrix, metric) if metric is not None else None
    found = find_faults(matrix, siblings)
    return Diagnosis(found, clusters, find_outliers(matrix), find_unjudged(matrix))


def find_faults(
    matrix: WorkloadMatrix, siblings: Sequence[Sibling] = ()
) -> tuple[FaultFinding, ...]:
    """Return the findings: how it ended (or why it waits), then faults by GPU-hours at stake.

    Where nothing is, the only finding says so: ``healthy``, or that it cannot be known.
    """
    outcome = judge_outcome(matrix, siblings)
    faults = _judge_samples(matrix)
    if outcome is None:
        return faults or (_report_nothing_found(matrix),)
    causes = CAUSES_OF.get(outcome.kind, ())
    cause = next((f for f in faults if f.kind in causes and _reaches_end(f, matrix)), None)
    if cause is not None:
        reported = replace(cause, evidence=(*cause.evidence, *outcome.evidence))
        return (reported, *(f for f in faults if f is not cause))
    if outcome.kind in NOT_FAULTS:
        return (*faults, outcome)
    if outcome.kind is FaultKind.TIME_LIMIT:
        late = tuple(f for f in faults if f.kind in DELAYS)
        return (*late, outcome, *(f for f in faults if f not in late))
    return (outcome, *faults)


def _judge_samples(matrix: WorkloadMatrix) -> tuple[FaultFinding, ...]:
    """Return the faults that the samples show, most costly first; none for a few minutes of them.

    The first minutes of any work look like a fault: only dead nodes and driver errors are reported.
    """
    if len(matrix.time_ms) < LEAST_MOMENTS or not matrix.columns:
        return ()
    signals = Signals(matrix)
    short = is_short(matrix)
    claims: list[Claim] = []
    for judge in SHORT_JUDGES if short else JUDGES:
        claims.extend(c for c in judge(signals) if not _is_explained(c, claims))
    # What nobody has a word for may still be far from well.
    if not claims and not short:
        claims = list(unexplained.hardly_working(signals))
    found = [to_finding(matrix, claim) for claim in claims]
    return tuple(sorted(found, key=lambda f: -f.gpu_hours * f.confidence))


def is_short(matrix: WorkloadMatrix) -> bool:
    """Return whether there are too few minutes or moments of samples to judge by."""
    moments = len(matrix.time_ms)
    return moments * matrix.step_ms < LEAST_MS or moments < LEAST_JUDGED_MOMENTS


def _reaches_end(finding: FaultFinding, matrix: WorkloadMatrix) -> bool:
    """Return whether a fault was still there when the workload ended."""
    end_ms = matrix.facts.end_ms
    if end_ms is None:
        return True
    if finding.kind is FaultKind.XID:
        # An error that the work survived for long did not end it.
        times = [e.time_ms for e in matrix.events if e.kind is ClusterEventKind.XID]
        return any(end_ms - LAST_MS <= time_ms <= end_ms + MINUTE_MS for time_ms in times)
    return finding.to_ms >= end_ms - LAST_MS


def _report_nothing_found(matrix: WorkloadMatrix) -> FaultFinding:
    """Return "healthy", or that there is too little to say so."""
    if not matrix.columns or not len(matrix.time_ms):
        return _make_open_question(
            matrix,
            FaultKind.NOT_MEASURED,
            "No samples of this workload are stored in this window, so nothing can be said.",
            "Look at the sources page: its GPUs are not measured, or the samples are too old.",
        )
    if is_short(matrix):
        seconds = len(matrix.time_ms) * matrix.step_ms / 1000
        return _make_open_question(
            matrix,
            FaultKind.TOO_SHORT,
            f"Too short to tell: {seconds:.0f} seconds of samples, and at least "
            f"{LEAST_MS // MINUTE_MS} minutes are needed.",
            "Look again when it has run longer.",
        )
    signals = Signals(matrix)
    if not signals.has("util"):
        return _make_open_question(
            matrix,
            FaultKind.NOT_MEASURED,
            "The utilization of its GPUs is not measured, so whether it works cannot be said.",
            "Let the exporter measure utilization (DCGM_FI_DEV_GPU_UTIL or its like).",
        )
    return to_finding(matrix, _claim_healthy(signals))


def _make_open_question(
    matrix: WorkloadMatrix, kind: FaultKind, summary: str, advice: str
) -> FaultFinding:
    facts = matrix.facts
    times = matrix.time_ms
    begin = int(times[0]) if len(times) else facts.start_ms or facts.submit_ms or 0
    end = int(times[-1]) + matrix.step_ms if len(times) else facts.end_ms or facts.now_ms or begin
    return FaultFinding(
        kind=kind,
        gpus=tuple(matrix.names),
        hosts=matrix.hosts,
        from_ms=begin,
        to_ms=max(end, begin + 1),
        summary=summary,
        evidence=(),
        confidence=0.95,
        next=advice,
        gpu_hours=0.0,
    )


def _is_explained(claim: Claim, earlier: list[Claim]) -> bool:
    """Return whether a cause that was found already accounts for most of the time of this claim.

    A doubt explains nothing away that is surer than itself.
    """
    return any(
        claim.kind in EXPLAINS.get(cause.kind, frozenset())
        and (cause.confidence >= SURE or claim.confidence < SURE)
        and _measure_overlap(cause, claim) >= 0.5
        for cause in earlier
    )


def _measure_overlap(cause: Claim, claim: Claim) -> float:
    both = min(cause.span[1], claim.span[1]) - max(cause.span[0], claim.span[0])
    return both / max(1, min(claim.span[1] - claim.span[0], cause.span[1] - cause.span[0]))


# GPUs that stand apart without a known cause: "healthy" is hardly more than a guess then.
STRANGE_SHARE = 0.5
ONE_NODE = (
    "Nothing to do. A node that was slow from the beginning cannot be seen with one node only: "
    "compare with peers."
)


def _claim_healthy(signals: Signals) -> Claim:
    minutes = len(signals.matrix.time_ms) * signals.matrix.step_ms / 60_000
    full = signals.has("util", "sm_active", "tensor_active", "power", "mem_used", "sm_clock")
    sure = (0.95 if full else 0.75) * (1.0 if minutes >= 20 else 0.6)
    summary, evidence, advice = _collect_doubts(signals)
    return Claim(
        kind=FaultKind.HEALTHY,
        rows=np.ones(signals.count, bool),
        span=(0, len(signals.matrix.time_ms)),
        summary=summary,
        evidence=evidence,
        confidence=sure * (STRANGE_SHARE if evidence else 1.0),
        lost=0.0,
        next=advice,
    )


def _collect_doubts(signals: Signals) -> tuple[str, tuple[Evidence, ...], str]:
    """Return what "nothing is wrong" rests on: what is odd without a cause, and what cannot be
    told.
    """
    strange = unexplained.find_unexplained_clusters(signals)
    if strange:
        return (
            "No known fault, but some GPUs behave unlike the others.",
            strange,
            "Look at the GPUs that stand apart; nothing that is known explains them.",
        )
    change = alone.find_lasting_change(signals)
    if change is not None:
        return (
            "No known fault, but all GPUs do less than before.",
            (change.evidence,),
            "Nothing tells whether the node got slower or the work changed: have the training "
            "script report its progress, or run it on another node.",
        )
    idle = unexplained.find_unexplained_idle(signals)
    if idle is not None:
        return (
            f"No known fault, but {idle[0]}.",
            (idle[1],),
            "Samples do not say why: look at what the program does then, or request fewer GPUs.",
        )
    if len(signals.matrix.hosts) == 1 and signals.count > 1:
        return "Nothing is wrong.", (), ONE_NODE
    return "Nothing is wrong.", (), "Nothing to do."


OUTLIER_METRICS = ("util", "power")
MOST_OUTLIERS = 200


def find_outliers(
    matrix: WorkloadMatrix,
    metrics: tuple[str, ...] = OUTLIER_METRICS,
    *,
    significance: float = 0.001,
    robust: bool = True,
) -> tuple[Outlier, ...]:
    """Return the samples of these metrics that lie outside the cloud, the farthest first."""
    present = tuple(m for m in metrics if m in matrix.columns)
    if len(present) < 2 or not len(matrix.time_ms):
        return ()
    # Each metric lies together: the scores go column by column.
    points = np.stack([matrix.columns[m].ravel().astype(np.float64) for m in present]).T
    scores = mahalanobis(points, significance=significance, robust=robust)
    outside = np.flatnonzero(scores.outside)
    outside = outside[np.argsort(-scores.squared[outside], kind="stable")][:MOST_OUTLIERS]
    columns = len(matrix.time_ms)
    return tuple(
        Outlier(
            int(matrix.time_ms[i % columns]),
            matrix.gpus[i // columns].gpu,
            present,
            float(np.sqrt(scores.squared[i])),
        )
        for i in outside.tolist()
    )
