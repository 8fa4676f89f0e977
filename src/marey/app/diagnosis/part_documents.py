"""The parts of a diagnosis as documents: what the pages and the report draw."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from marey.app.diagnosis.diagnosis_document import DiagnosedFinding, DiagnosedWindow, GpuCluster
from marey.model.documents import Document

Values = list[float | None]


class MetricFrame(Document):
    """What every answer about one metric says of it and of its window."""

    workload: str
    metric: str
    label: str
    unit: str
    from_ms: int | None
    to_ms: int | None
    moments: int


class TreeLeaf(Document):
    """A leaf of the merge tree: GPUs that are drawn as one."""

    gpus: int
    first: str
    cluster: int | None


class TreeMerge(Document):
    """Two parts of the merge tree that become one at a height."""

    left: int
    right: int
    height: float


class MergeTree(Document):
    """The merge tree of a clustering, cut to what can be drawn."""

    leaves: list[TreeLeaf]
    merges: list[TreeMerge]


class ClusteredGpu(Document):
    """One GPU with its cluster, its histogram and its line."""

    gpu: str
    host: str
    index: int
    global_rank: int | None
    local_rank: int | None
    model: str
    cluster: int
    difference: float
    median: float | None
    counts: list[int]
    line: Values


class GpuClusters(MetricFrame):
    """Which GPUs behave alike in one metric, with what the plots show."""

    method: str
    criterion: str
    approximate: bool
    clusters: list[GpuCluster]
    tree: MergeTree | None
    limits: tuple[float, float]
    line_time_ms: list[int]
    gpus: list[ClusteredGpu]


class MetricBand(MetricFrame):
    """The least, 10 %, median, 90 % and greatest value of all GPUs over time."""

    time_ms: list[int]
    low: Values
    p10: Values
    median: Values
    p90: Values
    high: Values


class Bands(Document):
    """A band per metric."""

    bin_ms: int
    coarse: Annotated[
        bool,
        Meta(description="Whether steps hold several samples, of which the last is shown."),
    ]
    bands: list[MetricBand]


class GpuLine(Document):
    """The values of one GPU."""

    gpu: str
    value: Values


class MetricLines(MetricFrame):
    """The lines of some GPUs in one metric."""

    lines: list[GpuLine]


class Lines(Document):
    """Some GPUs over time, all at the same moments."""

    bin_ms: int
    time_ms: list[int]
    metrics: list[MetricLines]


class AxisLimits(Document):
    """The ranges of both axes."""

    x: tuple[float, float]
    y: tuple[float, float]


class GpuOutliers(Document):
    """How many outliers one GPU has."""

    gpu: str
    outliers: int


class ScoredPoints(Document):
    """Samples as columns; ``gpu`` counts into the list of GPUs."""

    gpu: list[int]
    time_ms: list[int]
    x: Values
    y: Values
    score: Values


class Outliers(Document):
    """Samples of two metrics, scored by how far they lie outside the cloud of all."""

    workload: str
    x: MetricFrame
    y: MetricFrame
    significance: float
    robust: bool
    limit: float
    centre: Values
    covariance: list[Values]
    samples: int
    outlier_count: int
    limits: AxisLimits
    gpus: list[GpuOutliers]
    points: ScoredPoints
    outliers: ScoredPoints
    density: list[list[float]]


class MetricPair(Document):
    """Two metrics: how they go together, and the share of samples that do not."""

    x: str
    y: str
    correlation: float
    strange: float


class MetricPairs(Document):
    """Pairs of metrics, the strongest and strangest first."""

    workload: str
    metrics: list[str]
    pairs: list[MetricPair]


class PeerGroup(Document):
    """What a workload and its peers have in common."""

    gpus: int
    gpu_model: str


class PeerMetric(Document):
    """A workload's own mean, and median and quartiles of its peers' means."""

    metric: str
    label: str
    unit: str
    own: float | None
    peers: float | None
    low: float | None
    high: float | None
    better_than: float | None


class Peers(Document):
    """Efficiency of a workload against its peers."""

    workload: str
    same: PeerGroup
    peers: list[str]
    metrics: list[PeerMetric]


class ComparedSide(Document):
    """One of two workloads or windows."""

    workload: str
    name: str
    gpus: int
    hosts: int
    window: DiagnosedWindow | None
    verdict: str
    findings: list[DiagnosedFinding]


class MetricChange(Document):
    """The mean of a metric before and after, and the relative change."""

    metric: str
    label: str
    unit: str
    before: float | None
    after: float | None
    change: float | None


class FindingChanges(Document):
    """Kinds of finding that went away, came, or stayed."""

    gone: list[str]
    new: list[str]
    still: list[str]


class Distribution(Document):
    """How often each value, before and after, on one axis."""

    metric: str
    label: str
    unit: str
    limits: tuple[float, float]
    before: list[float]
    after: list[float]


class Comparison(Document):
    """What changed from one workload or window to another."""

    before: ComparedSide
    after: ComparedSide
    metrics: list[MetricChange]
    findings: FindingChanges
    changed: Annotated[list[str], Meta(description="What changed, in words.")]
    distribution: Distribution | None


class DiagnosisReport(Document):
    """A report within a JSON document, as a command gets it from a server."""

    workload: str
    format: Annotated[str, Meta(description="html or markdown.")]
    text: str


class DiagnosisProgress(Document):
    """How far the answer to a question about a workload is."""

    workload: str
    share: Annotated[float | None, Meta(description="Null where no question is being answered.")]
