"""Pipeline-parallel training: stages of layers, micro-batches, messages between neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from marey.model.errors import InvalidInput
from marey.replay.families.pipeline_schedules import (
    BACKWARD,
    FORWARD,
    WEIGHT,
    MessageWait,
    Pass,
    Send,
    Shape,
    Turn,
    make_schedule,
    order_by_arrival,
    order_zero_bubble,
    post_receives_ahead,
)
from marey.replay.programs import (
    Action,
    Graph,
    Plan,
    Post,
    ReadyNotice,
    Run,
    Started,
    Transfer,
    Wait,
    unroll,
)
from marey.replay.recording.link_costs import Links

MESSAGE_DRIVEN, ZERO_BUBBLE = "message-driven", "zero-bubble"
# The share of a backward pass that computes the gradients of the stage's own weights.
WEIGHT_SHARE = 0.5
# From a rank's posting a receive to its sender's knowing, where nothing else is on the way.
NOTICE_MS = 0.05
# What TCP keeps of one connection in the queue of a link: a few of its largest segments.
TURN_BYTES = 262_144.0


@dataclass(frozen=True)
class Cost:
    """Time that stays, and time that grows with the samples of a micro-batch."""

    fixed_ms: float = 0.0
    scaled_ms: float = 0.0

    def at(self, samples: float) -> float:
        """Return the time with this many times the recorded samples."""
        return self.fixed_ms + self.scaled_ms * samples

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.fixed_ms + other.fixed_ms, self.scaled_ms + other.scaled_ms)

    def __mul__(self, factor: float) -> Cost:
        return Cost(self.fixed_ms * factor, self.scaled_ms * factor)


@dataclass(frozen=True)
class Layer:
    """One layer's passes."""

    forward: Cost
    backward: Cost


@dataclass(frozen=True)
class Stage:
    """What a rank adds around its layers in each pass, and once per step."""

    forward: Cost
    backward: Cost
    head_ms: float
    tail_ms: float
    # How much of a pass's time goes by before its rank waits for the message: posting others.
    before_wait_ms: float = 0.0


@dataclass(frozen=True)
class Pipeline:
    """A pipeline run: layers in order, how they are spread, and the schedule."""

    ranks: tuple[int, ...]
    links: Links
    layers: tuple[Layer, ...]
    # What surrounds the layers, by rank in order of the pipeline.
    stages: tuple[Stage, ...]
    # Layers of every stage, in order of the stages.
    spread: tuple[int, ...]
    schedule: str
    virtual: int
    micro_batches: int
    recorded_micro_batches: int
    message_bytes: float
    receives_ahead: bool = False
    samples_factor: float = 1.0

    @property
    def shape(self) -> Shape:
        """Return the shape that schedules are made for."""
        return Shape(len(self.ranks), self.virtual, self.micro_batches)

    @property
    def samples(self) -> float:
        """Return the samples of a micro-batch, in those of a recorded one."""
        return self.samples_factor * self.recorded_micro_batches / self.micro_batches


def median_cost(costs: Sequence[Cost]) -> Cost:
    return Cost(
        float(np.median([c.fixed_ms for c in costs])),
        float(np.median([c.scaled_ms for c in costs])),
    )


def plan_pipeline(run: Pipeline) -> Graph:
    """Return the task graph of several steps of the pipeline."""
    costs = _pass_costs(run)
    turns = make_turns(run, costs)

    def add_step(plan: Plan, number: int) -> None:
        for place, rank in enumerate(run.ranks):
            stage = run.stages[place]
            actions: list[Action] = [Run(stage.head_ms, "head")]
            early = 0.0
            for turn in turns[place]:
                if isinstance(turn, MessageWait) and turn.received:
                    early = stage.before_wait_ms
                    actions.append(Run(early, "host"))
                elif isinstance(turn, Pass):
                    ms = costs[(turn.kind, turn.stage)]
                    actions.append(Run(max(ms - early, 0.0), f"{turn.kind}{turn.stage}"))
                    early = 0.0
                actions += _exchange(run, plan=plan, turn=turn, step=number)
            actions.append(Run(stage.tail_ms, "tail"))
            plan.extend(rank, actions)

    return unroll(run.links, add_step)


