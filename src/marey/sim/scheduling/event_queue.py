"""What will happen when: the heap of events behind the cluster's life."""

from __future__ import annotations

import heapq
from enum import IntEnum
from typing import Any


class QueuedEventKind(IntEnum):
    """Kinds of happening, in the order in which those of one moment are handled."""

    HOUR = 0
    INSPECT = 12
    REPAIRED = 1
    END = 2
    FAULT = 3
    RECOVERED = 4
    NODE_LOST = 5
    DRAIN = 6
    SUBMIT = 7
    RECORDED = 13
    ELIGIBLE = 8
    GIVE_UP = 9
    PAUSE = 10
    PASS = 11


class EventQueue:
    """Happenings in order of their moment; those of one moment by kind, then as planned."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, tuple[Any, ...]]] = []
        self._planned = 0

    def plan(self, time_ms: int, what: QueuedEventKind, details: tuple[Any, ...]) -> None:
        """Plan what will happen at this moment."""
        self._planned += 1
        heapq.heappush(self._heap, (time_ms, int(what), self._planned, details))

    def due(self, time_ms: int) -> tuple[int, QueuedEventKind, tuple[Any, ...]] | None:
        """Return the next happening up to this moment, taken off, or None."""
        if not self._heap or self._heap[0][0] > time_ms:
            return None
        moment, what, _, details = heapq.heappop(self._heap)
        return moment, QueuedEventKind(what), details
