"""What the API says of clusters, and of what is measured: spans, metrics, kinds of fault."""

from __future__ import annotations

from marey.app.queries.workspace import Workspace
from marey.live.quantise import live_scales
from marey.model.documents import Document
from marey.model.faults import MEANING
from marey.model.metrics import Metric


class ClusterSpan(Document):
    """A cluster with its present time and the span of its samples."""

    cluster: str
    time_ms: int
    first_ms: int | None
    last_ms: int | None


class MetricDerivation(Document):
    """What a metric is computed from."""

    base: str
    per: str


class LiveScale(Document):
    """How the values of a metric are coded in live messages."""

    offset: float
    step: float
    levels: int


class MetricDocument(Document):
    """A metric of the catalogue."""

    metric: str
    label: str
    unit: str
    entity: str
    kind: str
    minimum: float
    maximum: float
    resolution: float
    description: str
    exporters: dict[str, float]
    derived: MetricDerivation | None
    live: LiveScale | None


class FaultMeaning(Document):
    """A kind of fault, and what it means."""

    kind: str
    meaning: str


def cluster_spans(workspace: Workspace) -> list[ClusterSpan]:
    """Return every cluster with its present time and the span of its samples."""
    spans = []
    for name in workspace.clusters():
        first_ms, last_ms = workspace.store.span(name) or (None, None)
        spans.append(ClusterSpan(name, workspace.now_ms(), first_ms, last_ms))
    return spans


def metric_document(metric: Metric) -> MetricDocument:
    """Return a metric as the web app needs it."""
    scale, derived = live_scales().get(metric.metric), metric.derived
    return MetricDocument(
        metric=metric.metric,
        label=metric.label,
        unit=metric.unit,
        entity=metric.entity.value,
        kind=metric.kind.value,
        minimum=metric.minimum,
        maximum=metric.maximum,
        resolution=metric.resolution,
        description=metric.description,
        exporters=dict(metric.exporters),
        derived=MetricDerivation(derived.base, derived.per) if derived else None,
        live=LiveScale(scale.offset, scale.step, scale.levels) if scale else None,
    )


def fault_meanings() -> list[FaultMeaning]:
    """Return every kind of fault: one list for simulator, rules and diagnosis."""
    return [FaultMeaning(kind.value, meaning) for kind, meaning in MEANING.items()]
