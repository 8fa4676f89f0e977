"""Tell blocks of memory apart by when a block of their size is given back."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.model.training.dataflow import Dataflow, Phase

Ints = NDArray[np.int64]
ACTIVATIONS, GRADIENTS, OPTIMIZER, BUFFERS = "activations", "gradients", "optimizer", "buffers"
# What the step before left, and this one gives back.
LEFT_OVER = "left over"
KINDS = (ACTIVATIONS, GRADIENTS, OPTIMIZER, BUFFERS, LEFT_OVER)


def find_parts(dataflow: Dataflow, rank: int, times: Ints) -> tuple[Ints, Ints]:
    """Return the phase of the last operator before every moment, and the number of its part.

    A part is a run of operators of one phase: one pass of one micro-batch, or several in a row.
    """
    table = dataflow.operators
    rows = np.flatnonzero(table["rank"].to_numpy() == rank)
    starts = table["start_ns"].to_numpy()[rows]
    order = np.argsort(starts, kind="stable")
    starts, phases = starts[order], table["phase"].to_numpy()[rows][order].astype(np.int64)
    if not len(starts):
        return np.zeros(len(times), np.int64), np.zeros(len(times), np.int64)
    part = np.concatenate([[0], np.cumsum(np.diff(phases) != 0)])
    at = np.maximum(np.searchsorted(starts, times, side="right") - 1, 0)
    return phases[at], part[at]


@dataclass(frozen=True)
class MemoryChanges:
    """Moments at which memory is taken or given back, and of which kind."""

    sizes: Ints
    # Places in ``KINDS``.
    kind: Ints

    def by_kind(self) -> dict[str, Ints]:
        """Return the change of each kind of memory at every moment."""
        return {name: np.where(self.kind == n, self.sizes, 0) for n, name in enumerate(KINDS)}


def classify_blocks(sizes: Ints, phases: Ints, parts: Ints) -> MemoryChanges:
    """Return the moments with what they take or give back."""
    open_blocks: dict[int, list[int]] = defaultdict(list)
    kind = np.full(len(sizes), -1, np.int64)
    freed = np.full(len(sizes), -1, np.int64)
    for at, size in enumerate(sizes.tolist()):
        if size > 0:
            open_blocks[size].append(at)
            continue
        blocks = open_blocks[-size]
        if not blocks:
            continue
        latest = blocks[-1]
        chosen = len(blocks) - 1 if parts[latest] == parts[at] else 0
        freed[at] = blocks.pop(chosen)
        kind[freed[at]] = _kind(phases[freed[at]], parts[freed[at]] == parts[at])
    for blocks in open_blocks.values():
        for block in blocks:
            kind[block] = _kind(phases[block], here=False)
    kind[freed >= 0] = kind[freed[freed >= 0]]
    kind[kind < 0] = KINDS.index(LEFT_OVER)
    return MemoryChanges(sizes, kind)


def _kind(phase: int, here: bool) -> int:
    if here:
        return KINDS.index(BUFFERS)
    by_phase = {Phase.FORWARD: ACTIVATIONS, Phase.BACKWARD: GRADIENTS, Phase.UPDATE: OPTIMIZER}
    return KINDS.index(by_phase[Phase(int(phase))])
