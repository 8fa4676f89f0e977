"""The document of a diagnosis: what the command line, the API and the reports are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from marey.app.workload_matrix import Tally
from marey.diagnose.clusters import ClusterReport
from marey.diagnose.diagnosis import Diagnosis
from marey.diagnose.findings import Finding
from marey.diagnose.life import life_strip
from marey.diagnose.matrix import WorkloadMatrix
from marey.model.events import Event
from marey.model.metrics import catalogue
from marey.model.times import format_time
from marey.model.workloads import Progress

EVENTS_SHOWN = 500
PROGRESS_SHOWN = 300


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
