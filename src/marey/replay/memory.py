"""Memory of every rank over a step: as recorded, and under another pipeline schedule.

What a pass allocates lives until something frees it: activations until their own backward pass, a
gradient that is sent until its send is waited for, outputs and parameter gradients until the step
ends. The sizes come from the recorded levels around each pass; another schedule only changes when
they overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from marey.model.errors import InvalidInput
from marey.model.training.dataflow import Dataflow, Phase
from marey.replay.device.device_run import DeviceRun
from marey.replay.families.pipeline_parallel import Pipeline
from marey.replay.families.pipeline_reading import read_passes
from marey.replay.families.pipeline_schedules import (
    BACKWARD,
    FORWARD,
    MessageWait,
    Pass,
    Turn,
    make_schedule,
)
from marey.replay.model import ReplayModel
from marey.replay.step_memory.recomputed import find_recompute, predict_recomputed_peak
from marey.replay.timeline import RankStep

NS_PER_MS = 1e6
# Changes after which a step takes something else. Sharded, offloaded or pruned state is held from
# step to step.
MEMORY_WORDS = frozenset(
    {"recompute", "reshard", "sync", "servers", "micro-batches", "bucket", "batch"}
    | {"precision", "overlap"}
)


@dataclass(frozen=True)
class Levels:
    """A rank's allocated bytes over one step, above what was there at its start."""

    times_ns: NDArray[np.int64]
    bytes: NDArray[np.int64]

    @property
    def peak(self) -> int:
        """Return the most that was allocated at once."""
        return int(self.bytes.max(initial=0))

    def at(self, time_ns: float) -> int:
        """Return the level at a moment."""
        place = int(np.searchsorted(self.times_ns, time_ns, side="right")) - 1
        return int(self.bytes[place]) if place >= 0 else 0

    def most(self, start_ns: float, end_ns: float) -> int:
        """Return the highest level between two moments."""
        low, high = np.searchsorted(self.times_ns, [start_ns, end_ns])
        inside = self.bytes[low:high]
        return max(int(inside.max(initial=0)), self.at(start_ns))


def read_levels(dataflow: Dataflow, step: RankStep) -> Levels:
    """Return the levels of one step of a rank; refuses a trace without allocations."""
    table = dataflow.allocations
    mine = np.flatnonzero(table["rank"].to_numpy() == step.rank)
    if not len(mine):
        raise InvalidInput("The trace holds no allocations; record with profile_memory=True.")
    times, sizes = table["time_ns"].to_numpy()[mine], table["bytes"].to_numpy()[mine]
    end = step.start_ns + int(step.wall_ms * NS_PER_MS)
    inside = (times >= step.start_ns) & (times < end)
    return Levels(times[inside], np.cumsum(sizes[inside]))


def read_peaks(dataflow: Dataflow, timelines: Mapping[int, Sequence[RankStep]]) -> dict[int, int]:
    """Return the recorded peak of every rank above the start of its steps."""
    return {
        rank: int(np.median([read_levels(dataflow, step).peak for step in steps]))
        for rank, steps in timelines.items()
    }


def predict_memory(
    dataflow: Dataflow, model: ReplayModel, changes: Sequence[str]
) -> dict[int, int] | None:
    """Return every rank's peak above the start of a step, or None where the trace shows none."""
    if not dataflow.allocations.num_rows:
        return None
    before = model.recorded.workload
    if isinstance(before.plan, DeviceRun):
        peaks_known = not changes_memory(changes) and not find_recompute(changes)
        return _device_peaks(dataflow) if peaks_known else None
    after = model.replay(changes).workload
    if isinstance(before.plan, Pipeline) and isinstance(after.plan, Pipeline):
        if same_passes(before.plan, after.plan):
            return read_peaks(dataflow, before.timelines)
        try:
            return predict_peaks(dataflow, before.timelines, before.plan, after.plan)
        except InvalidInput:
            return None
    if changes_memory(changes):
        return None
    every = find_recompute(changes)
    if not every:
        return read_peaks(dataflow, before.timelines)
    try:
        return {
            rank: predict_recomputed_peak(dataflow, steps[-1], every)
            for rank, steps in before.timelines.items()
        }
    except InvalidInput:
        return None


def same_passes(one: Pipeline, other: Pipeline) -> bool:
    """Return whether two pipelines run the same passes in the same order, so hold the same."""
    return (
        one.schedule == other.schedule
        and one.shape == other.shape
        and one.spread == other.spread
        and one.samples == other.samples
    )


def _device_peaks(dataflow: Dataflow) -> dict[int, int] | None:
    """Return every rank's peak above the start of its inner steps, on its device."""
    steps, table = dataflow.steps, dataflow.allocations
    peaks = {}
    for rank in dataflow.ranks:
        starts = np.sort(steps["start_ns"].to_numpy()[steps["rank"].to_numpy() == rank])
        mine = np.flatnonzero(table["rank"].to_numpy() == rank)
        times, sizes = table["time_ns"].to_numpy()[mine], table["bytes"].to_numpy()[mine]
        found = [
            int(np.cumsum(sizes[(times >= low) & (times < high)]).max(initial=0))
            for low, high in pairwise(starts[1:].tolist())
        ]
        if not found or not len(mine):
            return None
        peaks[rank] = int(np.median(found))
    return peaks


def changes_memory(changes: Sequence[str]) -> bool:
    """Return whether one of the changes makes a rank hold more or less than was recorded."""
    words = {text.partition("=")[0] for text in changes}
    # What recomputing frees is known from the allocations of a run that does not do so yet.
    known = {"recompute"} if find_recompute(changes) else set()
    return bool(words & (MEMORY_WORDS - known))


