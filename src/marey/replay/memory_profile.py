"""What fills the memory of every rank over a step: as recorded, and under changes.

A profiler records sizes of allocations and releases. A release gives back the latest block of its
size from the same part of the step, else the oldest: what is let go where it was made is a buffer,
what the forward pass makes and a later part gives back is activations, what the backward pass
leaves for the update is gradients, and what the update leaves is the optimizer's. What is given
back without having been taken was left over from the step before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from marey.model.errors import InvalidInput
from marey.model.training.dataflow import Dataflow, Phase
from marey.replay.families.pipeline_parallel import Pipeline
from marey.replay.families.pipeline_schedules import Pass, make_schedule
from marey.replay.memory import (
    changes_memory,
    predict_memory,
    read_held,
    same_passes,
    trace_levels,
)
from marey.replay.model import Replayed, ReplayModel

Ints = NDArray[np.int64]
ACTIVATIONS, GRADIENTS, OPTIMIZER, BUFFERS = "activations", "gradients", "optimizer", "buffers"
# What the step before left, and this one gives back.
LEFT_OVER = "left over"
KINDS = (ACTIVATIONS, GRADIENTS, OPTIMIZER, BUFFERS, LEFT_OVER)
# A step is told in so many slices of time, each by its highest moment.
SLICES = 120
# Ranks of one strategy fill alike: beyond these, only the fullest are told.
MOST_RANKS = 16
NS_PER_MS = 1e6


@dataclass(frozen=True)
class MemoryProfile:
    """A rank's memory over one step: what the step takes, and gives back of the one before."""

    rank: int
    # What the rank held when the step began, where the profiler says; parameters and state.
    held_bytes: int | None
    # The size of its parameters, by their gradients; 0 where the trace shows none.
    parameter_bytes: int
    # What of it the step before had left over.
    left_over_bytes: int
    step_ms: float
    times_ms: tuple[float, ...]
    levels: dict[str, tuple[int, ...]]

    @property
    def peak_bytes(self) -> int:
        """Return the most at once, above what there was at the start of the step."""
        most = max(map(sum, zip(*self.levels.values(), strict=True)), default=0)
        return most - self.left_over_bytes


@dataclass(frozen=True)
class Memory:
    """What the ranks of a run fill: the most at once, and over a step; None where not known."""

    peaks: dict[int, int] | None
    profiles: list[MemoryProfile] | None


def read_memory(dataflow: Dataflow, model: ReplayModel, changes: Sequence[str] = ()) -> Memory:
    """Return the memory of a run with changes, as far as its trace says."""
    return Memory(
        predict_memory(dataflow, model, changes), profile_memory(dataflow, model, changes)
    )


def profile_memory(
    dataflow: Dataflow, model: ReplayModel, changes: Sequence[str] = ()
) -> list[MemoryProfile] | None:
    """Return the memory of every rank over a step, or None where the trace cannot say."""
    if not dataflow.allocations.num_rows:
        return None
    recorded = [p for rank in dataflow.ranks if (p := read_profile(dataflow, rank)) is not None]
    if not recorded:
        return None
    kept = sorted(sorted(recorded, key=lambda p: -p.peak_bytes)[:MOST_RANKS], key=lambda p: p.rank)
    if not changes:
        return kept
    changed = model.replay(changes)
    before, after = model.recorded.workload.plan, changed.workload.plan
    if (
        isinstance(before, Pipeline)
        and isinstance(after, Pipeline)
        and not same_passes(before, after)
    ):
        try:
            return [_predict_profile(dataflow, p, model.recorded, changed) for p in kept]
        except InvalidInput:
            return None
    elif changes_memory(changes):
        return None
    factor = changed.step_ms / model.recorded.step_ms
    return [_stretch(profile, factor) for profile in kept]


def read_profile(dataflow: Dataflow, rank: int) -> MemoryProfile | None:
    """Return the recorded memory of a rank over its last inner step."""
    window = _inner_step(dataflow, rank)
    table = dataflow.allocations
    mine = np.flatnonzero(table["rank"].to_numpy() == rank)
    if window is None or not len(mine):
        return None
    times, sizes = table["time_ns"].to_numpy()[mine], table["bytes"].to_numpy()[mine]
    totals = table["allocated_bytes"].to_numpy()[mine]
    inside = np.flatnonzero((times >= window[0]) & (times < window[1]))
    if not len(inside):
        return None
    first = int(inside[0])
    held = int(totals[first] - sizes[first]) if totals[first] >= 0 else None
    times, sizes = times[inside], sizes[inside]
    kinds = _classify(sizes, *_parts(dataflow, rank, times))
    parameters = _parameter_bytes(dataflow, rank, window)
    step_ms = (window[1] - window[0]) / NS_PER_MS
    times_ms, levels = _slice((times - window[0]) / NS_PER_MS, kinds, step_ms)
    return MemoryProfile(
        rank=rank,
        # Counted from the profiler's start it is less than the parameters alone: not known.
        held_bytes=held if held is not None and held >= max(parameters, 1) else None,
        parameter_bytes=parameters,
        left_over_bytes=-int(kinds[LEFT_OVER].sum()),
        step_ms=step_ms,
        times_ms=times_ms,
        levels=levels,
    )


