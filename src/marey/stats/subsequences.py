"""Longest common subsequences of two sequences of codes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marey.stats.compiled import njit

Ints = NDArray[np.int64]


# Its work grows with the product of the lengths.
@njit(cache=True, nogil=True, small=200)
def match_longest_common(first: Ints, second: Ints) -> Ints:
    """Return for each element of ``second`` its partner in ``first``, or -1.

    The partners are a longest common subsequence: their order is the same in both, and no other
    choice joins more. The table of lengths is filled from the ends, so that walking it from the
    beginning finds the earliest partners; it takes ``len(first) * len(second)`` numbers.
    """
    rows, columns = len(first), len(second)
    length = np.zeros((rows + 1, columns + 1), np.int32)
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            if first[i] == second[j]:
                length[i, j] = length[i + 1, j + 1] + 1
            else:
                length[i, j] = max(length[i + 1, j], length[i, j + 1])
    place = np.full(columns, -1, np.int64)
    i, j = 0, 0
    while i < rows and j < columns:
        if first[i] == second[j]:
            place[j] = i
            i, j = i + 1, j + 1
        elif length[i + 1, j] >= length[i, j + 1]:
            i += 1
        else:
            j += 1
    return place
