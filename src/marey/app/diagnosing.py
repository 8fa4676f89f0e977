"""Diagnosis of a stored workload: reads the store, feeds the analyses, gives one document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from marey.app.questions import query_of
from marey.app.selecting import Span, Wanted, resolve
from marey.app.workspace import Workspace
from marey.diagnose.clusters import ClusterReport
from marey.diagnose.diagnosis import Diagnosis, diagnose
from marey.diagnose.findings import Finding
from marey.diagnose.life import life_strip
from marey.diagnose.matrix import (
    Context,
    GpuFacts,
    WorkloadFacts,
    WorkloadMatrix,
    build_matrix,
)
from marey.model.errors import InvalidInput, TooLarge
from marey.model.events import Event, EventKind
from marey.model.metrics import Entity, catalogue
from marey.model.names import DEFAULT_CLUSTER, parse_gpu_id
from marey.model.samples import SampleBatch
from marey.model.times import MINUTE_MS, format_time
from marey.model.workloads import Progress

# Values held at once: about 1 GB as float32 with what the analyses make of them.
VALUES_LIMIT = 120_000_000
EVENTS_LIMIT = 10_000
EVENTS_SHOWN = 500
PROGRESS_SHOWN = 300
GPU_METRICS = tuple(
    name
    for name, metric in catalogue().items()
    if metric.entity is Entity.GPU and metric.kind == "gauge" and metric.derived is None
)
HOST_METRICS = tuple(n for n, m in catalogue().items() if m.entity is Entity.HOST)


@dataclass(frozen=True)
class AskDiagnosis:
    """What is wrong with a workload, where, since when, and what to try."""

    workload: str
    cluster: str = DEFAULT_CLUSTER
    from_ms: int | None = None
    to_ms: int | None = None
    metric: str = ""

    def ask(self, workspace: Workspace) -> dict[str, Any]:
        """The diagnosis as a JSON document."""
        tally = Tally()
        matrix = load_matrix(workspace, self, tally=tally)
        if self.metric and self.metric not in matrix.columns:
            listed = ", ".join(matrix.columns) or "none at all"
            raise InvalidInput(
                f"Workload '{self.workload}' has no samples of '{self.metric}'; it has: {listed}."
            )
        return document(matrix, diagnose(matrix, metric=self.metric or None), tally)

    def path(self) -> str:
        """Where the API answers it."""
        return "/diagnosis"

    def query(self) -> dict[str, str]:
        """The parameters of that request."""
        return query_of(self)


class Asked(Protocol):
    """A workload and a window of its life."""

    @property
    def workload(self) -> str:
        """The workload's id."""

    @property
    def cluster(self) -> str:
        """Where it runs."""

    @property
    def from_ms(self) -> int | None:
        """The begin of the window."""

    @property
    def to_ms(self) -> int | None:
        """The end of the window, not in it."""


def load_matrix(
    workspace: Workspace,
    asked: Asked,
    metrics: Sequence[str] = GPU_METRICS,
    host_metrics: Sequence[str] = HOST_METRICS,
    *,
    tally: Tally | None = None,
) -> WorkloadMatrix:
    """A workload's samples and all that stands beside them, over the window asked for."""
    workspace.check_cluster(asked.cluster)
    wanted = Wanted(GPU_METRICS[:1], asked.cluster, asked.workload, (), asked.from_ms, asked.to_ms)
    record = workspace.store.workload(asked.cluster, asked.workload)
    span = resolve(workspace.store, wanted, workspace.now_ms())
    context = _context(workspace, record, span)
    return build_matrix(
        context,
        _bounded(workspace.store.scan(span.selection(metrics)), tally),
        _bounded(workspace.store.scan(span.selection(host_metrics, Entity.HOST)))
        if host_metrics
        else (),
    )


@dataclass(slots=True)
class Tally:
    """Sum, count, least and greatest of every metric over the samples as they were stored.

    The matrix keeps one sample per step of its grid; a mean that is to be checked needs them all.
    """

    metrics: dict[str, tuple[float, int, float, float]] = field(default_factory=dict)

    def add(self, metric: str, values: NDArray[np.float32]) -> None:
        """Count these samples in."""
        known = values[~np.isnan(values)]
        if not len(known):
            return
        total, count, low, high = self.metrics.get(metric, (0.0, 0, np.inf, -np.inf))
        self.metrics[metric] = (
            total + float(known.sum(dtype=np.float64)),
            count + len(known),
            min(low, float(known.min())),
            max(high, float(known.max())),
        )


