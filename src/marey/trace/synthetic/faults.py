"""What goes wrong in a synthetic run, as factors and delays that the simulation applies."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from marey.model.errors import InvalidInput, unknown
from marey.trace.results import VerdictKind
from marey.trace.synthetic.costs import (
    EXCHANGE_NS,
    LAUNCH_NS,
    data_transfer_ns,
    launches_per_step,
    transfer_ns,
)
from marey.trace.synthetic.layout import Ints, Layout

Floats = NDArray[np.float64]
NS_PER_MS = 1e6


@dataclass
class Conditions:
    """Everything that differs between ranks and steps; one is a factor, zero a delay."""

    compute: Floats  # rank × step
    backward_only: Floats  # rank × step, on backward kernels alone
    sequence: Floats  # replica × step × micro-batch
    stage: Floats  # stage
    input_ns: Floats  # rank × step, inside the data loader
    start_ns: Floats  # rank × step, before the step
    launch: Floats  # rank × step, on the host's cost of a launch
    pause_ns: Floats  # rank × step, one pause of the host within the step
    link: Floats  # rank, on transfers of groups across hosts that this rank is in
    edge: dict[tuple[int, int], float] = field(default_factory=dict)  # send → recv
    transfer: float = 1.0  # on every transfer


@dataclass(frozen=True)
class Truth:
    """The exact answer: what was injected, where and when."""

    kind: VerdictKind
    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()


def healthy(layout: Layout, steps: int) -> Conditions:
    """Return a run in which nothing is wrong."""
    per_step = (layout.world, steps)
    return Conditions(
        compute=np.ones(per_step),
        backward_only=np.ones(per_step),
        sequence=np.ones((layout.data, steps, layout.micro_batches)),
        stage=np.ones(layout.pipeline),
        input_ns=np.zeros(per_step),
        start_ns=np.zeros(per_step),
        launch=np.ones(per_step),
        pause_ns=np.zeros(per_step),
        link=np.ones(layout.world),
    )


def possible_kinds(layout: Layout) -> tuple[VerdictKind, ...]:
    """Return the faults whose cause a run of this layout can show."""
    kinds = [
        VerdictKind.NONE,
        VerdictKind.INPUT_BOUND,
        VerdictKind.HOST_BOUND,
        VerdictKind.COMMUNICATION_BOUND,
        VerdictKind.SLOW_WORKER,
        VerdictKind.LATE_START,
        VerdictKind.MOVING_STRAGGLER,
    ]
    if layout.data > 1:
        kinds.append(VerdictKind.SEQUENCE_IMBALANCE)
    if layout.pipeline > 1:
        kinds.append(VerdictKind.STAGE_IMBALANCE)
    groups = layout.groups()
    if len(groups.get("data", ())) > 1 or layout.pipeline > 1:
        kinds.append(VerdictKind.SLOW_LINK)
    return tuple(kinds)


def inject(
    kind: VerdictKind, *, layout: Layout, steps: int, step_ns: float, rng: np.random.Generator
) -> tuple[Conditions, Truth]:
    """Return conditions with one cause of this kind, and the truth.

    ``step_ns`` is a healthy step.
    """
    if kind not in possible_kinds(layout):
        raise InvalidInput(unknown("fault for this layout", kind, possible_kinds(layout)))
    conditions = healthy(layout, steps)
    every = tuple(range(steps))
    ranks = INJECTORS[kind](conditions, layout=layout, steps=steps, ns=step_ns, rng=rng)
    return conditions, Truth(kind, tuple(sorted(int(r) for r in ranks)), every)


def _few(layout: Layout, rng: np.random.Generator) -> Ints:
    count = 1 if layout.world < 64 else int(rng.integers(1, 3))
    return rng.choice(layout.world, count, replace=False)


def _none(
    c: Conditions, *, layout: Layout, steps: int, ns: float, rng: np.random.Generator
) -> Ints:
    return np.zeros(0, np.int64)


def _slow_worker(
    c: Conditions, *, layout: Layout, steps: int, ns: float, rng: np.random.Generator
) -> Ints:
    ranks = _few(layout, rng)
    c.compute[ranks] = rng.uniform(1.25, 1.8)
    return ranks


def _late_start(
    c: Conditions, *, layout: Layout, steps: int, ns: float, rng: np.random.Generator
) -> Ints:
    ranks = _few(layout, rng)
    late = rng.uniform(0.2, 0.6, (len(ranks), steps)) + _warm_up(layout, ranks)[:, None]
    c.start_ns[ranks] = ns * late
    return ranks


def _warm_up(layout: Layout, ranks: Ints) -> Floats:
    """Return the share of a step that ranks of later stages would have waited anyway."""
    stage = ranks // (layout.data * layout.tensor)
    return stage / (layout.micro_batches + layout.pipeline - 1)


def _input_bound(
    c: Conditions, *, layout: Layout, steps: int, ns: float, rng: np.random.Generator
) -> Ints:
    everywhere = rng.random() < 0.4
    ranks = np.arange(layout.world) if everywhere else _few(layout, rng)
    share = rng.uniform(0.3, 0.8) + _warm_up(layout, ranks)[:, None]
    c.input_ns[ranks] = ns * share * rng.uniform(0.9, 1.1, (len(ranks), steps))
    return ranks


def _host_bound(
    c: Conditions, *, layout: Layout, steps: int, ns: float, rng: np.random.Generator
) -> Ints:
    ranks = np.arange(layout.world) if rng.random() < 0.3 else _few(layout, rng)
    if rng.random() < 0.5 and len(ranks) < layout.world:
        c.pause_ns[ranks] = ns * rng.uniform(0.4, 0.8, (len(ranks), steps))
    else:
        # Enough that the launches of a step take longer than its kernels.
        c.launch[ranks] = rng.uniform(1.5, 2.5) * ns / _launch_time(layout)
    return ranks


def _launch_time(layout: Layout) -> float:
    """Return the host's time for the launches of one healthy step."""
    return launches_per_step(layout) * LAUNCH_NS


