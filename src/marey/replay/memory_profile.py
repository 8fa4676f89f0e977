"""What fills the memory of every rank over a step: as recorded, and under changes.

A profiler records sizes of allocations and releases. A release gives back the latest block of its
size from the same part of the step, else the oldest: what is let go where it was made is a buffer,
what the forward pass makes and a later part gives back is activations, what the backward pass
leaves for the update is gradients, and what the update leaves is the optimizer's. What is given
back without having been taken was left over from the step before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from marey.model.errors import InvalidInput
from marey.model.training.dataflow import Dataflow
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
from marey.replay.step_memory.held_state import change_held
from marey.replay.step_memory.memory_kinds import (
    ACTIVATIONS,
    BUFFERS,
    GRADIENTS,
    LEFT_OVER,
    OPTIMIZER,
    classify_blocks,
    find_parts,
)
from marey.replay.step_memory.recomputed import find_recompute, recompute_moments

Ints = NDArray[np.int64]
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
    every = find_recompute(changes)
    if every:
        try:
            kept = [_recompute(dataflow, p, model.recorded, every) for p in kept]
        except InvalidInput:
            return None
    factor = changed.step_ms / model.recorded.step_ms
    return [_stretch(change_held(p, changes, len(dataflow.ranks)), factor) for p in kept]


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
    kinds = classify_blocks(sizes, *find_parts(dataflow, rank, times)).by_kind()
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


def _recompute(
    dataflow: Dataflow, recorded: MemoryProfile, run: Replayed, every: int
) -> MemoryProfile:
    """Return a rank's memory if activations of blocks are let go and made again."""
    step = run.workload.timelines[recorded.rank][-1]
    times_ms, changes = recompute_moments(dataflow, step, every)
    times, levels = _slice(times_ms, changes, recorded.step_ms)
    return replace(recorded, times_ms=times, levels=levels)


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
