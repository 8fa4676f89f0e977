"""What the plots of a workload show: a line per GPU, and the band that all GPUs make."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.diagnose.clusters import ClusterReport, histogram_counts, metric_limits
from marey.diagnose.matrix import WorkloadMatrix

LINE_POINTS = 72
BAND_QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)


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
    """What the small multiples draw of one metric."""
    values = matrix.columns[metric]
    limits = metric_limits(matrix, metric)
    counts = histogram_counts(values, *limits)
    first, lines = extreme_bins(values, LINE_POINTS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        median = np.nanmedian(values, axis=1).astype(np.float64)
    usual = counts[report.labels == 0].sum(axis=0)
    return Shapes(limits, counts, lines, matrix.time_ms[first], median, _apart(counts, usual))


def _apart(counts: NDArray[np.int64], usual: NDArray[np.int64]) -> NDArray[np.float64]:
    """Jensen-Shannon distance of every row from one profile (base 2; 0 to 1)."""
    rows = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    profile = usual / max(1, int(usual.sum()))
    divergence = _entropy((rows + profile) / 2) - (_entropy(rows) + _entropy(profile[None])) / 2
    return np.sqrt(np.clip(divergence, 0.0, 1.0))


def _entropy(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    logs = np.log2(rows, out=np.zeros_like(rows), where=rows > 0)
    return np.asarray(-(rows * logs).sum(axis=1))


def extreme_bins(
    values: NDArray[np.float32], points: int
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """First column per bin, and of each bin the value farthest from the row's mean."""
    moments = values.shape[1]
    edges = np.unique(np.linspace(0, moments, min(points, moments) + 1).astype(np.intp))
    if moments == 0:
        return edges[:0], np.zeros((len(values), 0), np.float32)
    known = np.isfinite(values)
    count = np.maximum(1, known.sum(axis=1, keepdims=True))
    middle = np.where(known, values, 0).sum(axis=1, keepdims=True) / count
    low = np.minimum.reduceat(np.where(known, values, np.inf), edges[:-1], axis=1)
    high = np.maximum.reduceat(np.where(known, values, -np.inf), edges[:-1], axis=1)
    chosen = np.where(high - middle >= middle - low, high, low)
    return edges[:-1], np.where(np.isfinite(chosen), chosen, np.nan).astype(np.float32)


def gpu_band(
    matrix: WorkloadMatrix, metric: str, points: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Times, and least, 10 %, median, 90 % and greatest over all GPUs; extremes are kept."""
    values = matrix.columns[metric]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        levels = np.nanquantile(values, BAND_QUANTILES, axis=0).astype(np.float64)
    moments = levels.shape[1]
    edges = np.unique(np.linspace(0, moments, min(points, moments) + 1).astype(np.intp))[:-1]
    if not len(edges):
        return matrix.time_ms[:0], levels[:, :0]
    width = np.diff([*edges, moments])
    clean = np.nan_to_num(levels)
    middle = np.add.reduceat(clean, edges, axis=1) / width
    middle[0] = np.fmin.reduceat(levels[0], edges)
    middle[-1] = np.fmax.reduceat(levels[-1], edges)
    middle[:, np.isnan(levels[2])[edges]] = np.nan
    return matrix.time_ms[edges], middle