def _bounded(batches: Iterator[SampleBatch], tally: Tally | None = None) -> Iterator[SampleBatch]:
    values = 0
    for batch in batches:
        present = {
            name: column for name, column in batch.columns.items() if not np.isnan(column).all()
        }
        values += len(batch) * len(present)
        if values > VALUES_LIMIT:
            raise TooLarge(
                f"The window holds more than {VALUES_LIMIT} values; ask for a shorter one."
            )
        if tally is not None:
            for name, column in present.items():
                tally.add(name, column)
        yield replace(batch, columns=present)


def _context(workspace: Workspace, record: dict[str, Any], span: Span) -> Context:
    facts = WorkloadFacts(
        workload=record["workload"],
        name=record["name"],
        user=record["user"],
        project=record["project"],
        partition=record["partition"],
        state=record["state"],
        submit_ms=record["submit_ms"],
        start_ms=record["start_ms"],
        end_ms=record["end_ms"],
        attributes=record["attributes"],
    )
    return Context(
        facts,
        _gpus(workspace, record, span),
        _progress(workspace, record, span),
        _events(workspace, record, span),
    )


def _gpus(workspace: Workspace, record: dict[str, Any], span: Span) -> list[GpuFacts]:
    known = {
        row["gpu"]: row for row in workspace.store.moment(span.cluster, span.to_ms).gpus.to_pylist()
    }
    ranked = sorted(
        record["allocations"], key=lambda a: (a["global_rank"] is None, a["global_rank"], a["gpu"])
    )
    listed: dict[str, GpuFacts] = {}
    for held in ranked:
        name, row = parse_gpu_id(held["gpu"]), known.get(held["gpu"], {})
        listed[held["gpu"]] = GpuFacts(
            gpu=held["gpu"],
            host=name.host,
            index=name.index,
            global_rank=held["global_rank"],
            local_rank=held["local_rank"],
            model=row.get("model") or "",
            power_limit_w=row.get("power_limit_w"),
            memory_mib=row.get("memory_mib"),
            from_ms=held["valid_from_ms"],
            to_ms=held["valid_to_ms"],
        )
    return list(listed.values())


def _progress(workspace: Workspace, record: dict[str, Any], span: Span) -> list[Progress]:
    table = workspace.store.progress(span.cluster, record["workload"], span.from_ms, span.to_ms)
    return [
        Progress(
            row["workload"],
            row["time_ms"],
            row["step"],
            row["throughput"],
            row["unit"],
            row["loss"],
        )
        for row in table.to_pylist()
    ]


def _events(workspace: Workspace, record: dict[str, Any], span: Span) -> list[Event]:
    """Events of the workload, of its GPUs and of its hosts while it ran."""
    # A dead node ends the workload at once; that it is down is noticed some minutes later.
    until = span.to_ms + 10 * MINUTE_MS
    table = workspace.store.events(span.cluster, span.from_ms, until, limit=EVENTS_LIMIT)
    gpus = set(span.gpus)
    hosts = {parse_gpu_id(gpu).host for gpu in gpus}
    return [
        Event(
            row["time_ms"],
            EventKind(row["kind"]),
            row["host"] or "",
            row["gpu"] or "",
            row["workload"] or "",
            row["value"],
            row["text"] or "",
        )
        for row in table.to_pylist()
        if row["workload"] == record["workload"]
        or (row["time_ms"] < span.to_ms and row["gpu"] in gpus)
        or (row["host"] in hosts and _concerns(row, span))
    ]


def _concerns(row: dict[str, Any], span: Span) -> bool:
    return not row["gpu"] and (row["time_ms"] < span.to_ms or row["kind"] == EventKind.NODE_DOWN)


