"""Chance that depends on names, not on order: every draw is a hash of what it is drawn for.

A draw never depends on how many draws came before it elsewhere, so the simulated world is the
same whatever steps it is advanced in.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numba import njit

T = TypeVar("T")

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
# Steele, Lea, Flood: SplitMix64 (OOPSLA 2014), its finalizer.
_M1 = 0xBF58476D1CE4E5B9
_M2 = 0x94D049BB133111EB


@njit(cache=True, nogil=True, inline="always")
def mix(x):  # type: ignore[no-untyped-def]
    """64 well-mixed bits of a 64-bit counter, inside kernels."""
    z = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _mixed(x: int) -> int:
    z = (x + _GAMMA) & _MASK
    z = ((z ^ (z >> 30)) * _M1) & _MASK
    z = ((z ^ (z >> 27)) * _M2) & _MASK
    return z ^ (z >> 31)


def key(*parts: int) -> int:
    """One 64-bit key for a tuple of numbers."""
    folded = 0
    for part in parts:
        folded = _mixed(folded ^ (part & _MASK))
    return folded


def generator(*parts: int) -> np.random.Generator:
    """A stream of numbers of its own for this key, for drawing many at once."""
    return np.random.Generator(np.random.Philox(key=key(*parts)))


@njit(cache=True, nogil=True)
def bells(number, rows, columns):  # type: ignore[no-untyped-def]
    """A table of nearly normal numbers (sums of four even ones) for a key."""
    table = np.empty((rows, columns))
    counter = np.uint64(number)
    word = np.uint64(0xFFFF)
    for i in range(rows):
        for j in range(columns):
            counter += np.uint64(0x9E3779B97F4A7C15)
            h = mix(counter)
            total = np.float64(h & word) + np.float64((h >> np.uint64(16)) & word)
            total += np.float64((h >> np.uint64(32)) & word) + np.float64(h >> np.uint64(48))
            # Four even numbers in [0, 65536) have mean 131072 and a variance of 4 * 65536²/12.
            table[i, j] = (total - 131_072.0) / 37_837.2
    return table


class Dice:
    """A short sequence of draws for one thing (a workload, a fault)."""

    __slots__ = ("_state",)

    def __init__(self, *parts: int) -> None:
        self._state = key(*parts)

    def uniform(self) -> float:
        """In [0, 1)."""
        self._state = (self._state + _GAMMA) & _MASK
        return (_mixed(self._state) >> 11) * 2.0**-53

    def between(self, low: float, high: float) -> float:
        """Evenly in [low, high)."""
        return low + (high - low) * self.uniform()

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.uniform() < probability

    def integer(self, below: int) -> int:
        """A whole number from 0 to below - 1."""
        return int(self.uniform() * below)

    def pick(self, things: Sequence[T]) -> T:
        """One of these."""
        return things[self.integer(len(things))]

    def weighted(self, things: Sequence[T], cumulative: Sequence[float]) -> T:
        """One of these, by cumulative weights."""
        at = bisect(cumulative, self.uniform() * cumulative[-1])
        return things[min(at, len(things) - 1)]

    def normal(self) -> float:
        """Standard normal."""
        radius = math.sqrt(-2.0 * math.log(1.0 - self.uniform()))
        return radius * math.cos(2.0 * math.pi * self.uniform())

    def lognormal(self, median: float, sigma: float) -> float:
        """Lognormal with this median."""
        return median * math.exp(sigma * self.normal())
