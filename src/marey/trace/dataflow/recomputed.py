"""Find forward operators that run again inside backward ones: recomputed activations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
# Fewer operators in a row that also stand in a row in the forward pass may be chance.
FEWEST_IN_A_ROW = 2


def find_recomputed(
    owners: tuple[Ints, Ints], events: tuple[Ints, Ints, Ints], forward: Sequence[int]
) -> Ints:
    """Return how much of every owner is a stretch of the forward pass run again, in ns.

    ``owners`` are start and end of backward operators; ``events`` are start, end and name of all
    operators of the thread, sorted by start; ``forward`` the names of the forward pass in order.
    """
    pairs = set(pairwise(forward))
    names = set(forward)
    found = np.zeros(len(owners[0]), np.int64)
    starts, ends, codes = events
    for n, (begin, over) in enumerate(zip(owners[0].tolist(), owners[1].tolist(), strict=True)):
        low, high = np.searchsorted(starts, [begin, over])
        if high - low <= FEWEST_IN_A_ROW + 1:
            continue
        found[n] = _longest(starts[low:high], ends[low:high], codes[low:high], (names, pairs))
    return found


def _longest(
    starts: Ints, ends: Ints, codes: Ints, known: tuple[set[int], set[tuple[int, int]]]
) -> int:
    """Return the time from the first recomputed operator to whatever comes after the last."""
    names, pairs = known
    row: list[int] = []
    best: tuple[int, int] = (0, 0)
    reached = 0
    for n in range(len(starts)):
        code = int(codes[n])
        if starts[n] < reached:
            continue
        if code not in names:
            continue
        if row and (int(codes[row[-1]]), code) not in pairs:
            row = []
        row.append(n)
        reached = int(ends[n])
        if len(row) >= FEWEST_IN_A_ROW:
            after = next((int(s) for s in starts[n + 1 :] if s >= reached), reached)
            best = max(best, (len(row), after - int(starts[row[0]])))
    return best[1]
