"""The same operator on every rank and step has one number.

An operator is known by its place in the order of launches, its name, module and phase. Ranks of one
stage run the same program, so that their sequences are equal and the place decides. Where a
sequence differs (a truncated recording, an extra operator), the longest common subsequence with the
stage's first one joins what can be joined; the confidence is the share of the sequence that could
be.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from marey.stats.subsequences import match_longest_common

Ints = NDArray[np.int64]
# Beyond this many cells the table of a comparison would cost more than it tells.
LARGEST_TABLE = 36_000_000
# What is joined by counting occurrences of a key alone deserves this much trust.
BY_OCCURRENCE = 0.5


@dataclass(frozen=True)
class OperatorFacts:
    """What is known of one operator wherever it runs; codes of the run's symbols."""

    name: int
    module: int
    kind: int
    stage: int
    phase: int
    # Place among the operators of its stage, in the order of the first sequence seen.
    position: int


@dataclass
class OperatorNumbers:
    """Gives numbers to operators as sequences of (stage, part) come in."""

    facts: list[OperatorFacts] = field(default_factory=list)
    _first: dict[tuple[int, int], tuple[Ints, Ints]] = field(default_factory=dict)
    _known: dict[tuple[int, int, bytes], tuple[Ints, float]] = field(default_factory=dict)

    def number(self, stage: int, part: int, columns: dict[str, Ints]) -> tuple[Ints, float]:
        """Return the number of each operator of a sequence, and how sure that is.

        ``columns`` are name, module, kind and phase of the operators in order of launch.
        """
        keys = _keys(columns)
        place = (stage, part)
        fingerprint = (stage, part, keys.tobytes())
        if fingerprint in self._known:
            return self._known[fingerprint]
        if place not in self._first:
            numbers = self._add(stage, columns, np.arange(len(keys)))
            self._first[place] = (keys, numbers)
            self._known[fingerprint] = numbers, 1.0
            return numbers, 1.0
        first, known = self._first[place]
        at, confidence = join_sequences(first, keys)
        numbers = np.where(at >= 0, known[np.maximum(at, 0)] if len(known) else -1, -1)
        new = np.flatnonzero(at < 0)
        numbers[new] = self._add(stage, columns, new)
        self._known[fingerprint] = numbers, confidence
        return numbers, confidence

    def _add(self, stage: int, columns: dict[str, Ints], rows: Ints) -> Ints:
        begin = len(self.facts)
        for row in rows.tolist():
            name, module, kind, phase = (
                int(columns[c][row]) for c in ("name", "module", "kind", "phase")
            )
            facts = OperatorFacts(
                name=name, module=module, kind=kind, stage=stage, phase=phase, position=row
            )
            self.facts.append(facts)
        return np.arange(begin, len(self.facts), dtype=np.int64)


def _keys(columns: dict[str, Ints]) -> Ints:
    name, module, phase = (columns[c].astype(np.int64) + 1 for c in ("name", "module", "phase"))
    return (name << 34) | (module << 4) | phase


def join_sequences(first: Ints, second: Ints) -> tuple[Ints, float]:
    """Return, for each element of ``second``, its place in ``first`` or -1, and the share that was
    joined.
    """
    if np.array_equal(first, second):
        return np.arange(len(second)), 1.0
    head = _common_prefix(first, second)
    tail = _common_prefix(first[head:][::-1], second[head:][::-1])
    a = first[head : len(first) - tail]
    b = second[head : len(second) - tail]
    place = np.full(len(second), -1, np.int64)
    place[:head] = np.arange(head)
    place[len(second) - tail :] = np.arange(len(first) - tail, len(first))
    weight = 1.0
    if len(a) and len(b):
        if len(a) * len(b) <= LARGEST_TABLE:
            middle = match_longest_common(a, b)
        else:
            middle, weight = _join_by_occurrence(a, b), BY_OCCURRENCE
        place[head : len(second) - tail] = np.where(middle >= 0, middle + head, -1)
    joined = float((place >= 0).mean()) if len(second) else 1.0
    return place, joined * weight


def _common_prefix(first: Ints, second: Ints) -> int:
    shorter = min(len(first), len(second))
    different = np.flatnonzero(first[:shorter] != second[:shorter])
    return int(different[0]) if len(different) else shorter


def _join_by_occurrence(a: Ints, b: Ints) -> Ints:
    """Join the n-th of a key in one to the n-th of that key in the other."""
    places = {pair: i for i, pair in enumerate(_count_keys(a))}
    return np.array([places.get(pair, -1) for pair in _count_keys(b)], np.int64)


def _count_keys(keys: Ints) -> list[tuple[int, int]]:
    seen: dict[int, int] = {}
    pairs = []
    for key in keys.tolist():
        seen[key] = seen.get(key, -1) + 1
        pairs.append((key, seen[key]))
    return pairs
