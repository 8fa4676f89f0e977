"""The document of a diagnosis: what the command line, the API and the reports are made of."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from marey.app.diagnosis.workload_matrix import MetricSums
from marey.diagnose.clusters import ClusterReport
from marey.diagnose.diagnosis import Diagnosis
from marey.diagnose.findings import FaultFinding
from marey.diagnose.life import life_strip
from marey.diagnose.matrix import WorkloadMatrix
from marey.model.documents import Document
from marey.model.events import Event
from marey.model.faults import NOT_FAULTS
from marey.model.metrics import catalogue
from marey.model.times import format_time
from marey.model.workloads import Progress

EVENTS_SHOWN = 500
PROGRESS_SHOWN = 300


class DiagnosedWorkload(Document):
    """The workload that was diagnosed."""

    id: str
    name: str
    user: str
    project: str
    partition: str
    state: str
    # Why it waits or how it ended, in the scheduler's words; the code that its program ended with.
    reason: str
    exit_code: int | None
    submit: str | None
    start: str | None
    end: str | None
    gpus: list[str]
    hosts: list[str]
    attributes: dict[str, str]


class DiagnosedWindow(Document):
    """The window of a workload's life that was looked at."""

    from_: str = msgspec.field(name="from")
    to: str
    step_s: float
    samples: int


class FindingWindow(Document):
    """From when to when a finding holds."""

    from_: str = msgspec.field(name="from")
    to: str


class FindingEvidence(Document):
    """What was measured, against what it was compared with."""

    what: str
    value: float | None
    against: float | None
    unit: str
    # What "against" is: a limit, before, others, usual or capacity.
    reference: str


class DiagnosedFinding(Document):
    """What is wrong, on which GPUs, since when, how sure, and what to try."""

    kind: str
    # Whether something is wrong; not for "healthy", "waiting" and what cannot be told.
    fault: bool
    gpus: list[str]
    hosts: list[str]
    window: FindingWindow
    summary: str
    evidence: list[FindingEvidence]
    confidence: float
    next: str
    gpu_hours: float


class GpuCluster(Document):
    """GPUs that behave alike, and why they are together."""

    id: int
    gpus: list[str]
    why: str


class ClusteringMethod(Document):
    """How the clusters were made."""

    metric: str
    method: str
    criterion: str
    approximate: bool


class OutlyingSample(Document):
    """A sample that lies outside the cloud of all."""

    time: str
    gpu: str
    metrics: list[str]
    score: float


class LifePhase(Document):
    """A span of a workload's life."""

    phase: str
    from_: str = msgspec.field(name="from")
    to: str


class DiagnosedEvent(Document):
    """What happened to the workload, its GPUs or its hosts."""

    time: str
    kind: str
    host: str
    gpu: str
    value: float | None
    text: str


class DiagnosedProgress(Document):
    """What the workload said of itself."""

    time: str
    step: int | None
    throughput: float | None
    unit: str
    loss: float | None


class MetricMean(Document):
    """A metric over all samples of the window, to check the claims against."""

    metric: str
    unit: str
    mean: float | None
    min: float | None
    max: float | None


class UnjudgedFault(Document):
    """A kind of fault that could not be looked for, and why."""

    kind: str
    missing: list[str]
    why: str


class DiagnosisDocument(Document):
    """What is wrong with a workload, where, since when, and what to try."""

    workload: DiagnosedWorkload
    window: DiagnosedWindow | None
    verdict: str
    findings: list[DiagnosedFinding]
    # What could not be judged, for want of metrics, GPUs or nodes.
    unjudged: list[UnjudgedFault]
    clusters: list[GpuCluster]
    clustering: ClusteringMethod | None
    outliers: list[OutlyingSample]
    life: list[LifePhase]
    events: list[DiagnosedEvent]
    progress: list[DiagnosedProgress]
    metrics: list[MetricMean]


