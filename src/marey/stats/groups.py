"""One value per group of neighbouring rows: medians and extremes without a loop in Python."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marey.stats.compiled import njit

MEDIAN, MEAN, MIN, MAX = range(4)


@njit(cache=True, nogil=True)
def _group(
    values: NDArray[np.float64], first: NDArray[np.int64], how: int, out: NDArray[np.float64]
) -> None:
    room = np.empty(len(values))
    for group in range(len(first) - 1):
        n = 0
        for i in range(first[group], first[group + 1]):
            if values[i] == values[i]:
                room[n] = values[i]
                n += 1
        if n == 0:
            out[group] = np.nan
        elif how == MEDIAN:
            room[:n].sort()
            out[group] = 0.5 * (room[(n - 1) // 2] + room[n // 2])
        elif how == MEAN:
            out[group] = room[:n].sum() / n
        elif how == MIN:
            out[group] = room[:n].min()
        else:
            out[group] = room[:n].max()


def per_group(
    values: NDArray[np.float64], first: NDArray[np.int64], how: int
) -> NDArray[np.float64]:
    """Return the median, mean, least or greatest of ``values[first[g]:first[g+1]]``.

    NaN is left out.
    """
    out = np.empty(len(first) - 1)
    _group(values, first, how, out)
    return out


def count_per_group(flags: NDArray[np.bool_], first: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many rows of each group are flagged."""
    total = np.concatenate([[0], np.cumsum(flags)])
    return np.asarray(total[first[1:]] - total[first[:-1]], np.int64)
