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
from numpy.typing import NDArray

T = TypeVar("T")

_MASK = (1 << 64) - 1
_POSITIVE = (1 << 63) - 1
_GAMMA = 0x9E3779B97F4A7C15
_AT_ONCE = 32


@njit(cache=True, nogil=True, inline="always")
def mix(x: np.uint64) -> np.uint64:
    """Return 64 well-mixed bits of a 64-bit counter (SplitMix64.

    Steele, Lea, Flood, OOPSLA 2014).
    """
    z = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def _fold_words(count: int, first: int, second: int, third: int, fourth: int) -> np.uint64:
    folded = mix(np.uint64(count) ^ np.uint64(first))
    folded = mix(folded ^ np.uint64(second))
    folded = mix(folded ^ np.uint64(third))
    return mix(folded ^ np.uint64(fourth))


@njit(cache=True, nogil=True)
def _even(state: np.uint64, count: int) -> NDArray[np.float64]:
    """Draw so many numbers in [0, 1) that follow each other for this key."""
    numbers = np.empty(count)
    for i in range(count):
        state += np.uint64(0x9E3779B97F4A7C15)
        numbers[i] = np.float64(mix(state) >> np.uint64(11)) * 2.0**-53
    return numbers


def key(first: int, second: int, third: int = 0, fourth: int = 0) -> int:
    """Return one 64-bit key for up to four numbers; by custom the seed, what for, and which one."""
    return int(_fold_words(4, first & _POSITIVE, second, third & _POSITIVE, fourth & _POSITIVE))


def generator(*parts: int) -> np.random.Generator:
    """Return a stream of numbers of its own for this key, for drawing many at once."""
    return np.random.Generator(np.random.Philox(key=key(*parts)))


@njit(cache=True, nogil=True)
def draw_normal_table(number: np.uint64, rows: int, columns: int) -> NDArray[np.float64]:
    """Return a table of nearly normal numbers (sums of four even ones) for a key."""
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


class RandomDraws:
    """A short sequence of draws for one thing (a workload, a fault)."""

    __slots__ = ("_drawn", "_key", "_ready")

    def __init__(self, *parts: int) -> None:
        self._key = key(*parts)
        self._ready: list[float] = []
        self._drawn = 0

    def uniform(self) -> float:
        """Draw evenly in [0, 1)."""
        if not self._ready:
            # Many at once: crossing into compiled code costs more than the drawing.
            state = np.uint64((self._key + self._drawn * _GAMMA) & _MASK)
            self._ready = _even(state, _AT_ONCE).tolist()
            self._ready.reverse()
            self._drawn += _AT_ONCE
        return self._ready.pop()

    def between(self, low: float, high: float) -> float:
        """Draw evenly in [low, high)."""
        return low + (high - low) * self.uniform()

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.uniform() < probability

    def integer(self, below: int) -> int:
        """Return a whole number from 0 to below - 1."""
        return int(self.uniform() * below)

    def pick(self, things: Sequence[T]) -> T:
        """Return one of these."""
        return things[self.integer(len(things))]

    def weighted(self, things: Sequence[T], cumulative: Sequence[float]) -> T:
        """Return one of these, by cumulative weights."""
        at = bisect(cumulative, self.uniform() * cumulative[-1])
        return things[min(at, len(things) - 1)]

    def normal(self) -> float:
        """Draw from the standard normal."""
        radius = math.sqrt(-2.0 * math.log(1.0 - self.uniform()))
        return radius * math.cos(2.0 * math.pi * self.uniform())

    def lognormal(self, median: float, sigma: float) -> float:
        """Draw from the lognormal with this median."""
        return median * math.exp(sigma * self.normal())