def _stage_imbalance(
    c: Conditions, *, layout: Layout, steps: int, ns: float, rng: np.random.Generator
) -> Ints:
    stage = layout.pipeline - 1 if rng.random() < 0.7 else int(rng.integers(layout.pipeline))
    c.stage[stage] = rng.uniform(1.4, 2.0)
    return layout.stage_ranks(stage)


def _sequence_imbalance(
    c: Conditions, *, layout: Layout, steps: int, ns: float, rng: np.random.Generator
) -> Ints:
    # Attention grows with the square of the sequence, so lengths spread over a factor of two.
    c.sequence[:] = np.exp(rng.normal(0, rng.uniform(0.3, 0.45), c.sequence.shape))
    return np.zeros(0, np.int64)


def _slow_link(
    c: Conditions, *, layout: Layout, steps: int, ns: float, rng: np.random.Generator
) -> Ints:
    if layout.pipeline > 1 and (rng.random() < 0.5 or len(layout.groups().get("data", ())) < 2):
        stage = int(rng.integers(layout.pipeline - 1))
        shape = (layout.data, layout.tensor)
        replica, shard = (int(rng.integers(n)) for n in shape)
        a, b = (int(layout.grid[s, replica, shard]) for s in (stage, stage + 1))
        exchanges = 2 * (layout.micro_batches + 1)
        slow = 2 + rng.uniform(0.5, 1.5) * ns / (exchanges * EXCHANGE_NS)
        c.edge[(a, b)] = c.edge[(b, a)] = slow
        return np.array([a, b])
    # The first stage synchronises last, so its link is the one that a pipeline cannot hide.
    groups = [g for g in layout.groups()["data"] if g[0] in layout.stage_ranks(0)]
    members = groups[int(rng.integers(len(groups)))]
    c.link[list(members)] = 2 + rng.uniform(0.3, 0.7) * ns / data_transfer_ns(layout)
    # Nothing in a trace says which rank of a ring is the slow one: all share its pace.
    return np.array(members)


def _communication_bound(
    c: Conditions, *, layout: Layout, steps: int, ns: float, rng: np.random.Generator
) -> Ints:
    c.transfer = 1 + rng.uniform(1.0, 2.0) * ns / transfer_ns(layout)
    return np.zeros(0, np.int64)


def _make_moving_straggler(
    c: Conditions, *, layout: Layout, steps: int, ns: float, rng: np.random.Generator
) -> Ints:
    ranks = rng.permutation(layout.world)[: min(steps, layout.world)]
    ranks = np.resize(ranks, steps)
    c.backward_only[ranks, np.arange(steps)] = rng.uniform(1.6, 2.2, steps)
    return np.unique(ranks)


INJECTORS = {
    VerdictKind.NONE: _none,
    VerdictKind.SLOW_WORKER: _slow_worker,
    VerdictKind.LATE_START: _late_start,
    VerdictKind.INPUT_BOUND: _input_bound,
    VerdictKind.HOST_BOUND: _host_bound,
    VerdictKind.STAGE_IMBALANCE: _stage_imbalance,
    VerdictKind.SEQUENCE_IMBALANCE: _sequence_imbalance,
    VerdictKind.SLOW_LINK: _slow_link,
    VerdictKind.COMMUNICATION_BOUND: _communication_bound,
    VerdictKind.MOVING_STRAGGLER: _make_moving_straggler,
}