def fix_stages(run: Pipeline, ranks: Sequence[int]) -> Pipeline:
    """Return the pipeline with the layers of these ranks as fast as is usual on the others."""
    unknown = [rank for rank in ranks if rank not in run.ranks]
    if unknown:
        known = ", ".join(map(str, run.ranks))
        raise InvalidInput(f"Unknown rank {unknown[0]}; this run has ranks {known}.")
    owners = [
        run.shape.rank_of(stage) for stage, count in enumerate(run.spread) for _ in range(count)
    ]
    broken = {run.ranks.index(rank) for rank in ranks}
    healthy = [
        layer for layer, owner in zip(run.layers, owners, strict=True) if owner not in broken
    ]
    if not healthy:
        raise InvalidInput("No rank is left to say how fast a layer usually is.")
    usual = Layer(
        median_cost([layer.forward for layer in healthy]),
        median_cost([layer.backward for layer in healthy]),
    )
    layers = tuple(
        usual if owner in broken else layer for layer, owner in zip(run.layers, owners, strict=True)
    )
    return replace(run, layers=layers)


def make_turns(run: Pipeline, costs: Mapping[tuple[str, int], float]) -> list[list[Turn]]:
    """Return every rank's turns under the run's schedule."""
    if run.schedule in (MESSAGE_DRIVEN, ZERO_BUBBLE):
        size = max(run.message_bytes * run.samples - run.links.credit_bytes, 0.0)
        message = run.links.message_latency_ms + size / min(run.links.up)
        order = order_by_arrival if run.schedule == MESSAGE_DRIVEN else order_zero_bubble
        return order(run.shape, lambda p: costs[(p.kind, p.stage)], message)
    turns = make_schedule(run.schedule, run.shape)
    return post_receives_ahead(turns) if run.receives_ahead else turns


def _pass_costs(run: Pipeline) -> dict[tuple[str, int], float]:
    """Return how long each kind of pass through each stage takes."""
    if sum(run.spread) != len(run.layers):
        raise InvalidInput(
            f"The stages {','.join(map(str, run.spread))} hold {sum(run.spread)} layers, but the "
            f"trace shows {len(run.layers)}."
        )
    costs, first = {}, 0
    for stage, count in enumerate(run.spread):
        own = run.layers[first : first + count]
        first += count
        around = _around(run, stage)
        costs[(FORWARD, stage)] = sum(
            (layer.forward.at(run.samples) for layer in own), around.forward.at(run.samples)
        )
        costs[(BACKWARD, stage)] = sum(
            (layer.backward.at(run.samples) for layer in own), around.backward.at(run.samples)
        )
        if run.schedule == ZERO_BUBBLE:
            whole = costs[(BACKWARD, stage)]
            costs[(WEIGHT, stage)] = WEIGHT_SHARE * whole
            costs[(BACKWARD, stage)] = (1 - WEIGHT_SHARE) * whole
    return costs


def _around(run: Pipeline, stage: int) -> Stage:
    """Return the work around the layers of a stage: the ends of the pipeline are special."""
    if stage in (0, run.shape.stages - 1) or len(run.stages) < 3:
        return run.stages[0 if stage == 0 else -1]
    middle = run.stages[1:-1]
    if run.virtual == 1:
        return run.stages[stage]
    return Stage(
        median_cost([s.forward for s in middle]), median_cost([s.backward for s in middle]), 0, 0
    )


def _exchange(run: Pipeline, *, plan: Plan, turn: Turn, step: int) -> list[Action]:
    """Return the messages that a turn posts or waits for."""
    if isinstance(turn, MessageWait):
        keys: list[object] = [(step, p) for p in turn.received]
        keys += [Started((step, p)) for p in turn.sent]
        return [Wait(tuple(keys))] if keys else []
    if isinstance(turn, Pass):
        return []
    key = (step, turn.made_by)
    if isinstance(turn, Send):
        plan.transfers[key] = _transfer(run, turn.made_by)
    return [Post(key)]


def _transfer(run: Pipeline, made_by: Pass) -> Transfer:
    towards = made_by.stage + (1 if made_by.kind == FORWARD else -1)
    source = run.ranks[run.shape.rank_of(made_by.stage)]
    target = run.ranks[run.shape.rank_of(towards)]
    latency, moved, lines = run.links.message(run.message_bytes * run.samples, source, target)
    return Transfer(
        ranks=(source, target),
        links=lines,
        size=moved,
        latency_ms=latency,
        queue=lines[0],
        label="message",
        marked=True,
        notice=ReadyNotice(target, run.links.up_of(target), NOTICE_MS, TURN_BYTES),
    )
