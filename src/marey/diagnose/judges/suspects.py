"""When all ranks begin to wait: for one of the GPUs, or for what connects them?

The GPU that all wait for works on while the others spin, so what it shows (SM activity, or power)
falls less than theirs. Each GPU is held against itself before and against its peers at the same
moments, so that neither what boards differ by nor a phase of the whole job counts.

**The gain of a GPU** is by how much more it shows, beside the median of all, in the samples of the
fall than in the others (in logarithms, means of the middle half of both: what noise throws far off
does not count). **Its error** is what its own quarters of an hour scatter by around these two
levels: a GPU that wanders by itself gets a large error, and counts for little.

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

from marey.diagnose.signals import quiet_median

MAD_TO_DEVIATION = 1.4826
DEGREES_OF_FREEDOM = 8.0
# What is said is this probable, and a GPU is this many of its errors above its peers.
PROBABLE, LEAST_ERRORS = 0.8, 3.0
LEAST_GPUS = 4
# A GPU with fewer of the samples than this is left out.
LEAST_KNOWN = 0.8

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


def weigh_suspects(
    shown: Floats, low: Flags, *, expected: float, per_quarter: int
) -> Suspects | None:
    """Weigh every GPU and the network by what each GPU showed (a row each, a column per sample).

    ``low`` marks the samples in which all do less, ``expected`` is the gain of a GPU that all wait
    for. None if there are too few GPUs to compare.
    """
    known: Flags = np.asarray((np.isfinite(shown) & (shown > 0)).mean(axis=1) >= LEAST_KNOWN)
    if known.sum() < LEAST_GPUS:
        return None
    values = np.log(np.where(shown[known] > 0, shown[known], np.nan))
    gains, errors = _measure_gains(values - quiet_median(values, 0), low, per_quarter)
    ratios = _weigh((gains - expected) / errors) / _weigh(gains / errors) / len(gains)
    total = 1.0 + float(ratios.sum())
    return Suspects(
        _spread_out(ratios / total, known, 0.0),
        1.0 / total,
        _spread_out(gains, known, np.nan),
        _spread_out(errors, known, np.nan),
    )


def _measure_gains(beside: Floats, low: Flags, per_quarter: int) -> tuple[Floats, Floats]:
    """Return each GPU's gain in the samples of the fall, and the error of it."""
    during, before = _average_middle(beside[:, low]), _average_middle(beside[:, ~low])
    rest = beside - np.where(low[None, :], during[:, None], before[:, None])
    quarters = max(1, rest.shape[1] // per_quarter)
    shaped = rest[:, : quarters * per_quarter].reshape(len(rest), quarters, -1)
    scatter = MAD_TO_DEVIATION * quiet_median(np.abs(quiet_median(shaped, 2)), 1)
    errors = scatter * np.sqrt(per_quarter * (1.0 / low.sum() + 1.0 / (~low).sum()))
    gains = during - before
    # Nobody is surer of itself than half of the GPUs are.
    return gains - np.median(gains), np.maximum(errors, np.median(errors) + 1e-9)


def _average_middle(values: Floats) -> Floats:
    """Return each row's mean without its lowest and its highest quarter; missing ones left out."""
    ordered = np.sort(values, axis=1)
    count = np.isfinite(values).sum(axis=1)[:, None]
    places = np.arange(values.shape[1])[None, :]
    middle = (places >= count // 4) & (places < count - count // 4)
    return np.asarray(
        np.where(middle, ordered, 0.0).sum(axis=1) / np.maximum(middle.sum(axis=1), 1)
    )


def _weigh(deviations: Floats) -> Floats:
    """Return the density of the t distribution, but for a constant."""
    power = -0.5 * (DEGREES_OF_FREEDOM + 1.0)
    return np.asarray((1.0 + deviations**2 / DEGREES_OF_FREEDOM) ** power)


def _spread_out(values: Floats, known: Flags, missing: float) -> Floats:
    rows = np.full(len(known), missing)
    rows[known] = values
    return rows
