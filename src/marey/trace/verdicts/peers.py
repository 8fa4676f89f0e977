"""What is usual among peers: medians that leave the judged rank itself out."""

from __future__ import annotations

import numpy as np

from marey.trace.graph.cost_graph import Floats, Ints

MAD_TO_DEVIATION = 1.4826


def median_of_others(values: Floats, team: Ints) -> Floats:
    """Return for each row the median over the other rows of its team.

    NaN for a row without others.
    """
    expected = np.full(values.shape, np.nan)
    for one in np.unique(team):
        rows = np.flatnonzero(team == one)
        if len(rows) < 2:
            continue
        block = values[rows]
        if len(rows) > 16:
            # One value among many does not move the median enough to matter.
            expected[rows] = np.nanmedian(block, axis=0)
            continue
        for at, row in enumerate(rows):
            expected[row] = np.nanmedian(np.delete(block, at, axis=0), axis=0)
    return expected


def deviation(values: Floats) -> float:
    """Return a robust standard deviation around the median."""
    kept = values[np.isfinite(values)]
    if not len(kept):
        return 0.0
    return float(np.median(np.abs(kept - np.median(kept))) * MAD_TO_DEVIATION)
