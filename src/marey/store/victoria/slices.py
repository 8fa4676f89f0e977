"""A span of time cut into slices whose samples fit into memory, by what the slices before held."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from marey.model.times import DAY_MS, MINUTE_MS

# Cells (rows × metrics) that a slice should hold.
_CELLS = 4_000_000
_FIRST_MS = 5 * MINUTE_MS
_LEAST_MS = MINUTE_MS
_MOST_MS = 7 * DAY_MS
_GROWTH = 8

Slice = tuple[tuple[int, int], Callable[[int], None]]


class Slices:
    """Slices of ``[from, to)``; after each one the caller says how many cells it held."""

    def __init__(self, span: tuple[int, int]) -> None:
        self._span = span
        self._width_ms = _FIRST_MS

    def __iter__(self) -> Iterator[Slice]:
        at_ms = self._span[0]
        while at_ms < self._span[1]:
            until_ms = min(self._span[1], at_ms + self._width_ms)
            yield (at_ms, until_ms), self._adjust_width
            at_ms = until_ms

    def _adjust_width(self, cells: int) -> None:
        growth = _GROWTH if cells == 0 else min(_GROWTH, _CELLS / cells)
        self._width_ms = int(max(_LEAST_MS, min(_MOST_MS, self._width_ms * growth)))
