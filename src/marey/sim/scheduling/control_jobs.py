"""Repeated control jobs on a cluster whose hosts, fabric and file system have a state of their own.

What slows a run down persists and is shared by all that run meanwhile: slow hosts stay slow for
weeks, load of the fabric and of the file system wanders from hour to hour. The truth is recorded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
CAUSES = ("none", "hosts", "fabric", "file_system")
_HOUR_S, _DAY_S = 3600.0, 86400.0


@dataclass(frozen=True)
class ControlWorld:
    """Runs of several applications, the counters at their starts, and what slowed them down."""

    application: Ints
    start_s: Floats
    run_s: Floats
    gpus: Floats
    hosts: Ints
    first: Ints
    fabric_load: Floats
    file_system_load: Floats
    # The truth: which cause was injected, and which hosts are slow by how much.
    cause: str
    slow_hosts: dict[int, float]


@dataclass(frozen=True)
class ControlPlan:
    """How large a world is, and how strong its cause."""

    days: int = 60
    applications: int = 6
    hosts: int = 32
    runs_per_day: int = 4
    noise: float = 0.03
    strength: float = 0.5


def simulate_control_jobs(
    cause: str, seed: int = 0, plan: ControlPlan | None = None
) -> ControlWorld:
    """Return a world in which one cause (or none) stretches the run times."""
    plan = plan or ControlPlan()
    draws = np.random.default_rng([seed, CAUSES.index(cause)])
    many = plan.days * plan.applications * plan.runs_per_day
    application = np.tile(np.arange(plan.applications), plan.days * plan.runs_per_day)
    start_s = np.sort(draws.uniform(0, plan.days * _DAY_S, many))
    wide = draws.choice([1, 2, 4], plan.applications)[application]
    hosts = [draws.choice(plan.hosts, n, replace=False) for n in wide]
    slow = _draw_slow_hosts(plan, draws) if cause == "hosts" else {}
    fabric, files = (_draw_hourly_load(plan.days, draws) for _ in range(2))
    hour = np.floor(start_s / _HOUR_S).astype(np.int64)
    base = draws.uniform(600, 7200, plan.applications)[application]
    sensitive = draws.uniform(0.8, 1.2, plan.applications)[application]
    stretch = np.array([max((slow.get(int(h), 1.0) for h in one), default=1.0) for one in hosts])
    load = {"fabric": fabric[hour], "file_system": files[hour]}.get(cause, np.zeros(many))
    stretch = stretch * (1.0 + plan.strength * sensitive * load)
    return ControlWorld(
        application=application,
        start_s=start_s,
        run_s=base * stretch * np.exp(draws.normal(0.0, plan.noise, many)),
        gpus=8.0 * wide,
        hosts=np.concatenate(hosts).astype(np.int64),
        first=np.concatenate([[0], np.cumsum(wide)]).astype(np.int64),
        fabric_load=fabric[hour],
        file_system_load=files[hour],
        cause=cause,
        slow_hosts=slow,
    )


def _draw_slow_hosts(plan: ControlPlan, draws: np.random.Generator) -> dict[int, float]:
    count = max(2, plan.hosts // 10)
    chosen = draws.choice(plan.hosts, count, replace=False)
    return {int(h): 1.0 + plan.strength * float(draws.uniform(0.7, 1.3)) for h in chosen}


def _draw_hourly_load(days: int, draws: np.random.Generator) -> Floats:
    """Return an hourly load from 0 to 1 that wanders and follows the day."""
    hours = days * 24 + 1
    level = np.zeros(hours)
    steps = draws.normal(0.0, 0.5, hours)
    for i in range(1, hours):
        level[i] = 0.95 * level[i - 1] + steps[i]
    daily = 0.8 * np.sin(2 * np.pi * np.arange(hours) / 24.0)
    return np.asarray(1.0 / (1.0 + np.exp(-(level + daily))))
