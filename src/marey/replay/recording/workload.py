"""A run as something that can be changed and replayed: which strategy it follows, and its words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from marey.model.errors import InvalidInput
from marey.model.training.dataflow import Dataflow, DeviceFlow
from marey.replay.device.device_run import (
    DeviceRun,
    plan_device,
    read_device_run,
    recorded_device_steps,
)
from marey.replay.families.data_parallel import (
    DataParallel,
    plan_data_parallel,
    read_data_parallel,
)
from marey.replay.families.fully_sharded import is_sharded
from marey.replay.families.parameter_server import find_servers
from marey.replay.families.pipeline_links import fit_message_links
from marey.replay.families.pipeline_parallel import Pipeline, plan_pipeline
from marey.replay.families.pipeline_reading import is_pipeline, read_pipeline
from marey.replay.programs import Graph
from marey.replay.recording.link_costs import Links
from marey.replay.recording.link_fitting import fit_links
from marey.replay.recording.recorded import (
    RecordedPrograms,
    fit_bandwidth,
    plan_recorded,
    read_recorded,
    refuse_unmatched,
)
from marey.replay.timeline import RankStep, read_timelines

Timelines = Mapping[int, Sequence[RankStep]]
Plan = DataParallel | Pipeline | RecordedPrograms | DeviceRun
# An operator's own host time, which more samples do not change.
HOST_MS = 0.05
# Less recomputation than this share of the running time is none.
LEAST_RECOMPUTED = 0.01
# From fewer steps than this no medians over inner steps can be taken.
FEW_STEPS = 4
# The relative scatter of steps where only one was recorded.
UNKNOWN_SCATTER = 0.02


class Refused(InvalidInput):
    """A change that this trace cannot support; says what is missing."""

    title = "Refused"


@dataclass(frozen=True)
class Workload:
    """One run, recorded or changed."""

    # "data-parallel", "pipeline", "parameter-server", "sharded", "device" or "recorded".
    strategy: str
    plan: Plan
    timelines: Timelines
    servers: tuple[int, ...] = ()
    # What a change took beyond what the run itself shows.
    extrapolated: tuple[str, ...] = ()

    @property
    def links(self) -> Links:
        """Return the links of the run."""
        return self.plan.links

    def graph(self) -> Graph:
        """Return the task graph of several steps."""
        if isinstance(self.plan, DataParallel):
            return plan_data_parallel(self.plan)
        if isinstance(self.plan, Pipeline):
            return plan_pipeline(self.plan)
        if isinstance(self.plan, DeviceRun):
            return plan_device(self.plan)
        return plan_recorded(self.plan)

    def batches(self) -> float:
        """Return how many batches a step trains on: one per working rank and accumulation."""
        if isinstance(self.plan, DataParallel):
            return float(len(self.plan.ranks) * self.plan.rounds)
        if isinstance(self.plan, Pipeline):
            return self.plan.samples_factor
        if isinstance(self.plan, DeviceRun):
            return self.plan.samples
        return float(len(self.plan.ranks) - len(self.servers))

    def count_meetings(self) -> int:
        """Return how often in a step all ranks wait for each other, at least once."""
        if isinstance(self.plan, DataParallel):
            return 1 if self.plan.overlapped else max(len(self.plan.syncs()), 1)
        if isinstance(self.plan, Pipeline | DeviceRun):
            return 1
        first = self.plan.programs[self.plan.ranks[0]]
        return max(sum(1 for mark in first.marks if mark.waits), 1)


def read_workload(dataflow: Dataflow) -> Workload:
    """Recognise the strategy of a run and read it; refuses what cannot be replayed."""
    device = dataflow.device
    run = _read_devices(device) if device is not None else read_timed(read_timelines(dataflow))
    if not dataflow.missing:
        return run
    return replace(run, extrapolated=(*run.extrapolated, _describe_missing(dataflow.missing)))


def _describe_missing(missing: Sequence[int]) -> str:
    few = ", ".join(map(str, missing[:4])) + (", …" if len(missing) > 4 else "")
    ranks = f"rank {few}, which was" if len(missing) == 1 else f"ranks {few}, which were"
    return f"{ranks} not recorded, taken to be like the others"


def _read_devices(flow: DeviceFlow) -> Workload:
    run = read_device_run(flow)
    steps = len(run.nodes.steps)
    few = (f"what is usual, from {steps} recorded steps",) if steps < FEW_STEPS else ()
    return Workload("device", run, {}, extrapolated=few)


def read_timed(timelines: Timelines, links: Links | None = None) -> Workload:
    """Return the workload of these timelines."""
    fitted = links is not None
    links = links or fit_links(timelines)
    servers = find_servers(timelines)
    if servers:
        plan = fit_bandwidth(read_matched(timelines, links), recorded_step_ms(timelines))
        return Workload("parameter-server", plan, timelines, servers)
    if is_pipeline(timelines):
        pipeline = read_pipeline(timelines, links)
        if not fitted:
            pipeline = fit_message_links(pipeline, timelines, recorded_step_ms(timelines))
        return Workload("pipeline", pipeline, timelines)
    if is_sharded(timelines):
        return Workload("sharded", read_matched(timelines, links), timelines)
    try:
        return Workload("data-parallel", read_data_parallel(timelines, links), timelines)
    except InvalidInput:
        return Workload("recorded", read_matched(timelines, links), timelines)


def read_matched(timelines: Timelines, links: Links) -> RecordedPrograms:
    """Return the run as it was recorded; refuses one whose ranks recorded different steps."""
    run = read_recorded(timelines, links)
    refuse_unmatched(run)
    return run


def measured_steps(run: Workload) -> tuple[float, float]:
    """Return the recorded time from step to step, and its relative scatter."""
    if isinstance(run.plan, DeviceRun):
        steps = recorded_device_steps(run.plan.nodes)
        scatter = float(np.std(steps) / np.mean(steps)) if len(steps) > 1 else UNKNOWN_SCATTER
        return float(np.mean(steps)), scatter
    return recorded_step_ms(run.timelines), step_scatter(run.timelines)


def recorded_step_ms(timelines: Timelines) -> float:
    """Return the recorded time from step to step, over inner steps and ranks."""
    return float(np.median([step.wall_ms for steps in timelines.values() for step in steps]))


def step_scatter(timelines: Timelines) -> float:
    """Return the relative scatter of the recorded inner steps."""
    by_step = [
        np.mean([steps[n].wall_ms for steps in timelines.values()])
        for n in range(min(len(steps) for steps in timelines.values()))
    ]
    return float(np.std(by_step) / np.mean(by_step)) if len(by_step) > 1 else UNKNOWN_SCATTER