def document(
    matrix: WorkloadMatrix, diagnosis: Diagnosis, tally: Tally | None = None
) -> dict[str, Any]:
    """The answer of ``marey diagnose --json``; ``docs/diagnosis.schema.json`` describes it."""
    return {
        "workload": _workload(matrix),
        "window": _window(matrix),
        "verdict": _verdict(matrix, diagnosis),
        "findings": [_finding(finding) for finding in diagnosis.findings],
        "clusters": _clusters(diagnosis.clusters),
        "clustering": _clustering(diagnosis.clusters),
        "outliers": [
            {
                "time": format_time(outlier.time_ms),
                "gpu": outlier.gpu,
                "metrics": list(outlier.metrics),
                "score": round(outlier.score, 2),
            }
            for outlier in diagnosis.outliers
        ],
        "life": [
            {
                "phase": span.phase.value,
                "from": format_time(span.from_ms),
                "to": format_time(span.to_ms),
            }
            for span in life_strip(matrix, diagnosis.findings)
        ],
        "events": [_event(event) for event in matrix.events[:EVENTS_SHOWN]],
        "progress": [
            {
                "time": format_time(p.time_ms),
                "step": p.step,
                "throughput": p.throughput,
                "unit": p.unit,
                "loss": p.loss,
            }
            for p in _thinned(matrix.progress)
        ],
        "metrics": _means(tally or _tally(matrix)),
    }


def _event(event: Event) -> dict[str, Any]:
    return {
        "time": format_time(event.time_ms),
        "kind": event.kind.value,
        "host": event.host,
        "gpu": event.gpu,
        "value": event.value,
        "text": event.text,
    }


def _thinned(progress: Sequence[Progress]) -> list[Progress]:
    """Evenly spaced reports, the last one always among them."""
    every = -(-len(progress) // PROGRESS_SHOWN) or 1
    return list(progress[::-1][::every][::-1])


def _workload(matrix: WorkloadMatrix) -> dict[str, Any]:
    facts = matrix.facts
    return {
        "id": facts.workload,
        "name": facts.name,
        "user": facts.user,
        "project": facts.project,
        "partition": facts.partition,
        "state": facts.state,
        "submit": _moment(facts.submit_ms),
        "start": _moment(facts.start_ms),
        "end": _moment(facts.end_ms),
        "gpus": matrix.names,
        "hosts": list(matrix.hosts),
        "attributes": dict(facts.attributes),
    }


def _moment(time_ms: int | None) -> str | None:
    return None if time_ms is None else format_time(time_ms)


def _window(matrix: WorkloadMatrix) -> dict[str, Any] | None:
    if not len(matrix.time_ms):
        return None
    return {
        "from": format_time(int(matrix.time_ms[0])),
        "to": format_time(int(matrix.time_ms[-1]) + matrix.step_ms),
        "step_s": matrix.step_ms / 1000,
        "samples": len(matrix.time_ms),
    }


def _verdict(matrix: WorkloadMatrix, diagnosis: Diagnosis) -> str:
    if not len(matrix.time_ms):
        return "No samples of this workload are stored in this window, so nothing can be said."
    if not diagnosis.findings:
        return "Too few samples to judge: at least two moments are needed."
    return diagnosis.findings[0].summary


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind.value,
        "gpus": list(finding.gpus),
        "hosts": list(finding.hosts),
        "window": {"from": format_time(finding.from_ms), "to": format_time(finding.to_ms)},
        "summary": finding.summary,
        "evidence": [
            {
                "what": e.what,
                "value": _number(e.value),
                "against": _number(e.against),
                "unit": e.unit,
            }
            for e in finding.evidence
        ],
        "confidence": finding.confidence,
        "next": finding.next,
        "gpu_hours": finding.gpu_hours,
    }


def _number(value: float) -> float | None:
    return round(float(value), 3) if np.isfinite(value) else None


def _clusters(report: ClusterReport | None) -> list[dict[str, Any]]:
    if report is None:
        return []
    return [{"id": c.id, "gpus": list(c.gpus), "why": c.why} for c in report.clusters]


def _clustering(report: ClusterReport | None) -> dict[str, Any] | None:
    if report is None:
        return None
    return {
        "metric": report.metric,
        "method": report.method,
        "criterion": report.criterion,
        "approximate": report.approximate,
    }


def _tally(matrix: WorkloadMatrix) -> Tally:
    tally = Tally()
    for metric, values in matrix.columns.items():
        tally.add(metric, values.ravel())
    return tally


def _means(tally: Tally) -> list[dict[str, Any]]:
    """Per metric the mean over all samples of the window, to check the claims against."""
    return [
        {
            "metric": metric,
            "unit": catalogue()[metric].unit,
            "mean": _number(total / count),
            "min": _number(low),
            "max": _number(high),
        }
        for metric, (total, count, low, high) in tally.metrics.items()
    ]
