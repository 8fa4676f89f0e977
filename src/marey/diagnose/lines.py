"""A metric over time: lines of chosen GPUs before the band of all, in bins that lose no extreme.

Bins lie at multiples of their width since 1970, so that a band, a line and what is appended a
minute later fall on the same moments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.diagnose.matrix import WorkloadMatrix
from marey.stats.row_shapes import row_extremes

BAND_QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)


@dataclass(frozen=True, slots=True)
class Bins:
    """Spans of columns, and the moments that are drawn: two per bin, one where bins are samples."""

    width_ms: int
    edges: NDArray[np.int64]
    time_ms: NDArray[np.int64]

    @property
    def joined(self) -> bool:
        """Return whether a bin holds more than one moment."""
        return len(self.time_ms) != len(self.edges) - 1

    def placed(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return one value per bin at every moment that is drawn of it."""
        return np.repeat(values, 2, axis=-1) if self.joined else values


def time_bins(matrix: WorkloadMatrix, points: int, width_ms: int = 0) -> Bins:
    """Return bins of whole steps, at most ``points`` of them unless their width is given."""
    step, times = matrix.step_ms, matrix.time_ms
    steps = max(1, -(-len(times) // max(1, points)))
    if width_ms:
        steps = max(1, round(width_ms / step))
    width = steps * step
    if steps == 1:
        return Bins(width, np.arange(len(times) + 1, dtype=np.int64), times)
    bins, first = np.unique(times // width, return_index=True)
    edges = np.append(first, len(times)).astype(np.int64)
    moments = np.stack([bins * width, bins * width + width // 2], axis=1).ravel()
    return Bins(width, edges, moments)


def band(matrix: WorkloadMatrix, metric: str, bins: Bins) -> NDArray[np.float64]:
    """Return least, 10 %, median, 90 % and greatest over all GPUs, per moment that is drawn."""
    values = matrix.columns[metric]
    if not len(bins.time_ms):
        return np.zeros((len(BAND_QUANTILES), 0))
    low, high = _cut_span(matrix, metric, bins)
    middle = _compute_quantiles(values, BAND_QUANTILES[1:-1])
    if bins.joined:
        middle = np.stack([_compute_bin_means(level, bins.edges) for level in middle])
    levels = np.concatenate([low[None], middle, high[None]])
    return bins.placed(levels)


def _cut_span(
    matrix: WorkloadMatrix, metric: str, bins: Bins
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the least and the greatest of all GPUs per bin; NaN where there is no value."""
    values = matrix.columns[metric]
    if metric in matrix.extremes:
        low, high = matrix.extremes[metric]
    else:
        low, high = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
    first = bins.edges[:-1]
    return (
        np.fmin.reduceat(low, first).astype(np.float64),
        np.fmax.reduceat(high, first).astype(np.float64),
    )


def _compute_quantiles(values: NDArray[np.float32], levels: Sequence[float]) -> NDArray[np.float64]:
    """Return quantiles over the rows, per column; missing values take no part."""
    ordered = np.sort(np.ascontiguousarray(values.T), axis=1)
    count = (~np.isnan(ordered)).sum(axis=1)
    column = np.arange(len(ordered))
    found = []
    for level in levels:
        place = level * np.maximum(count - 1, 0)
        below = np.floor(place).astype(np.int64)
        above = np.minimum(below + 1, np.maximum(count - 1, 0))
        share = place - below
        picked = (1 - share) * ordered[column, below] + share * ordered[column, above]
        found.append(np.where(count > 0, picked, np.nan))
    return np.stack(found)


def _compute_bin_means(level: NDArray[np.float64], edges: NDArray[np.int64]) -> NDArray[np.float64]:
    known = np.isfinite(level)
    total = np.add.reduceat(np.where(known, level, 0.0), edges[:-1])
    count = np.add.reduceat(known.astype(np.int64), edges[:-1])
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def lines(
    matrix: WorkloadMatrix, metric: str, gpus: Sequence[str], bins: Bins
) -> dict[str, NDArray[np.float32]]:
    """Return per GPU its values.

    Of a bin the least and the greatest, in the order in which they came.
    """
    place = {name: row for row, name in enumerate(matrix.names)}
    rows = [place[gpu] for gpu in gpus if gpu in place]
    values = np.ascontiguousarray(matrix.columns[metric][rows])
    if bins.joined:
        low, high, rising, _ = row_extremes(values, bins.edges)
        values = np.empty((len(rows), len(bins.time_ms)), np.float32)
        values[:, 0::2] = np.where(rising, low, high)
        values[:, 1::2] = np.where(rising, high, low)
    return {matrix.gpus[row].gpu: own for row, own in zip(rows, values, strict=True)}
