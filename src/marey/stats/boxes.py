"""Box plots of many rows at once: quartiles, fences, outliers and imbalance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

FENCE = 1.5

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Boxes:
    """One box plot per row; NaN where a row has no value."""

    n: NDArray[np.int64]
    mean: Floats
    # Of the sample (n − 1); NaN for a single value.
    sd: Floats
    min: Floats
    q1: Floats
    median: Floats
    q3: Floats
    max: Floats
    # (max − mean) / mean; 0 where the mean is 0.
    imbalance: Floats
    # Column of the greatest value.
    max_at: NDArray[np.int64]
    # Row and column of every value beyond 1.5 × IQR from the quartiles.
    outlier_row: NDArray[np.int64]
    outlier_column: NDArray[np.int64]
    outlier_value: Floats

    @classmethod
    def joined(cls, parts: list[Boxes], first: list[int]) -> Boxes:
        """Join the boxes of chunks, given the row each begins at."""
        columns = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in cls.__dataclass_fields__
            if name != "outlier_row"
        }
        rows = [part.outlier_row + start for part, start in zip(parts, first, strict=True)]
        return cls(outlier_row=np.concatenate(rows), **columns)


def box_plots(rows: NDArray[Any]) -> Boxes:
    """Describe each row of a matrix; NaN are no values."""
    ordered = np.sort(rows, axis=1)  # NaN last
    count = (~np.isnan(rows)).sum(axis=1)
    mean, deviation, high_at = _moments(rows, count)
    quartiles = [_quantile(ordered, count, share) for share in (0.25, 0.5, 0.75)]
    some = count > 0
    last = np.where(some, count - 1, 0)
    low = np.where(some, ordered[:, 0], np.nan) if rows.shape[1] else np.full(len(rows), np.nan)
    high = np.where(some, np.take_along_axis(ordered, last[:, None], 1)[:, 0], np.nan)
    reach = FENCE * (quartiles[2] - quartiles[0])
    row, column = _outliers(
        rows, low=quartiles[0] - reach, high=quartiles[2] + reach, least=low, most=high
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        imbalance = np.where(mean > 0, (high - mean) / mean, np.where(some, 0.0, np.nan))
    return Boxes(
        n=count,
        mean=mean,
        sd=deviation,
        min=low.astype(float),
        q1=quartiles[0],
        median=quartiles[1],
        q3=quartiles[2],
        max=high.astype(float),
        imbalance=imbalance,
        max_at=high_at,
        outlier_row=row,
        outlier_column=column,
        outlier_value=rows[row, column].astype(float),
    )


def _quantile(ordered: NDArray[Any], count: NDArray[np.int64], share: float) -> Floats:
    """Return the linear interpolation between the two nearest of each row's values."""
    place = np.maximum(count - 1, 0) * share
    below = np.floor(place).astype(np.int64)
    above = np.minimum(below + 1, np.maximum(count - 1, 0))
    a = np.take_along_axis(ordered, below[:, None], 1)[:, 0].astype(float)
    b = np.take_along_axis(ordered, above[:, None], 1)[:, 0].astype(float)
    return np.asarray(a + (b - a) * (place - below))


def _moments(
    rows: NDArray[Any], count: NDArray[np.int64]
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    mean, deviation = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    at = np.full(len(rows), -1, np.int64)
    _fill_moments(rows, count, mean, deviation, at)
    return mean, deviation, at


@njit(cache=True, nogil=True)
def _fill_moments(
    rows: NDArray[Any],
    count: NDArray[np.int64],
    mean: Floats,
    deviation: Floats,
    at: NDArray[np.int64],
) -> None:
    for row in range(len(rows)):
        if count[row] == 0:
            continue
        total = 0.0
        best = -np.inf
        for column in range(rows.shape[1]):
            value = rows[row, column]
            if value == value:
                total += value
                if value > best:
                    best = value
                    at[row] = column
        mean[row] = total / count[row]
        spread = 0.0
        for column in range(rows.shape[1]):
            value = rows[row, column]
            if value == value:
                spread += (value - mean[row]) ** 2
        if count[row] > 1:
            deviation[row] = np.sqrt(spread / (count[row] - 1))


def _outliers(
    rows: NDArray[Any], *, low: Floats, high: Floats, least: Floats, most: Floats
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where values lie beyond the fences; only rows that have such are searched."""
    few = np.flatnonzero((least < low) | (most > high))
    beyond = (rows[few] < low[few, None]) | (rows[few] > high[few, None])
    row, column = np.nonzero(beyond)
    return few[row], column
