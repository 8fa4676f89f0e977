"""The parts of a diagnosis, each as a question: clusters, bands, outliers, pairs of metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.app.diagnosis.diagnosis_document import gpu_clusters
from marey.app.diagnosis.part_documents import (
    AxisLimits,
    ClusteredGpu,
    GpuClusters,
    GpuOutliers,
    MergeTree,
    MetricFrame,
    MetricPair,
    MetricPairs,
    Outliers,
    ScoredPoints,
    TreeLeaf,
    TreeMerge,
)
from marey.app.diagnosis.workload_matrix import GPU_METRICS, load_matrix
from marey.app.queries.table_queries import query_of, within
from marey.app.queries.workspace import Workspace
from marey.diagnose.clusters import METHODS, cluster_gpus
from marey.diagnose.dendrogram import Dendrogram, dendrogram
from marey.diagnose.matrix import WorkloadMatrix
from marey.diagnose.pairs import Bivariate, bivariate, check_metrics, metric_pairs
from marey.diagnose.shapes import Shapes, gpu_shapes
from marey.model.errors import InvalidInput, unknown
from marey.model.metrics import Entity, catalogue, metric_named
from marey.model.names import DEFAULT_CLUSTER

CLUSTERS_BOUNDS = (0, 64)
SIGNIFICANCE_BOUNDS = (1e-9, 0.5)


def check_metric(metric: str) -> str:
    """Return the metric, if it is one that is measured of GPUs."""
    found = metric_named(metric)
    if metric not in GPU_METRICS:
        what = "of a host" if found.entity is Entity.HOST else "counted or derived"
        raise InvalidInput(f"'{metric}' is {what}; {unknown('metric', metric, GPU_METRICS)}")
    return metric


@dataclass(frozen=True)
class AskClusters:
    """Which GPUs of a workload behave alike in one metric, with what the plots show."""

    workload: str
    cluster: str = DEFAULT_CLUSTER
    metric: str = "util"
    method: str = "histogram"
    # How many clusters; 0 lets the widest gap decide.
    clusters: int = 0
    from_ms: int | None = None
    to_ms: int | None = None

    def __post_init__(self) -> None:
        within("clusters", self.clusters, *CLUSTERS_BOUNDS)
        if self.method not in METHODS:
            raise InvalidInput(unknown("method", self.method, METHODS))

    def ask(self, workspace: Workspace) -> GpuClusters:
        """Return clusters, the merge tree, and per GPU its histogram and line."""
        matrix = load_matrix(workspace, self, (check_metric(self.metric),), ())
        if self.metric not in matrix.columns:
            return _make_empty_answer(matrix, self.metric, self.method)
        trees = workspace.matrices.trees
        key = trees.key(matrix, self.metric, self.method)
        report = cluster_gpus(
            matrix,
            self.metric,
            method=self.method,
            clusters=self.clusters or None,
            merged=trees.get(key),
        )
        trees.put(key, report.merged)
        shapes = gpu_shapes(matrix, self.metric, report)
        return GpuClusters(
            **frame_fields(matrix, self.metric),
            method=self.method,
            criterion=report.criterion,
            approximate=report.approximate,
            clusters=gpu_clusters(report),
            tree=_make_tree(dendrogram(report, matrix.names)),
            limits=shapes.limits,
            line_time_ms=shapes.line_time_ms.tolist(),
            gpus=_list_gpus(matrix, shapes, report.labels),
        )

    def path(self) -> str:
        """Return the API path that answers it."""
        return "/diagnosis/clusters"

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        return query_of(self)


def describe_metric(matrix: WorkloadMatrix, metric: str) -> MetricFrame:
    """Return the metric and the window, as every answer about one metric begins."""
    return MetricFrame(**frame_fields(matrix, metric))


def frame_fields(matrix: WorkloadMatrix, metric: str) -> dict[str, Any]:
    """Return the same as fields of a document that says more."""
    known = catalogue()[metric]
    times = matrix.time_ms
    return {
        "workload": matrix.facts.workload,
        "metric": metric,
        "label": known.label,
        "unit": known.unit,
        "from_ms": int(times[0]) if len(times) else None,
        "to_ms": int(times[-1]) + matrix.step_ms if len(times) else None,
        "moments": len(times),
    }


def _make_empty_answer(matrix: WorkloadMatrix, metric: str, method: str) -> GpuClusters:
    return GpuClusters(
        **frame_fields(matrix, metric),
        method=method,
        criterion=f"no samples of {metric} in this window",
        approximate=False,
        clusters=[],
        tree=None,
        limits=(0.0, 1.0),
        line_time_ms=[],
        gpus=[],
    )


def _make_tree(drawn: Dendrogram | None) -> MergeTree | None:
    if drawn is None:
        return None
    return MergeTree(
        leaves=[TreeLeaf(leaf.gpus, leaf.first, leaf.cluster) for leaf in drawn.leaves],
        merges=[TreeMerge(m.left, m.right, round(m.height, 5)) for m in drawn.merges],
    )


def _list_gpus(
    matrix: WorkloadMatrix, shapes: Shapes, labels: NDArray[np.int32]
) -> list[ClusteredGpu]:
    medians, lines = round_numbers(shapes.median), round_rows(shapes.lines)
    counts = shapes.counts.tolist()
    return [
        ClusteredGpu(
            gpu=gpu.gpu,
            host=gpu.host,
            index=gpu.index,
            global_rank=gpu.global_rank,
            local_rank=gpu.local_rank,
            model=gpu.model,
            cluster=int(labels[row]),
            difference=round(float(shapes.difference[row]), 4),
            median=medians[row],
            counts=counts[row],
            line=lines[row],
        )
        for row, gpu in enumerate(matrix.gpus)
    ]


def round_rows(values: NDArray[Any]) -> list[list[float | None]]:
    """Return every row as ``numbers``, rounded at once."""
    flat, width = round_numbers(values.ravel()), values.shape[1]
    return (
        [flat[at : at + width] for at in range(0, len(flat), width)]
        if width
        else [[] for _ in values]
    )


def round_numbers(values: NDArray[Any]) -> list[float | None]:
    """Return values as JSON has them, to five digits: nobody sees more in a plot."""
    wide = np.asarray(values, np.float64)
    known = np.isfinite(wide)
    size = np.abs(np.where(known & (wide != 0), wide, 1.0))
    scale = 10.0 ** (4 - np.floor(np.log10(size)))
    # Dividing a whole number gives the nearest double, which prints as few digits.
    rounded = np.where(known, np.round(wide * scale) / scale, np.nan)
    listed: list[float | None] = rounded.tolist()
    if known.all():
        return listed
    return [value if good else None for value, good in zip(listed, known.tolist(), strict=True)]


def _round_number(value: float) -> float | None:
    return float(f"{value:.5g}") if np.isfinite(value) else None


@dataclass(frozen=True)
class AskOutliers:
    """Which samples of two metrics lie outside the cloud that all of them make."""

    workload: str
    cluster: str = DEFAULT_CLUSTER
    x: str = "util"
    y: str = "power"
    significance: float = 0.001
    robust: bool = True
    from_ms: int | None = None
    to_ms: int | None = None

    def __post_init__(self) -> None:
        low, high = SIGNIFICANCE_BOUNDS
        if not low <= self.significance <= high:
            raise InvalidInput(
                f"significance is {self.significance:g}; allowed: {low:g} to {high:g}."
            )

    def ask(self, workspace: Workspace) -> Outliers:
        """Return the points to draw, the outliers, the density and the limit."""
        names = tuple(check_metric(name) for name in (self.x, self.y))
        matrix = load_matrix(workspace, self, names, ())
        if not matrix.columns:
            check_metrics(matrix, *names)
        found = bivariate(
            matrix, self.x, self.y, significance=self.significance, robust=self.robust
        )
        return self._make_document(matrix, found)

    def _make_document(self, matrix: WorkloadMatrix, found: Bivariate) -> Outliers:
        per_gpu = found.scores.outside.reshape(len(matrix.gpus), -1).sum(axis=1)
        return Outliers(
            workload=matrix.facts.workload,
            x=describe_metric(matrix, self.x),
            y=describe_metric(matrix, self.y),
            significance=self.significance,
            robust=self.robust,
            limit=round(float(np.sqrt(found.scores.limit)), 4),
            centre=round_numbers(found.scores.centre),
            covariance=[round_numbers(row) for row in found.scores.covariance],
            samples=int(np.isfinite(found.points).all(axis=1).sum()),
            outlier_count=found.outlier_count,
            limits=AxisLimits(x=found.limits[0], y=found.limits[1]),
            gpus=[
                GpuOutliers(gpu.gpu, int(count))
                for gpu, count in zip(matrix.gpus, per_gpu, strict=True)
            ],
            points=_make_scores(matrix, found, found.drawn),
            outliers=_make_scores(matrix, found, found.outliers),
            density=found.density.tolist(),
        )

    def path(self) -> str:
        """Return the API path that answers it."""
        return "/diagnosis/outliers"

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        return query_of(self)


def _make_scores(
    matrix: WorkloadMatrix, found: Bivariate, chosen: NDArray[np.intp]
) -> ScoredPoints:
    """Return columns, since there are thousands of points; ``gpu`` counts into the list of GPUs."""
    moments = max(1, len(matrix.time_ms))
    return ScoredPoints(
        gpu=(chosen // moments).tolist(),
        time_ms=matrix.time_ms[chosen % moments].tolist() if len(chosen) else [],
        x=round_numbers(found.points[chosen, 0]),
        y=round_numbers(found.points[chosen, 1]),
        score=round_numbers(np.sqrt(np.maximum(found.scores.squared[chosen], 0.0))),
    )


@dataclass(frozen=True)
class AskPairs:
    """Which pairs of metrics are worth a look."""

    workload: str
    cluster: str = DEFAULT_CLUSTER
    from_ms: int | None = None
    to_ms: int | None = None

    def ask(self, workspace: Workspace) -> MetricPairs:
        """Return every pair with its correlation and the share of strange samples."""
        matrix = load_matrix(workspace, self, GPU_METRICS, ())
        return MetricPairs(
            workload=matrix.facts.workload,
            metrics=list(matrix.columns),
            pairs=[
                MetricPair(pair.x, pair.y, round(pair.correlation, 3), round(pair.strange, 4))
                for pair in metric_pairs(matrix)
            ],
        )

    def path(self) -> str:
        """Return the API path that answers it."""
        return "/diagnosis/pairs"

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        return query_of(self)
