"""A harder world: faults of any size, some of the time, among noise and things that are no fault.

Severities are drawn continuously: the share of a healthy step that the fault adds. What happens in
every real job happens here too: kernels jitter, batches and experts are uneven, runs evaluate and
write checkpoints between steps. None of that is a fault.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from marey.trace.results import VerdictKind
from marey.trace.synthetic.costs import data_transfer_ns, healthy_step_ns
from marey.trace.synthetic.faults import Conditions, Floats, Truth, healthy
from marey.trace.synthetic.layout import Layout

SMALLEST_SEVERITY, LARGEST_SEVERITY = 0.03, 0.6
CONFOUNDERS = ("nothing", "evaluation", "checkpoint", "uneven batches", "uneven experts")
HARD_KINDS = (
    VerdictKind.SLOW_WORKER,
    VerdictKind.INPUT_BOUND,
    VerdictKind.HOST_BOUND,
    VerdictKind.LATE_START,
    VerdictKind.SLOW_LINK,
)


@dataclass(frozen=True)
class HardScenario:
    """One run of the harder world; the same scenario gives the same run."""

    layout: Layout = field(default_factory=Layout)
    # None for a run without a fault.
    kind: VerdictKind | None = None
    severity: float = 0.0
    confounder: str = "nothing"
    steps: int = 8
    seed: int = 0


def draw_scenario(layout: Layout, kind: VerdictKind | None, seed: int) -> HardScenario:
    """Return a scenario with a severity (evenly in its logarithm) and a confounder."""
    rng = np.random.default_rng(seed)
    low, high = np.log([SMALLEST_SEVERITY, LARGEST_SEVERITY])
    severity = float(np.exp(rng.uniform(low, high))) if kind else 0.0
    confounder = str(rng.choice(CONFOUNDERS))
    return HardScenario(layout, kind, severity, confounder, seed=seed)


def draw_conditions(scenario: HardScenario) -> tuple[Conditions, Truth]:
    """Return the differences between ranks and steps, and the truth about them."""
    layout, steps = scenario.layout, scenario.steps
    rng = np.random.default_rng(scenario.seed)
    conditions = healthy(layout, steps)
    step_ns = healthy_step_ns(layout)
    _add_noise(conditions, rng)
    _add_confounder(conditions, scenario, step_ns, rng)
    if scenario.kind is None:
        return conditions, Truth(VerdictKind.NONE)
    rank = int(rng.integers(layout.world))
    # An intermittent fault shows in most steps, not in all.
    active = rng.random(steps) < rng.uniform(0.7, 1.0)
    active[int(rng.integers(steps))] = True
    ranks = _add_fault(conditions, scenario, step_ns, rank, active=active.astype(np.float64))
    return conditions, Truth(scenario.kind, ranks, tuple(np.flatnonzero(active).tolist()))


def _add_noise(c: Conditions, rng: np.random.Generator) -> None:
    """Let kernels differ by a few per cent between ranks and steps, and now and then by more."""
    sigma = rng.uniform(0.005, 0.03)
    c.compute *= np.exp(rng.normal(0, sigma, c.compute.shape))
    rare = rng.random(c.compute.shape) < 0.01
    c.compute[rare] *= rng.uniform(1.05, 1.15)
    c.input_ns += rng.exponential(20_000, c.input_ns.shape)


def _add_confounder(
    c: Conditions, scenario: HardScenario, step_ns: float, rng: np.random.Generator
) -> None:
    """Add what looks like a fault and is none."""
    if scenario.confounder == "evaluation":
        c.start_ns[:, int(rng.integers(1, scenario.steps))] += step_ns * rng.uniform(0.3, 1.0)
    elif scenario.confounder == "checkpoint":
        storm = step_ns * rng.uniform(0.2, 0.6) * rng.uniform(0.8, 1.2, len(c.start_ns))
        c.start_ns[:, int(rng.integers(1, scenario.steps))] += storm
    elif scenario.confounder == "uneven batches":
        c.sequence *= np.exp(rng.normal(0, rng.uniform(0.02, 0.06), c.sequence.shape))
    elif scenario.confounder == "uneven experts":
        c.compute *= 1 + rng.uniform(0, 0.06, c.compute.shape)


def _add_fault(
    c: Conditions, scenario: HardScenario, step_ns: float, rank: int, *, active: Floats
) -> tuple[int, ...]:
    """Add the fault on one rank (or the ring it is in), and return the ranks it shows on."""
    share = scenario.severity * active
    if scenario.kind == VerdictKind.SLOW_WORKER:
        c.compute[rank] *= 1 + share
    elif scenario.kind == VerdictKind.INPUT_BOUND:
        c.input_ns[rank] += step_ns * share
    elif scenario.kind == VerdictKind.HOST_BOUND:
        c.pause_ns[rank] += step_ns * share
    elif scenario.kind == VerdictKind.LATE_START:
        c.start_ns[rank] += step_ns * share
    else:
        groups = scenario.layout.groups()["data"]
        members = next(group for group in groups if rank in group)
        extra = scenario.severity * step_ns / data_transfer_ns(scenario.layout)
        c.link[list(members)] = 1 + extra
        return tuple(int(r) for r in members)
    return (rank,)
