"""When all ranks begin to wait: for one of the GPUs, or for what connects them?

The GPU that all wait for works on while the others spin, so what it shows (SM activity, or power)
falls less than theirs. Each GPU is held against itself before and against its peers at the same
moments, so that neither what boards differ by nor a phase of the whole job counts.

**The gain of a GPU** is by how much more it shows, beside the median of all, in the blocks of the
fall than in the others (in logarithms, means of the middle half of both). **Its error** is what
its own quarters of an hour scatter by around these two levels: a GPU that wanders by itself gets a
large error, and counts for little.

**The weighing.** If a GPU is what all wait for, its gain should be what the others lost, else zero.
How much likelier its gain is in the first case follows from the t distribution with eight degrees
of freedom (about as many as the quarters that the error comes from), whose wide tails keep a single
odd GPU from deciding. One of the GPUs or the network: both have the same chance to begin with, and
the GPUs share theirs. What comes out is the probability of each GPU and of the network, given that
it is one of them. Where neither is probable, nothing is said: the fall is there, and the samples do
not tell what is behind it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.diagnose.judges.slight_falls import Fall

# Quarters of an hour: noise of real GPUs hardly lasts longer.
BLOCKS_TOGETHER = 3
DEGREES_OF_FREEDOM = 8.0
# What is said is this probable, and a GPU is this many of its errors above its peers.
PROBABLE, LEAST_ERRORS = 0.8, 3.0
LEAST_GPUS = 4

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Suspects:
    """How probable it is that all wait for each GPU, or for the network."""

    gpus: Floats
    network: float
    gains: Floats
    errors: Floats

    @property
    def slow_gpu(self) -> int | None:
        """The row of the GPU that all wait for; None where none is probable."""
        best = int(np.argmax(self.gpus))
        plain = self.gains[best] >= LEAST_ERRORS * self.errors[best]
        return best if plain and self.gpus[best] >= PROBABLE else None

    @property
    def is_network(self) -> bool:
        """Whether the network is what all wait for."""
        return self.network >= PROBABLE


def weigh_suspects(fall: Fall, shown: Floats, expected: float) -> Suspects | None:
    """Weigh every GPU and the network by what each GPU showed (a row each, a column per block).

    ``expected`` is the gain of a GPU that all wait for. None if there are too few GPUs to compare.
    """
    blocks = np.sort(np.concatenate([fall.low, fall.high]))
    seen = shown[:, blocks]
    known: Flags = np.asarray((np.isfinite(seen) & (seen > 0)).all(axis=1))
    if known.sum() < LEAST_GPUS:
        return None
    values = np.log(seen[known])
    gains, errors = _measure_gains(values - np.median(values, axis=0), np.isin(blocks, fall.low))
    ratios = _weigh((gains - expected) / errors) / _weigh(gains / errors) / len(gains)
    total = 1.0 + float(ratios.sum())
    return Suspects(
        _spread_out(ratios / total, known, 0.0),
        1.0 / total,
        _spread_out(gains, known, np.nan),
        _spread_out(errors, known, np.nan),
    )


def _measure_gains(beside: Floats, low: Flags) -> tuple[Floats, Floats]:
    """Return each GPU's gain in the blocks of the fall, and the error of it."""
    during, before = _average_middle(beside[:, low]), _average_middle(beside[:, ~low])
    rest = beside - np.where(low[None, :], during[:, None], before[:, None])
    quarters = rest.shape[1] // BLOCKS_TOGETHER
    shaped = rest[:, : quarters * BLOCKS_TOGETHER].reshape(len(rest), quarters, BLOCKS_TOGETHER)
    scatter = np.sqrt((shaped.mean(axis=2) ** 2).mean(axis=1))
    errors = scatter * np.sqrt(BLOCKS_TOGETHER * (1.0 / low.sum() + 1.0 / (~low).sum()))
    gains = during - before
    # Nobody is surer of itself than half of the GPUs are.
    return gains - np.median(gains), np.maximum(errors, np.median(errors) + 1e-9)


def _average_middle(values: Floats) -> Floats:
    """Return each row's mean without its lowest and its highest quarter."""
    ordered = np.sort(values, axis=1)
    cut = ordered.shape[1] // 4
    return np.asarray(ordered[:, cut : ordered.shape[1] - cut].mean(axis=1))


def _weigh(deviations: Floats) -> Floats:
    """Return the density of the t distribution, but for a constant."""
    power = -0.5 * (DEGREES_OF_FREEDOM + 1.0)
    return np.asarray((1.0 + deviations**2 / DEGREES_OF_FREEDOM) ** power)


def _spread_out(values: Floats, known: Flags, missing: float) -> Floats:
    rows = np.full(len(known), missing)
    rows[known] = values
    return rows
