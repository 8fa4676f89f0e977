"""Rows of the past: one per workload and GPU, taken when it begins and given back after its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.model.metrics import Entity, catalogue
from marey.rules.engine.allocations import FOREVER, Facts, HeldGpu
from marey.stats.sketches.sketch_tables import room_for

Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
NOBODY = -1


def grow_rows(array: NDArray[Any], rows: int, empty: float = 0) -> NDArray[Any]:
    """Return the same array with room for so many rows."""
    more = room_for(rows, len(array)) - len(array)
    if more <= 0:
        return array
    return np.concatenate([array, np.full((more, *array.shape[1:]), empty, array.dtype)])


def number_names(numbers: Mapping[str, int], names: Sequence[str]) -> Longs:
    """Return the number of each name; -1 where it has none."""
    return np.fromiter(map(numbers.get, names, repeat(NOBODY)), np.int64, len(names))


class _Names:
    """Names of GPUs or hosts as numbers, and whose number each row has."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.of_row = np.zeros(0, np.int64)
        # The names of the batch before, which mostly are those of the next, and their numbers.
        self._before: tuple[int, Sequence[str]] = (0, ())
        self._coded = np.zeros(0, np.int64)

    def number(self, name: str) -> int:
        """Return the number of a name, a new one where it was not met before."""
        return self.numbers.setdefault(name, len(self.numbers))

    def number_names(self, names: Sequence[str]) -> Longs:
        """Return the number of each name; -1 of one that was never met."""
        # A name may have got its number since.
        asked = (len(self.numbers), names)
        if asked != self._before:
            self._before = asked
            self._coded = number_names(self.numbers, names)
        return self._coded


@dataclass
class RowTable:
    """Who holds which row, and from when to when its samples count."""

    rows: dict[str, dict[str, int]] = field(default_factory=dict)
    # Of each row: when its samples count, and the number of the workload that has it.
    from_ms: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    to_ms: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    owner: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    facts: dict[int, Facts] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)
    size: int = 0
    _opened: int = 0
    _names: dict[Entity, _Names] = field(
        default_factory=lambda: {entity: _Names() for entity in Entity}
    )
    # What derived metrics are shares of, such as the GPU's power limit.
    _wholes: dict[str, Floats] = field(
        default_factory=lambda: {
            metric.derived.per: np.zeros(0) for metric in catalogue().values() if metric.derived
        }
    )

    def open(self, facts: Facts, held_gpus: Iterable[HeldGpu], from_ms: int) -> None:
        """Open rows for a workload, valid from this moment to its end."""
        mine = self.rows.setdefault(facts.workload, {})
        to_ms = FOREVER if facts.end_ms is None else facts.end_ms
        number = self.numbers.setdefault(facts.workload, self._opened)
        self.facts[number] = facts
        self._opened += 1
        for held_gpu in held_gpus:
            begin, end = max(held_gpu.from_ms, from_ms), min(held_gpu.to_ms, to_ms)
            row = mine.get(held_gpu.gpu)
            if row is None:
                row = mine[held_gpu.gpu] = self.free.pop() if self.free else self._append()
                self.owner[row] = number
                self.from_ms[row] = begin
            # The same GPU again: one row from the first to the last.
            self.from_ms[row] = min(begin, self.from_ms[row])
            self.to_ms[row] = end
            self._hold(row, held_gpu)

    def _hold(self, row: int, held_gpu: HeldGpu) -> None:
        for entity, name in ((Entity.GPU, held_gpu.gpu), (Entity.HOST, held_gpu.host)):
            names = self._names[entity]
            names.of_row[row] = names.number(name)
        for per, whole in self._wholes.items():
            whole[row] = getattr(held_gpu, per, None) or np.nan

    def _append(self) -> int:
        self.size += 1
        if self.size > len(self.owner):
            self.from_ms, self.to_ms = (
                grow_rows(self.from_ms, self.size),
                grow_rows(self.to_ms, self.size),
            )
            self.owner = grow_rows(self.owner, self.size, NOBODY)
            self._wholes = {per: grow_rows(whole, self.size) for per, whole in self._wholes.items()}
            for names in self._names.values():
                names.of_row = grow_rows(names.of_row, self.size, NOBODY)
        return self.size - 1

    def close(self, workload: str) -> list[int]:
        """Give a workload's rows back."""
        gone = list(self.rows.pop(workload, {}).values())
        self.to_ms[gone], self.owner[gone] = 0, NOBODY
        self.facts.pop(self.numbers.pop(workload, NOBODY), None)
        self.free.extend(gone)
        return gone

    def whole(self, per: str) -> Floats:
        """Return the whole of which each row's derived metric is a share; NaN if it is unknown."""
        return self._wholes[per][: self.size]

    def find_entity_rows(self, kind: Entity, names: Sequence[str]) -> tuple[Longs, Longs]:
        """Return the rows of each of these GPUs or hosts: ``rows[first[i]:first[i + 1]]``."""
        book = self._names[kind]
        # The last place is for names that were never met.
        place_of = np.full(len(book.numbers) + 1, len(names), np.int64)
        place_of[book.number_names(names)] = np.arange(len(names))
        held = np.flatnonzero(self.owner[: self.size] != NOBODY)
        places = place_of[book.of_row[held]]
        order = np.argsort(places, kind="stable")
        first = np.searchsorted(places[order], np.arange(len(names) + 1))
        return first, held[order]
