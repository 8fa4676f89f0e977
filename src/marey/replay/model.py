"""Replay a run, and predict what a change would make of its step time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from marey.model.errors import InvalidInput
from marey.model.training.dataflow import Dataflow
from marey.replay.changes import Change, read_changes
from marey.replay.device.device_run import DeviceRun
from marey.replay.programs import Graph, step_ms
from marey.replay.recording.workload import (
    Workload,
    measured_steps,
    read_workload,
)
from marey.replay.words.apply import change_workload
from marey.stats.resource_schedule import Schedule

# Half-widths, as shares: of the whole step for what two recordings of one run differ by, of the
# time that a change adds or takes away, and of the step for everything said to be extrapolated.
BASE_HALF_WIDTH = 0.03
CHANGED_HALF_WIDTH = 0.08
EXTRAPOLATED_HALF_WIDTH = 0.03
# How well the speed of links is known: relative, and once more for every doubling of it.
LINK_DOUBT = 0.05
# How much of the way to the worst of the other explanations of a run is doubted.
CHOICE_DOUBT = 0.5
# A normal distribution's central 80 % lies within this many deviations.
DEVIATIONS = 1.2816
# Where the unchanged replay misses the recording by more, no prediction is made.
WORST_SELF_ERROR = 0.25


@dataclass(frozen=True)
class Prediction:
    """The step time of a changed run, with the interval that holds it in 80 % of cases."""

    changes: tuple[str, ...]
    predicted_ms: float
    low_ms: float
    high_ms: float
    # The unchanged run, as measured (plain if known) and as replayed.
    base_ms: float
    extrapolated: tuple[str, ...]
    # How many times the recorded samples a changed step trains on.
    samples: float = 1.0

    @property
    def speedup(self) -> float:
        """Return how many times as many samples are trained on in the same time."""
        return self.samples * self.base_ms / self.predicted_ms

    @property
    def gain(self) -> float:
        """Return the share of the step's time that is saved; negative where it is lost."""
        return 1.0 - self.predicted_ms / self.base_ms


@dataclass(frozen=True)
class Replayed:
    """A run or a changed run, scheduled."""

    workload: Workload
    graph: Graph
    schedule: Schedule
    step_ms: float