def _inner_step(dataflow: Dataflow, rank: int) -> tuple[int, int] | None:
    steps = dataflow.steps
    rows = np.flatnonzero(steps["rank"].to_numpy() == rank)
    starts = np.sort(steps["start_ns"].to_numpy()[rows])
    if len(starts) < 3:
        return None
    return int(starts[-2]), int(starts[-1])


def _parameter_bytes(dataflow: Dataflow, rank: int, window: tuple[int, int]) -> int:
    table = dataflow.gradients
    ready = table["ready_ns"].to_numpy()
    mine = (table["rank"].to_numpy() == rank) & (ready >= window[0]) & (ready < window[1])
    # With several micro-batches each gradient becomes ready several times.
    sizes, counts = np.unique(table["bytes"].to_numpy()[mine], return_counts=True)
    if not len(sizes):
        return 0
    rounds = int(np.gcd.reduce(counts))
    return int(np.sum(sizes * counts) // max(rounds, 1))


def _parts(dataflow: Dataflow, rank: int, times: Ints) -> tuple[Ints, Ints]:
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


def _classify(sizes: Ints, phases: Ints, parts: Ints) -> dict[str, Ints]:
    """Return what every moment adds to each kind of memory, or takes from it."""
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
    return {name: np.where(kind == n, sizes, 0) for n, name in enumerate(KINDS)}


def _kind(phase: int, here: bool) -> int:
    if here:
        return KINDS.index(BUFFERS)
    by_phase = {Phase.FORWARD: ACTIVATIONS, Phase.BACKWARD: GRADIENTS, Phase.UPDATE: OPTIMIZER}
    return KINDS.index(by_phase[Phase(int(phase))])


def _slice(
    times_ms: NDArray[np.float64], changes: dict[str, Ints], step_ms: float
) -> tuple[tuple[float, ...], dict[str, tuple[int, ...]]]:
    """Return the highest moment of every slice of the step, and what memory was full of then."""
    levels = {name: np.cumsum(values) for name, values in changes.items()}
    levels[LEFT_OVER] = levels[LEFT_OVER] - levels[LEFT_OVER][-1]
    total = np.sum(list(levels.values()), axis=0)
    edges = np.linspace(0.0, step_ms, SLICES + 1)
    chosen: list[int] = []
    for low, high in pairwise(np.searchsorted(times_ms, edges).tolist()):
        if high > low:
            chosen.append(low + int(np.argmax(total[low:high])))
        # The level at which the slice ends stays until something changes.
        if high > low and chosen[-1] != high - 1:
            chosen.append(high - 1)
    return (
        tuple(round(float(times_ms[n]), 4) for n in chosen),
        {name: tuple(int(own[n]) for n in chosen) for name, own in levels.items()},
    )


def _stretch(profile: MemoryProfile, factor: float) -> MemoryProfile:
    """Return the profile of a step that takes longer or shorter, and holds the same."""
    return replace(
        profile,
        step_ms=profile.step_ms * factor,
        times_ms=tuple(round(ms * factor, 4) for ms in profile.times_ms),
    )


def _predict_profile(
    dataflow: Dataflow, recorded: MemoryProfile, before: Replayed, after: Replayed
) -> MemoryProfile:
    """Return a rank's memory under another schedule, at the times of the replay."""
    was, to = before.workload.plan, after.workload.plan
    assert isinstance(was, Pipeline)
    assert isinstance(to, Pipeline)
    place = to.ranks.index(recorded.rank)
    timeline = before.workload.timelines[recorded.rank]
    held = read_held(dataflow, timeline, was, to)
    turns = make_schedule(to.schedule, to.shape)[place]
    moments = trace_levels(held, turns, to.samples)
    ends = _pass_ends(after, recorded.rank)
    if len(ends) != sum(isinstance(turn, Pass) for turn in turns):
        raise InvalidInput("The replay runs other passes than the schedule.")
    times, rows = [], []
    for moment in moments:
        begin, end = ends[moment.passes - 1] if moment.passes else (0.0, 0.0)
        times.append(begin if moment.within else end)
        rows.append(moment)
    return replace(
        recorded,
        left_over_bytes=0,
        step_ms=after.step_ms,
        times_ms=tuple(round(float(ms), 4) for ms in times),
        levels={
            ACTIVATIONS: tuple(int(m.activations) for m in rows),
            GRADIENTS: tuple(int(m.gradients) for m in rows),
            OPTIMIZER: tuple(0 for _ in rows),
            BUFFERS: tuple(int(m.buffers) for m in rows),
            LEFT_OVER: tuple(0 for _ in rows),
        },
    )


def _pass_ends(run: Replayed, rank: int) -> list[tuple[float, float]]:
    """Return when the passes of a rank begin and end in a step that has found its pace."""
    graph, step = run.graph, run.graph.settling
    mine = np.flatnonzero((graph.ranks == rank) & (graph.steps == step))
    passes = [n for n in mine.tolist() if graph.labels[n][:1] in ("F", "B") and graph.labels[n][1:]]
    own = [n for n in passes if graph.labels[n][1:].isdigit()]
    begin = float(run.schedule.start[mine].min()) if len(mine) else 0.0
    return sorted(
        (float(run.schedule.start[n]) - begin, float(run.schedule.finish[n]) - begin) for n in own
    )
