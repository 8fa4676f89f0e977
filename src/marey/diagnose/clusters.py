"""Which GPUs of a workload behave alike, and in words what sets the others apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.diagnose.matrix import GpuFacts, WorkloadMatrix, refuse_metric
from marey.model.errors import InvalidInput, unknown
from marey.model.metrics import catalogue
from marey.stats.clustering import (
    Clustering,
    CuttableTree,
    cut_tree,
    merge_histograms,
    merge_timelines,
)
from marey.stats.row_shapes import row_histograms, row_medians

BINS = 32
METHODS = ("histogram", "euclidean", "correlation")


@dataclass(frozen=True, slots=True)
class GpuCluster:
    """GPUs that behave alike in one metric, and how they differ from the rest."""

    id: int
    gpus: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """The clusters of one metric, how they were cut, and the merge tree for a dendrogram."""

    metric: str
    method: str
    clusters: tuple[GpuCluster, ...]
    labels: NDArray[np.int32]
    tree: NDArray[np.float64]
    criterion: str
    approximate: bool
    # Per GPU: its histogram over the metric's limits, and its median.
    counts: NDArray[np.int64]
    medians: NDArray[np.float64]
    # What another cut can be made from without comparing the GPUs again.
    merged: CuttableTree


def histogram_counts(values: NDArray[np.float32], low: float, high: float) -> NDArray[np.int64]:
    """Return counts per row over equal bins between two limits.

    Values beyond count in the last bin.
    """
    return row_histograms(np.ascontiguousarray(values), low, max(high, low + 1e-9), BINS)


def metric_limits(matrix: WorkloadMatrix, metric: str) -> tuple[float, float]:
    """Return the limits of the axis: a percentage's whole range, else what the workload spans."""
    known = catalogue().get(metric)
    values = matrix.columns[metric]
    if known is not None and known.unit == "%":
        return known.minimum, known.maximum
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    # A metric that hardly moves keeps an axis wide enough that its noise is not spread over it.
    middle = (low + high) / 2
    least = 0.2 * abs(middle)
    if high - low < least:
        low, high = middle - least / 2, middle + least / 2
    return low, high


def cluster_gpus(
    matrix: WorkloadMatrix,
    metric: str,
    *,
    method: str = "histogram",
    clusters: int | None = None,
    merged: CuttableTree | None = None,
) -> ClusterReport:
    """Cluster the workload's GPUs by one metric; a tree that is known is only cut."""
    if method not in METHODS:
        raise InvalidInput(unknown("method", method, METHODS))
    if metric not in matrix.columns:
        raise refuse_metric(matrix, metric)
    values = matrix.columns[metric]
    counts = histogram_counts(values, *metric_limits(matrix, metric))
    if merged is None:
        merged = (
            merge_histograms(counts, matrix.names)
            if method == "histogram"
            else merge_timelines(values, matrix.names, by=method)
        )
    found = cut_tree(merged, clusters)
    medians = row_medians(values)
    listed = tuple(
        _describe(matrix, metric=metric, found=found, label=label, medians=medians)
        for label in range(found.count)
    )
    return ClusterReport(
        metric=metric,
        method=method,
        clusters=listed,
        labels=found.labels,
        tree=found.tree,
        criterion=found.criterion,
        approximate=found.approximate,
        counts=counts,
        medians=medians,
        merged=merged,
    )


def _describe(
    matrix: WorkloadMatrix,
    *,
    metric: str,
    found: Clustering,
    label: int,
    medians: NDArray[np.float64],
) -> GpuCluster:
    inside = found.labels == label
    gpus = tuple(name for name, kept in zip(matrix.names, inside, strict=True) if kept)
    if found.count == 1:
        return GpuCluster(label, gpus, "all GPUs alike")
    known = catalogue().get(metric)
    name, unit = (known.label, known.unit) if known else (metric, "")
    # The median GPU's median: what a usual member has, not swayed by members with gaps.
    own, rest = (_find_middle(medians[rows]) for rows in (inside, ~inside))
    pattern = rank_pattern(matrix.gpus, inside)
    return GpuCluster(
        label, gpus, f"{pattern}: {name} median {own:.4g} {unit} against {rest:.4g} {unit}".strip()
    )


def _find_middle(medians: NDArray[np.float64]) -> float:
    known = medians[np.isfinite(medians)]
    return float(np.median(known)) if len(known) else float("nan")


def rank_pattern(gpus: Sequence[GpuFacts], inside: NDArray[np.bool_]) -> str:
    """Return who they are, as a person would say it: ``the first GPU of every node``."""
    members = [gpu for gpu, kept in zip(gpus, inside, strict=True) if kept]
    hosts = sorted({gpu.host for gpu in gpus})
    own_hosts = sorted({gpu.host for gpu in members})
    sizes = Counter(gpu.host for gpu in gpus)
    if len(members) == 1:
        return f"GPU {members[0].gpu}"
    if len(members) == sum(sizes[host] for host in own_hosts) and len(own_hosts) < len(hosts):
        listed = ", ".join(own_hosts[:4]) + (" …" if len(own_hosts) > 4 else "")
        return f"all GPUs of node {listed}" if len(own_hosts) == 1 else f"all GPUs of {listed}"
    indices = {gpu.index for gpu in members}
    if len(hosts) > 1 and len(indices) == 1 and own_hosts == hosts:
        index = next(iter(indices))
        least = min(gpu.index for gpu in gpus)
        return "the first GPU of every node" if index == least else f"GPU {index} of every node"
    ranks = sorted(gpu.global_rank for gpu in members if gpu.global_rank is not None)
    if len(ranks) == len(members) and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return f"{len(members)} of {len(gpus)} GPUs"
