"""Whole runs with exact truth: any layout, any fault, clocks that disagree, names of any age."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from marey.trace.results import VerdictKind
from marey.trace.run.trace_run import TraceRun
from marey.trace.synthetic.costs import healthy_step_ns
from marey.trace.synthetic.faults import Conditions, Truth, healthy, inject, possible_kinds
from marey.trace.synthetic.hard import HardScenario, draw_conditions
from marey.trace.synthetic.layout import Layout
from marey.trace.synthetic.program import run_program
from marey.trace.synthetic.simulation import Simulation
from marey.trace.synthetic.tables import Clock, TraceStyle, build_run, make_clock

__all__ = [
    "Conditions",
    "HardScenario",
    "Layout",
    "Scenario",
    "SyntheticRun",
    "TraceStyle",
    "Truth",
    "healthy",
    "make_hard_run",
    "make_run",
    "make_run_under",
    "possible_kinds",
]


@dataclass(frozen=True)
class Scenario:
    """Everything that decides a synthetic run; the same scenario gives the same run."""

    layout: Layout = field(default_factory=Layout)
    kind: VerdictKind = VerdictKind.NONE
    steps: int = 5
    seed: int = 0
    trace_style: TraceStyle = field(default_factory=TraceStyle)


@dataclass(frozen=True)
class SyntheticRun:
    """A run and what is true about it."""

    run: TraceRun
    truth: Truth
    clock: Clock


def make_run(scenario: Scenario) -> SyntheticRun:
    """Simulate the scenario and record it as a profiler would."""
    simulation, truth = simulate(scenario)
    rng = np.random.default_rng(scenario.seed + 1)
    clock = make_clock(scenario.layout, scenario.trace_style, rng)
    return SyntheticRun(build_run(simulation, scenario.trace_style, clock), truth, clock)


def make_run_under(
    conditions: Conditions,
    layout: Layout,
    *,
    steps: int,
    seed: int = 0,
    trace_style: TraceStyle | None = None,
) -> TraceRun:
    """Simulate a run under given conditions and record it as a profiler would."""
    worn = trace_style or TraceStyle()
    simulation = Simulation(layout, conditions, seed)
    run_program(simulation, steps)
    clock = make_clock(layout, worn, np.random.default_rng(seed + 1))
    return build_run(simulation, worn, clock)


def make_hard_run(scenario: HardScenario, trace_style: TraceStyle | None = None) -> SyntheticRun:
    """Simulate a run of the harder world and record it as a profiler would."""
    worn = trace_style or TraceStyle()
    conditions, truth = draw_conditions(scenario)
    simulation = Simulation(scenario.layout, conditions, scenario.seed)
    run_program(simulation, scenario.steps)
    clock = make_clock(scenario.layout, worn, np.random.default_rng(scenario.seed + 1))
    return SyntheticRun(build_run(simulation, worn, clock), truth, clock)


def simulate(scenario: Scenario) -> tuple[Simulation, Truth]:
    """Let the scenario happen."""
    layout = scenario.layout
    rng = np.random.default_rng(scenario.seed)
    step_ns = healthy_step_ns(layout)
    conditions, truth = inject(
        scenario.kind, layout=layout, steps=scenario.steps, step_ns=step_ns, rng=rng
    )
    simulation = Simulation(layout, conditions, scenario.seed)
    run_program(simulation, scenario.steps)
    return simulation, truth
