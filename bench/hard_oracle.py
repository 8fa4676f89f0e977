"""What nobody can see in the hard world: a detector that is told all but the answer.

A slow GPU and a slow fabric look alike, except on one GPU: the slow one, which shows more SM
activity and draws a little more power than its peers while all wait. This oracle is told that there
is a fault, in which minutes, by how much the slow one would differ in each metric at this severity,
and how large the noise is over so many minutes. It is not told which GPU, nor whether it is one at
all, nor what each GPU shows without the fault: that it takes from the other minutes, as everybody
must. Confounders are kept from it. It weighs 32 GPUs against the network by likelihood, and names a
kind at the same probability as Marey does. Where it names nothing, the noise of real GPUs is larger
than what the fault leaves in these metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from bench.hard_effects import load_real_noise
from marey.diagnose.judges.suspects import PROBABLE
from marey.diagnose.matrix import WorkloadMatrix
from marey.model.faults import FaultKind

Floats = NDArray[np.float64]
Simulate = Callable[[int, FaultKind, float | None], WorkloadMatrix]
# By which metrics a slow GPU differs from its peers, and what the simulator adds to each of noise.
JITTER = {"sm_active": 2.0, "power": 3.5}
# A minute in which this share less is done belongs to the fault.
FALLEN = 0.01
# How often the noise of one case is drawn, and how often to learn how large it is.
DRAWS, SCATTER_DRAWS = 20, 2000


@dataclass(frozen=True)
class Effect:
    """What one slow GPU of some severity leaves in the metrics, and for how many minutes.

    The other minutes are those that are left to compare with.
    """

    minutes: int
    others: int
    differs_by: dict[str, float]


def measure_effect(simulate: Simulate, seed: int, severity: float) -> Effect:
    """Return by how much the slow GPU of this seed differs from its peers while all wait."""
    slow = simulate(seed, FaultKind.SLOW_GPU, severity)
    healthy = simulate(seed, FaultKind.HEALTHY, None)
    done = [np.nanmean(m.columns["tensor_active"], axis=0) for m in (slow, healthy)]
    during = done[0] < (1.0 - FALLEN) * done[1]
    changes = {
        name: np.nanmean((slow.columns[name] - healthy.columns[name])[:, during], axis=1)
        for name in JITTER
    }
    row = int(np.argmax(changes["sm_active"]))
    differs_by = {name: float(c[row] - np.median(c)) for name, c in changes.items()}
    return Effect(int(during.sum()), int((~during).sum()), differs_by)


def find_share(effect: Effect, kind: FaultKind, gpus: int, metrics: tuple[str, ...]) -> float:
    """Return how often the oracle names a kind by these metrics."""
    chance = np.random.default_rng([effect.minutes, gpus])
    found = 0
    for _ in range(DRAWS):
        ratios = np.zeros(gpus)
        for name in metrics:
            spans = effect.minutes, effect.others
            by_middle, scatter = _measure_scatter(name, spans)
            shown = _draw_changes(name, spans, gpus, chance)[int(by_middle)]
            size = effect.differs_by[name]
            shown[0] += size if kind is FaultKind.SLOW_GPU else 0.0
            ratios += (size * shown - size**2 / 2) / scatter**2
        likelihoods = np.exp(np.clip(ratios, -500.0, 500.0)) / gpus
        network = 1.0 / (1.0 + likelihoods.sum())
        named = 1.0 - network if kind is FaultKind.SLOW_GPU else network
        found += named >= PROBABLE
    return found / DRAWS


@cache
def _measure_scatter(name: str, spans: tuple[int, int]) -> tuple[bool, float]:
    """Return whether medians scatter less than means over these minutes, and by how much."""
    changes = _draw_changes(name, spans, SCATTER_DRAWS, np.random.default_rng(spans))
    scatter = changes.std(axis=1)
    return bool(scatter[1] < scatter[0]), float(scatter.min())


def _draw_changes(
    name: str, spans: tuple[int, int], gpus: int, chance: np.random.Generator
) -> Floats:
    """Return what noise alone changes from the second span to the first: by means, by medians."""
    pool = load_real_noise().get(name, np.zeros(1))
    minutes = sum(spans)
    starts = chance.integers(0, len(pool), gpus)
    places = (starts[:, None] + np.arange(minutes)[None, :]) % len(pool)
    values = pool[places] + chance.normal(0.0, JITTER[name], (gpus, minutes))
    during, others = values[:, : spans[0]], values[:, spans[0] :]
    by_mean = during.mean(axis=1) - others.mean(axis=1)
    return np.stack([by_mean, np.median(during, axis=1) - np.median(others, axis=1)])
