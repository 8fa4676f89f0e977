"""What the small plots of a workload show: a histogram and a short line per GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.diagnose.clusters import ClusterReport, metric_limits
from marey.diagnose.matrix import WorkloadMatrix
from marey.stats.row_shapes import row_extremes

LINE_POINTS = 72


@dataclass(frozen=True, slots=True)
class Shapes:
    """Per GPU the histogram, the line and how different it is from the usual one."""

    limits: tuple[float, float]
    counts: NDArray[np.int64]
    lines: NDArray[np.float32]
    line_time_ms: NDArray[np.int64]
    median: NDArray[np.float64]
    difference: NDArray[np.float64]


def gpu_shapes(matrix: WorkloadMatrix, metric: str, report: ClusterReport) -> Shapes:
    """Return the shapes that the small multiples draw of one metric."""
    values = matrix.columns[metric]
    limits = metric_limits(matrix, metric)
    first, lines = extreme_bins(values, LINE_POINTS)
    usual = report.counts[report.labels == 0].sum(axis=0)
    apart = _measure_distance(report.counts, usual)
    return Shapes(
        limits=limits,
        counts=report.counts,
        lines=lines,
        line_time_ms=matrix.time_ms[first],
        median=report.medians,
        difference=apart,
    )


def _measure_distance(counts: NDArray[np.int64], usual: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return Jensen-Shannon distance of every row from one profile (base 2; 0 to 1)."""
    rows = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    profile = usual / max(1, int(usual.sum()))
    divergence = (
        _compute_entropy((rows + profile) / 2)
        - (_compute_entropy(rows) + _compute_entropy(profile[None])) / 2
    )
    return np.sqrt(np.clip(divergence, 0.0, 1.0))


def _compute_entropy(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    logs = np.log2(rows, out=np.zeros_like(rows), where=rows > 0)
    return np.asarray(-(rows * logs).sum(axis=1))


def extreme_bins(
    values: NDArray[np.float32], points: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return first column per bin, and of each bin the value farthest from the row's mean."""
    moments = values.shape[1]
    edges = np.unique(np.linspace(0, moments, min(points, moments) + 1).astype(np.int64))
    if moments == 0:
        return edges[:0], np.zeros((len(values), 0), np.float32)
    low, high, _, means = row_extremes(np.ascontiguousarray(values), edges)
    middle = means[:, None].astype(np.float32)
    return edges[:-1], np.where(high - middle >= middle - low, high, low)
