"""The diagnosis of one workload: every judge in order, then what they agree on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from marey.diagnose.clusters import ClusterReport, cluster_gpus
from marey.diagnose.findings import Claim, Evidence, Finding, to_finding
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
from marey.diagnose.signals import Signals
from marey.model.faults import FaultKind
from marey.stats.outliers import mahalanobis

Judge = Callable[[Signals], Iterator[Claim]]

# In order of precedence: what stands earlier explains what a later one would see too.
JUDGES: tuple[Judge, ...] = (
    hardware.node_failure,
    hardware.xid,
    standstill.idle_session,
    standstill.stalled,
    standstill.idle_gpus,
    hardware.throttled_gpu,
    imbalance.biased_load,
    waiting.slow_gpu,
    waiting.slow_node,
    waiting.slow_fabric,
    alone.slow_alone,
    usage.memory_leak,
    imbalance.memory_imbalance,
    usage.input_bound,
    usage.oversized,
    usage.underused,
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
LEAST_MOMENTS = 2


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

    findings: tuple[Finding, ...]
    clusters: ClusterReport | None
    outliers: tuple[Outlier, ...]


def diagnose(matrix: WorkloadMatrix, *, metric: str | None = None) -> Diagnosis:
    """Run every analysis; what nobody finds fault with is called healthy."""
    if metric is None:
        metric = next((m for m in ("util", *matrix.columns) if m in matrix.columns), None)
    clusters = cluster_gpus(matrix, metric) if metric is not None else None
    return Diagnosis(find_faults(matrix), clusters, find_outliers(matrix))


def find_faults(matrix: WorkloadMatrix) -> tuple[Finding, ...]:
    """The faults, ranked by the GPU-hours at stake; ``healthy`` where there is none."""
    if len(matrix.time_ms) < LEAST_MOMENTS or not matrix.columns:
        return ()
    signals = Signals(matrix)
    claims: list[Claim] = []
    for judge in JUDGES:
        claims.extend(c for c in judge(signals) if not _explained(c, claims))
    # What nobody has a word for may still be far from well.
    claims = claims or list(unexplained.hardly_working(signals))
    if not claims:
        return (to_finding(matrix, _healthy(signals)),)
    found = [to_finding(matrix, claim) for claim in claims]
    return tuple(sorted(found, key=lambda f: -f.gpu_hours * f.confidence))


def _explained(claim: Claim, earlier: list[Claim]) -> bool:
    """Whether a cause that was found already accounts for most of the time of this claim."""
    return any(
        claim.kind in EXPLAINS.get(cause.kind, frozenset()) and _overlap(cause, claim) >= 0.5
        for cause in earlier
    )


def _overlap(cause: Claim, claim: Claim) -> float:
    both = min(cause.span[1], claim.span[1]) - max(cause.span[0], claim.span[0])
    return both / max(1, min(claim.span[1] - claim.span[0], cause.span[1] - cause.span[0]))


# GPUs that stand apart without a known cause: "healthy" is hardly more than a guess then.
STRANGE_SHARE = 0.5
ONE_NODE = (
    "Nothing to do. A node that was slow from the beginning cannot be told with one node only: "
    "compare with peers."
)


def _healthy(signals: Signals) -> Claim:
    minutes = len(signals.matrix.time_ms) * signals.matrix.step_ms / 60_000
    full = signals.has("util", "sm_active", "tensor_active", "power", "mem_used", "sm_clock")
    sure = (0.95 if full else 0.75) * (1.0 if minutes >= 20 else 0.6)
    summary, evidence, advice = _doubts(signals)
    return Claim(
        FaultKind.HEALTHY,
        np.ones(signals.count, bool),
        (0, len(signals.matrix.time_ms)),
        summary,
        evidence,
        sure * (STRANGE_SHARE if evidence else 1.0),
        0.0,
        advice,
    )


def _doubts(signals: Signals) -> tuple[str, tuple[Evidence, ...], str]:
    """What "nothing is wrong" rests on: what is odd without a cause, and what cannot be told."""
    strange = unexplained.strange_clusters(signals)
    if strange:
        return (
            "No known fault, but some GPUs behave unlike the others.",
            strange,
            "Look at the GPUs that stand apart; nothing that is known explains them.",
        )
    change = alone.lasting_change(signals)
    if change is not None:
        return (
            "No known fault, but all GPUs do less than before.",
            (change.evidence,),
            "Nothing tells whether the node got slower or the work changed: have the training "
            "script report its progress, or run it on another node.",
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
    """The samples of these metrics that lie outside the cloud, the farthest first."""
    present = tuple(m for m in metrics if m in matrix.columns)
    if len(present) < 2 or not len(matrix.time_ms):
        return ()
    points = np.stack([matrix.columns[m].ravel().astype(np.float64) for m in present], axis=1)
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
