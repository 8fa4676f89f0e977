"""How much memory is allocated while an operator of the execution flow runs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.trace.views.step_files import StepView

Ints = NDArray[np.int64]


def find_operator_memory(view: StepView, memory: pa.Table) -> dict[int, int]:
    """Return operator → the most bytes allocated during it, on the first rank of its stage.

    Ranks of a stage run the same program. Operators before the first record of memory are left
    out.
    """
    found: dict[int, int] = {}
    seen: set[int] = set()
    ranks = memory["rank"].to_numpy()
    for rank, stage in zip(view.index.ranks, view.index.stages, strict=True):
        if stage in seen or not (ranks == rank).any():
            continue
        seen.add(stage)
        found |= _of_rank(view, rank, memory.filter(pa.array(ranks == rank)))
    return found


def _of_rank(view: StepView, rank: int, lines: pa.Table) -> dict[int, int]:
    time = lines["time_ns"].to_numpy()
    order = np.argsort(time, kind="stable")
    time = time[order]
    allocated = lines["allocated_bytes"].to_numpy()[order]
    bands = view.bands_of(rank)
    index = view.index
    begin, end = (
        index.start_ns + bands[edge].astype(np.int64) * index.unit_ns for edge in ("start", "end")
    )
    first, last = np.searchsorted(time, begin, "right"), np.searchsorted(time, end, "left")
    operators = bands["operator"].tolist()
    found: dict[int, int] = {}
    for operator, a, b in zip(operators, first.tolist(), last.tolist(), strict=True):
        if a > 0:
            # From what was allocated when it began to the last change within it.
            most = int(allocated[a - 1 : max(a, b)].max())
            found[operator] = max(found.get(operator, 0), most)
    return found