@dataclass(frozen=True)
class Lifetimes:
    """What the passes of one rank hold, in bytes, and until when."""

    # Until the micro-batch's own backward pass.
    activations: float
    # Until the message a backward pass makes is waited for.
    sent: float
    # Until the end of the step, per micro-batch and once.
    outputs: float
    gradients: float
    inputs: float
    # How far a pass rises above the level it starts from.
    forward_rise: float
    backward_rise: float


def read_lifetimes(dataflow: Dataflow, step: RankStep, micro_batches: int) -> Lifetimes:
    """Return the memory that the passes of a rank hold, from the levels around them."""
    levels = read_levels(dataflow, step)
    passes = read_passes(step)
    spans = [
        (p.kind, step.start_ns + p.began_ms * NS_PER_MS, step.start_ns + p.ended_ms * NS_PER_MS)
        for p in passes
    ]
    starts = [levels.at(begin - 1) for _, begin, _ in spans]
    ends = [levels.at(end) for _, _, end in spans]
    update = next((op for op in step.operators if op.phase == Phase.UPDATE), None)
    last = step.start_ns + (update.began_ms if update else step.wall_ms) * NS_PER_MS
    after = [*starts[1:], levels.at(last - 1)]
    forward = [n for n, span in enumerate(spans) if span[0] == FORWARD]
    backward = [n for n, span in enumerate(spans) if span[0] == BACKWARD]
    rises = {n: levels.most(spans[n][1], spans[n][2]) - starts[n] for n in range(len(spans))}

    def middle(values: Sequence[float]) -> float:
        return float(np.median(values)) if values else 0.0

    later_f, later_b = forward[1:] or forward, backward[1:] or backward
    kept = middle([after[n] - starts[n] for n in later_f if after[n] >= starts[n]])
    change = middle([ends[n] - starts[n] for n in later_b])
    dropped = middle([ends[n] - after[n] for n in later_b[:-1]])
    sent = dropped if dropped > 0 else max(ends[-1] - after[-1], 0) / micro_batches
    activations = max(sent - change, 0.0)
    return Lifetimes(
        activations=activations,
        sent=sent,
        outputs=max(kept - activations, 0.0),
        gradients=max(ends[backward[0]] - starts[backward[0]] - change, 0.0),
        inputs=max(
            ends[forward[0]] - starts[forward[0]] - middle([ends[n] - starts[n] for n in later_f]),
            0.0,
        ),
        forward_rise=middle([rises[n] for n in later_f]),
        backward_rise=middle([rises[n] for n in later_b]),
    )


def predict_peaks(
    dataflow: Dataflow,
    timelines: Mapping[int, Sequence[RankStep]],
    recorded: Pipeline,
    to: Pipeline,
) -> dict[int, int]:
    """Return every rank's peak under the changed pipeline's schedule and micro-batches."""
    turns = make_schedule(to.schedule, to.shape)
    found = {}
    for place, rank in enumerate(to.ranks):
        held = read_held(dataflow, timelines[rank], recorded, to)
        found[rank] = int(max(m.level for m in trace_levels(held, turns[place], to.samples)))
    return found


def read_held(
    dataflow: Dataflow, timeline: Sequence[RankStep], recorded: Pipeline, to: Pipeline
) -> Lifetimes:
    """Return the memory that a rank's passes hold in the changed pipeline; refuses other stages."""
    if to.spread != recorded.spread or to.virtual > 1 or recorded.virtual > 1:
        raise InvalidInput(
            "Memory is predicted for the recorded stages only: what each layer holds on its own is "
            "not in the trace."
        )
    return read_lifetimes(dataflow, timeline[-1], recorded.micro_batches)


@dataclass(frozen=True)
class Moment:
    """What a rank holds after some of its passes, or at the highest point within the last."""

    passes: int
    within: bool
    activations: float
    gradients: float
    buffers: float

    @property
    def level(self) -> float:
        """Return all of it."""
        return self.activations + self.gradients + self.buffers


def trace_levels(held: Lifetimes, turns: Sequence[Turn], samples: float) -> list[Moment]:
    """Return the memory of a rank after each turn."""
    activations = gradients = 0.0
    buffers = held.inputs
    passes = 0
    waiting: list[Pass] = []
    moments: list[Moment] = []

    def note(within: bool = False, rise: float = 0.0) -> None:
        moments.append(Moment(passes, within, activations, gradients, buffers + rise))

    note()
    # Where sends are posted together with the next receive, their buffers are let go when the next
    # ones take their place: one backward pass later.
    in_turn = any(isinstance(t, MessageWait) and t.sent and t.received for t in turns)
    for turn in turns:
        if isinstance(turn, MessageWait):
            gone = waiting[:-1] if in_turn else [p for p in waiting if p in turn.sent]
            buffers -= held.sent * samples * len(gone)
            waiting = [p for p in waiting if p not in gone]
            continue
        if not isinstance(turn, Pass):
            continue
        passes += 1
        if turn.kind == FORWARD:
            note(True, held.forward_rise * samples)
            activations += held.activations * samples
            buffers += held.outputs * samples
        else:
            extra = 0.0 if gradients else held.gradients
            note(True, held.backward_rise * samples + extra)
            gradients = held.gradients
            activations -= held.activations * samples
            buffers += held.sent * samples
            waiting.append(turn)
        note()
    return moments
