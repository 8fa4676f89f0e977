"""A run and the same run really changed: exact truth for what-ifs on many ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from marey.trace.run.trace_run import TraceRun
from marey.trace.synthetic.costs import healthy_step_ns
from marey.trace.synthetic.faults import Conditions, healthy
from marey.trace.synthetic.layout import Ints, Layout
from marey.trace.synthetic.models import find_model
from marey.trace.synthetic.program import run_program
from marey.trace.synthetic.simulation import Call, Floats, Simulation
from marey.trace.synthetic.tables import TraceStyle, build_run, make_clock

STEPS = 5
# What may be drawn: words of the what-if command.
KINDS = ("link", "compute", "slow-rank", "fix-rank", "launch", "loader", "operator")


class _ChangedSimulation(Simulation):
    """A simulation in which kernels of some names take another time."""

    def __init__(
        self, layout: Layout, conditions: Conditions, seed: int, paces: dict[str, float]
    ) -> None:
        super().__init__(layout, conditions, seed)
        self.paces = paces

    def _pace(self, call: Call, ranks: Ints) -> Floats:
        return super()._pace(call, ranks) * self.paces.get(call.kernel, 1.0)


@dataclass
class RunSetup:
    """What a run is made of, before and after the change."""

    layout: Layout
    conditions: Conditions
    paces: dict[str, float] = field(default_factory=dict)

    def simulate(self, seed: int) -> TraceRun:
        simulation = _ChangedSimulation(self.layout, self.conditions, seed, self.paces)
        run_program(simulation, STEPS)
        trace_style = TraceStyle()
        clock = make_clock(self.layout, trace_style, np.random.default_rng(seed + 1))
        return build_run(simulation, trace_style, clock)


@dataclass(frozen=True)
class WhatIfTruth:
    """A recorded run, the change in words, and the run as it is with the change."""

    words: tuple[str, ...]
    before: TraceRun
    after: TraceRun


def draw_what_if(layout: Layout, seed: int, *, changes: int = 1) -> WhatIfTruth:
    """Return a run and its change, drawn from the seed; all chance but the change is the same."""
    rng = np.random.default_rng(seed)
    before = RunSetup(layout, healthy(layout, STEPS))
    after = RunSetup(layout, healthy(layout, STEPS))
    kinds = rng.choice(len(KINDS), changes, replace=False)
    words = tuple(CHANGES[KINDS[kind]](before, after, rng) for kind in kinds)
    return WhatIfTruth(words, before.simulate(seed), after.simulate(seed))


def _link(before: RunSetup, after: RunSetup, rng: np.random.Generator) -> str:
    base = float(rng.uniform(1.0, 6.0))
    factor = round(float(rng.uniform(0.4, 3.0)), 2)
    before.conditions.transfer, after.conditions.transfer = base, base / factor
    return f"link=x{factor}"


def _compute(before: RunSetup, after: RunSetup, rng: np.random.Generator) -> str:
    factor = round(float(rng.uniform(0.4, 1.8)), 2)
    after.conditions.compute *= factor
    return f"compute=x{factor}"


def _slow_rank(before: RunSetup, after: RunSetup, rng: np.random.Generator) -> str:
    rank, factor = int(rng.integers(before.layout.world)), round(float(rng.uniform(1.2, 2.0)), 2)
    after.conditions.compute[rank] *= factor
    return f"slow-rank={rank}:x{factor}"


def _fix_rank(before: RunSetup, after: RunSetup, rng: np.random.Generator) -> str:
    rank = int(rng.integers(before.layout.world))
    before.conditions.compute[rank] *= float(rng.uniform(1.2, 2.0))
    return f"fix-rank={rank}"


def _launch(before: RunSetup, after: RunSetup, rng: np.random.Generator) -> str:
    base, factor = float(rng.uniform(5.0, 60.0)), round(float(rng.uniform(0.3, 2.0)), 2)
    before.conditions.launch[:] = base
    after.conditions.launch[:] = base * factor
    return f"launch=x{factor}"


def _loader(before: RunSetup, after: RunSetup, rng: np.random.Generator) -> str:
    factor = round(float(rng.uniform(0.2, 1.8)), 2)
    long = healthy_step_ns(before.layout) * float(rng.uniform(0.5, 2.0))
    before.conditions.input_ns[:] = long
    after.conditions.input_ns[:] = long * factor
    return f"loader=x{factor}"


def _operator(before: RunSetup, after: RunSetup, rng: np.random.Generator) -> str:
    model = find_model(before.layout.model)
    kernels = sorted({kernel.kernel for kernel in model.forward + model.backward})
    kernel = kernels[int(rng.integers(len(kernels)))]
    factor = round(float(rng.uniform(0.3, 2.0)), 2)
    after.paces[kernel] = factor
    return f"operator={kernel}:x{factor}"


CHANGES: dict[str, Callable[[RunSetup, RunSetup, np.random.Generator], str]] = {
    "link": _link,
    "compute": _compute,
    "slow-rank": _slow_rank,
    "fix-rank": _fix_rank,
    "launch": _launch,
    "loader": _loader,
    "operator": _operator,
}