def document(
    matrix: WorkloadMatrix, diagnosis: Diagnosis, tally: MetricSums | None = None
) -> DiagnosisDocument:
    """Return the answer of ``marey diagnose --json``.

    ``docs/diagnosis.schema.json`` describes it.
    """
    return DiagnosisDocument(
        workload=_make_workload(matrix),
        window=_make_window(matrix),
        verdict=diagnosis.findings[0].summary,
        findings=[_make_finding(finding) for finding in diagnosis.findings],
        unjudged=[
            UnjudgedFault(one.kind.value, list(one.missing), one.why) for one in diagnosis.unjudged
        ],
        clusters=gpu_clusters(diagnosis.clusters),
        clustering=_make_clustering(diagnosis.clusters),
        outliers=[
            OutlyingSample(
                time=format_time(outlier.time_ms),
                gpu=outlier.gpu,
                metrics=list(outlier.metrics),
                score=round(outlier.score, 2),
            )
            for outlier in diagnosis.outliers
        ],
        life=[
            LifePhase(span.phase.value, format_time(span.from_ms), format_time(span.to_ms))
            for span in life_strip(matrix, diagnosis.findings)
        ],
        events=[_make_event(event) for event in matrix.events[:EVENTS_SHOWN]],
        progress=[_report(report) for report in _thin_progress(matrix.progress)],
        metrics=_compute_means(tally or _count_samples(matrix)),
    )


def _make_event(event: Event) -> DiagnosedEvent:
    return DiagnosedEvent(
        time=format_time(event.time_ms),
        kind=event.kind.value,
        host=event.host,
        gpu=event.gpu,
        value=event.value,
        text=event.text,
    )


def _report(report: Progress) -> DiagnosedProgress:
    return DiagnosedProgress(
        time=format_time(report.time_ms),
        step=report.step,
        throughput=report.throughput,
        unit=report.unit,
        loss=report.loss,
    )


def _thin_progress(progress: Sequence[Progress]) -> list[Progress]:
    """Return evenly spaced reports, the last one always among them."""
    every = -(-len(progress) // PROGRESS_SHOWN) or 1
    return list(progress[::-1][::every][::-1])


def _make_workload(matrix: WorkloadMatrix) -> DiagnosedWorkload:
    facts = matrix.facts
    return DiagnosedWorkload(
        id=facts.workload,
        name=facts.name,
        user=facts.user,
        project=facts.project,
        partition=facts.partition,
        state=facts.state,
        reason=facts.reason,
        exit_code=facts.exit_code,
        submit=_format_moment(facts.submit_ms),
        start=_format_moment(facts.start_ms),
        end=_format_moment(facts.end_ms),
        gpus=matrix.names,
        hosts=list(matrix.hosts or facts.nodes),
        attributes=dict(facts.attributes),
    )


def _format_moment(time_ms: int | None) -> str | None:
    return None if time_ms is None else format_time(time_ms)


def _make_window(matrix: WorkloadMatrix) -> DiagnosedWindow | None:
    if not len(matrix.time_ms):
        return None
    return DiagnosedWindow(
        from_=format_time(int(matrix.time_ms[0])),
        to=format_time(int(matrix.time_ms[-1]) + matrix.step_ms),
        step_s=matrix.step_ms / 1000,
        samples=len(matrix.time_ms),
    )


def _make_finding(finding: FaultFinding) -> DiagnosedFinding:
    return DiagnosedFinding(
        kind=finding.kind.value,
        fault=finding.kind not in NOT_FAULTS,
        gpus=list(finding.gpus),
        hosts=list(finding.hosts),
        window=FindingWindow(format_time(finding.from_ms), format_time(finding.to_ms)),
        summary=finding.summary,
        evidence=[
            FindingEvidence(
                e.what, _round_number(e.value), _round_number(e.against), e.unit, e.reference
            )
            for e in finding.evidence
        ],
        confidence=finding.confidence,
        next=finding.next,
        gpu_hours=finding.gpu_hours,
    )


def _round_number(value: float) -> float | None:
    return round(float(value), 3) if np.isfinite(value) else None


def gpu_clusters(report: ClusterReport | None) -> list[GpuCluster]:
    """Return the clusters of a report; none where nothing was clustered."""
    if report is None:
        return []
    return [GpuCluster(c.id, list(c.gpus), c.why) for c in report.clusters]


def _make_clustering(report: ClusterReport | None) -> ClusteringMethod | None:
    if report is None:
        return None
    return ClusteringMethod(report.metric, report.method, report.criterion, report.approximate)


def _count_samples(matrix: WorkloadMatrix) -> MetricSums:
    tally = MetricSums()
    for metric, values in matrix.columns.items():
        tally.add(metric, values.ravel())
    return tally


def _compute_means(tally: MetricSums) -> list[MetricMean]:
    """Return per metric the mean over all samples of the window, to check the claims against."""
    return [
        MetricMean(
            metric=metric,
            unit=catalogue()[metric].unit,
            mean=_round_number(total / count),
            min=_round_number(low),
            max=_round_number(high),
        )
        for metric, (total, count, low, high) in tally.metrics.items()
    ]
