"""Rows of values as shapes: histograms, medians, and the extremes of spans of columns.

A row is one GPU, a column one moment; NaN means no value and never counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Rows = NDArray[np.float32]


@njit(cache=True, nogil=True)
def row_histograms(values: Rows, low: float, high: float, bins: int) -> NDArray[np.int64]:
    """Return counts per row over equal bins between two limits.

    Values beyond count in the last bin.
    """
    counts = np.zeros((values.shape[0], bins), np.int64)
    scale = bins / (high - low)
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            value = values[row, column]
            if np.isnan(value):
                continue
            at = (value - low) * scale
            place = 0 if at < 0 else (bins - 1 if at >= bins - 1 else int(at))
            counts[row, place] += 1
    return counts


@njit(cache=True, nogil=True)
def row_extremes(
    values: Rows, edges: NDArray[np.int64]
) -> tuple[Rows, Rows, NDArray[np.bool_], NDArray[np.float64]]:
    """Return per row and span of columns the least, the greatest, whether the least came first.

    Spans are ``[edges[i], edges[i + 1])``; the last result is the mean of every row.
    """
    rows, spans = values.shape[0], len(edges) - 1
    least = np.full((rows, spans), np.nan, np.float32)
    greatest = np.full((rows, spans), np.nan, np.float32)
    rising = np.ones((rows, spans), np.bool_)
    means = np.full(rows, np.nan)
    for row in range(rows):
        total, count = 0.0, 0
        for span in range(spans):
            low, high = np.float32(np.inf), np.float32(-np.inf)
            low_at, high_at = -1, -1
            for column in range(edges[span], edges[span + 1]):
                value = values[row, column]
                if np.isnan(value):
                    continue
                total += value
                count += 1
                if value < low:
                    low, low_at = value, column
                if value > high:
                    high, high_at = value, column
            if low_at >= 0:
                least[row, span], greatest[row, span] = low, high
                rising[row, span] = low_at <= high_at
        if count:
            means[row] = total / count
    return least, greatest, rising, means


def row_medians(values: Rows) -> NDArray[np.float64]:
    """Return the median of every row; NaN where a row has no value."""
    return median_along(values, 1)


def median_along(values: NDArray[Any], axis: int) -> NDArray[np.float64]:
    """Return the median over one axis, without missing values; NaN where all are missing.

    Many times faster than ``numpy.nanmedian``, which masks or goes row by row.
    """
    moved = np.moveaxis(values, axis, -1)
    columns = moved.shape[-1]
    if not columns:
        return np.full(moved.shape[:-1], np.nan)
    gaps = np.isnan(moved)
    if not gaps.any():
        half = columns // 2
        parted = np.partition(moved, half, axis=-1)
        upper = parted[..., half].astype(np.float64)
        if columns % 2:
            return np.asarray(upper)
        return np.asarray((parted[..., :half].max(axis=-1).astype(np.float64) + upper) / 2)
    ordered = np.sort(moved, axis=-1)
    count = columns - gaps.sum(axis=-1)
    lower = np.take_along_axis(ordered, (np.maximum(count - 1, 0) // 2)[..., None], -1)
    upper = np.take_along_axis(ordered, np.minimum(count // 2, columns - 1)[..., None], -1)
    both = (lower[..., 0].astype(np.float64) + upper[..., 0].astype(np.float64)) / 2
    return np.where(count > 0, both, np.nan)