@dataclass(frozen=True)
class ReplayModel:
    """A run that can be replayed with changes."""

    recorded: Replayed
    recorded_ms: float
    scatter: float
    # The time of a step without the profiler, where the user knows it.
    plain_ms: float | None = None

    @property
    def base_ms(self) -> float:
        """Return the step time that predictions are relative to."""
        return self.plain_ms if self.plain_ms is not None else self.recorded_ms

    @property
    def self_error(self) -> float:
        """Return how much the unchanged replay differs from the recorded step."""
        return self.recorded.step_ms / self.recorded_ms - 1.0

    def replay(self, changes: Sequence[Change | str] = ()) -> Replayed:
        """Return the run with these changes, scheduled."""
        parsed = _parse_changes(changes)
        if not parsed:
            return self.recorded
        return replay_workload(change_workload(self.recorded.workload, parsed))

    def predict(self, changes: Sequence[Change | str] = ()) -> Prediction:
        """Return the step time that these changes would lead to."""
        parsed = _parse_changes(changes)
        if abs(self.self_error) > WORST_SELF_ERROR:
            raise InvalidInput(
                f"The unchanged replay takes {self.recorded.step_ms:.0f} ms where "
                f"{self.recorded_ms:.0f} ms were recorded: this run is not understood well enough "
                "to predict changes of it."
            )
        changed = self.replay(parsed)
        predicted = self._to_base(changed)
        half = self._half_width(predicted, changed) if parsed else self.scatter
        return Prediction(
            changes=tuple(str(change) for change in parsed),
            predicted_ms=predicted,
            low_ms=predicted * max(1.0 - half, 0.0),
            high_ms=predicted * (1.0 + half),
            base_ms=self.base_ms,
            extrapolated=changed.workload.extrapolated,
            samples=changed.workload.batches() / self.recorded.workload.batches(),
        )

    def _to_base(self, changed: Replayed) -> float:
        """Return a replayed time as it would be measured.

        What the unchanged replay misses is lost where ranks meet unevenly, so it grows with the
        meetings of a step; profiling makes everything slower alike.
        """
        before = self.recorded.workload.count_meetings()
        meetings = changed.workload.count_meetings() / before if before else 1.0
        rest = (self.recorded_ms - self.recorded.step_ms) * meetings
        return max(changed.step_ms + rest, 0.0) * self.base_ms / self.recorded_ms

    def _half_width(self, predicted: float, changed: Replayed) -> float:
        """Return the relative half-width of the interval: independent doubts, added in squares."""
        moved = abs(predicted - self.base_ms) / predicted
        doubts = [
            BASE_HALF_WIDTH,
            DEVIATIONS * self.scatter / np.sqrt(3.0),
            CHANGED_HALF_WIDTH * min(moved, 1.0),
            0.5 * abs(self.self_error),
            0.5 * abs(self.base_ms / self.recorded_ms - 1.0),
            self._link_doubt(changed),
            CHOICE_DOUBT * _choice_doubt(changed),
            EXTRAPOLATED_HALF_WIDTH * len(changed.workload.extrapolated),
        ]
        return float(np.sqrt(np.sum(np.square(doubts))))

    def _link_doubt(self, changed: Replayed) -> float:
        """Return how much the prediction would differ if links were a little slower than fitted.

        The unchanged run would be replayed slower too, so only what differs between both counts.
        """
        before, after = self.recorded.workload.links.up, changed.workload.links.up
        if not before or not after:
            return 0.0
        doublings = abs(float(np.log2(np.median(after) / np.median(before))))
        share = LINK_DOUBT * (1.0 + doublings)
        lost = [_slow_links(run, share) - run.step_ms for run in (changed, self.recorded)]
        return abs(lost[0] - lost[1]) / changed.step_ms


def _slow_links(run: Replayed, share: float) -> float:
    """Return the step of a run over links that are slower by a share."""
    graph = run.graph
    costs = replace(graph.costs, bandwidth=graph.costs.bandwidth * (1.0 - share))
    return step_ms(graph, graph.schedule(costs))


def _choice_doubt(changed: Replayed) -> float:
    """Return how far the step would be off if other links that explain the run were the true ones.

    They differ only in what the run does not show, as the time of messages of another size.
    """
    if isinstance(changed.workload.plan, DeviceRun):
        other = changed.workload.plan.explain_otherwise()
        if other is None:
            return 0.0
        run = replay_workload(replace(changed.workload, plan=other))
        # Of two ways to explain a run each is as likely as the other.
        return abs(run.step_ms / changed.step_ms - 1.0) / CHOICE_DOUBT
    costs = changed.graph.costs
    steps = [
        step_ms(
            changed.graph,
            changed.graph.schedule(
                replace(
                    costs,
                    bandwidth=costs.bandwidth * choice.factor,
                    credit=np.full(len(costs.bandwidth), choice.credit_bytes),
                )
            ),
        )
        for choice in changed.workload.links.as_good
    ]
    return max((abs(step / changed.step_ms - 1.0) for step in steps), default=0.0)


def _parse_changes(changes: Sequence[Change | str]) -> tuple[Change, ...]:
    return read_changes([str(change) for change in changes])


def replay_workload(workload: Workload) -> Replayed:
    """Return the workload scheduled over several steps."""
    graph = workload.graph()
    schedule = graph.schedule()
    return Replayed(workload, graph, schedule, step_ms(graph, schedule))


def replay_model(dataflow: Dataflow, plain_step_ms: float | None = None) -> ReplayModel:
    """Return the model of a run from its data-flow tables."""
    if plain_step_ms is not None and not 0 < plain_step_ms < float("inf"):
        raise InvalidInput(f"A step of {plain_step_ms} ms is none; give a positive time in ms.")
    workload = read_workload(dataflow)
    replayed = replay_workload(workload)
    recorded_ms, scatter = measured_steps(workload)
    return ReplayModel(replayed, recorded_ms, scatter, plain_step_ms)
