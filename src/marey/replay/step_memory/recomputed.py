"""What a rank holds over a step if activations of blocks are let go and computed again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from marey.model.errors import InvalidInput
from marey.model.training.dataflow import Dataflow, Phase
from marey.replay.changes import read_changes
from marey.replay.recording.blocks import find_repeats
from marey.replay.step_memory.memory_kinds import (
    ACTIVATIONS,
    KINDS,
    Ints,
    classify_blocks,
    find_parts,
)
from marey.replay.timeline import RankStep

NS_PER_MS = 1e6


def find_recompute(changes: Sequence[str]) -> int:
    """Return which blocks are recomputed: every n-th; 0 where none are."""
    found = [c.get_count() for c in read_changes(changes) if c.word == "recompute"]
    return found[0] if found else 0


def recompute_moments(
    dataflow: Dataflow, step: RankStep, every: int
) -> tuple[NDArray[np.float64], dict[str, Ints]]:
    """Return moments of a step, in ms, and what each adds to a kind of memory or takes from it.

    A block keeps what it hands on, the last it takes. Everything else it takes in the forward pass
    is given back at its end, and taken again where its backward pass begins: until then it is held
    in the recorded run, whichever release of that size is called its own.
    """
    times, sizes = _read_step(dataflow, step)
    blocks = classify_blocks(sizes, *find_parts(dataflow, step.rank, times))
    at = (times - step.start_ns) / NS_PER_MS
    kind = blocks.kind.tolist()
    activations = KINDS.index(ACTIVATIONS)
    added: list[tuple[float, int, int]] = []
    for begin, end, back in _find_spans(step)[::every]:
        own = (blocks.kind == activations) & (sizes > 0) & (at >= begin) & (at < end)
        for block in np.flatnonzero(own).tolist()[:-1]:
            added.append((end, -int(sizes[block]), activations))
            added.append((back, int(sizes[block]), activations))
    moments = [*zip(at.tolist(), sizes.tolist(), kind, strict=True), *added]
    moments.sort(key=lambda moment: moment[0])
    when, size, of = (np.array(column) for column in zip(*moments, strict=True))
    changes = {name: np.where(of == n, size, 0) for n, name in enumerate(KINDS)}
    return when.astype(np.float64), changes


def _read_step(dataflow: Dataflow, step: RankStep) -> tuple[Ints, Ints]:
    """Return when a step takes or gives back memory, and how much."""
    table = dataflow.allocations
    times = table["time_ns"].to_numpy()
    end = step.start_ns + int(step.wall_ms * NS_PER_MS)
    rank = table["rank"].to_numpy()
    mine = np.flatnonzero((rank == step.rank) & (times >= step.start_ns) & (times < end))
    if not len(mine):
        raise InvalidInput("The trace holds no allocations; record with profile_memory=True.")
    return times[mine], table["bytes"].to_numpy()[mine]


def _find_spans(step: RankStep) -> list[tuple[float, float, float]]:
    """Return when each block's forward pass begins and ends, and when its backward pass begins.

    The last block of the forward pass comes first.
    """
    forward = [op for op in step.operators if op.phase == Phase.FORWARD]
    backward = [op for op in step.operators if op.phase == Phase.BACKWARD]
    if backward:
        forward = [op for op in forward if op.began_ms < backward[0].began_ms]
    repeats = find_repeats([op.name for op in forward])
    if repeats is None:
        raise InvalidInput("No repeated blocks are visible in the forward pass.")
    mirrored = find_repeats([op.name for op in backward], repeats.count)
    if mirrored is None:
        raise InvalidInput("The backward pass does not show the blocks of the forward pass.")
    starts = repeats.starts()
    edges = [forward[at].began_ms for at in starts]
    last = min(starts[-1] + repeats.period, len(forward)) - 1
    edges.append(forward[last].ended_ms)
    spans = list(pairwise(edges))[::-1]
    backs = [backward[at].began_ms for at in mirrored.starts()]
    return [(begin, end, back) for (begin, end), back in zip(spans, backs, strict=True)]


def predict_recomputed_peak(dataflow: Dataflow, step: RankStep, every: int) -> int:
    """Return the most that a rank holds at once above the start of its step."""
    _, changes = recompute_moments(dataflow, step, every)
    return int(np.cumsum(np.sum(list(changes.values()), axis=0)).max(initial=0))
