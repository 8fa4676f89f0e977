"""Who waits, in the scheduler's order: kept sorted, so that a tick pays for what changed."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable
from itertools import chain, repeat

from marey.live.frames import LiveWorkload
from marey.model.names import pad_numbers
from marey.model.workloads import WorkloadState

# Priority, time of submission, the name as its numbers sort, the name.
_Key = tuple[float, int, str, str]
# Where more than one of so many has another place, sorting all anew is cheaper.
_FEW = 16


class QueueOrder:
    """The names of those that wait; whoever asks learns which may have moved since."""

    def __init__(self) -> None:
        self._order: list[_Key] = []
        self._keys: dict[str, _Key] = {}
        self._news: dict[str, _Key | None] = {}
        self._names: tuple[str, ...] = ()

    def put(self, live: LiveWorkload) -> None:
        """Take in a workload as it is now; one that does not wait has no place."""
        waits = live.status.state is WorkloadState.PENDING
        self._news[live.workload.workload] = scheduler_order(live) if waits else None

    def drop(self, name: str) -> None:
        """Forget a workload."""
        self._news[name] = None

    def update_positions(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return everybody in order, and those who have another position than last time."""
        before = self._names
        if self._news:
            self._apply_changes()
            self._names = tuple(key[-1] for key in self._order)
        were = chain(before, repeat(None))
        moved = (name for name, other in zip(self._names, were, strict=False) if name != other)
        return self._names, tuple(moved)

    def _apply_changes(self) -> None:
        news = {name: key for name, key in self._news.items() if self._keys.get(name) != key}
        self._news.clear()
        if len(news) * _FEW > len(self._order):
            for name, key in news.items():
                self._note_change(name, key)
            self._order = sorted(self._keys.values())
            return
        for name, key in news.items():
            old = self._keys.get(name)
            if old is not None:
                del self._order[bisect_left(self._order, old)]
            if key is not None:
                insort(self._order, key)
            self._note_change(name, key)

    def _note_change(self, name: str, key: _Key | None) -> None:
        if key is None:
            self._keys.pop(name, None)
        else:
            self._keys[name] = key


def queue_of(workloads: Iterable[LiveWorkload]) -> tuple[str, ...]:
    """Return the names of those that wait, in the scheduler's order."""
    order = QueueOrder()
    for live in workloads:
        order.put(live)
    return order.update_positions()[0]


def scheduler_order(live: LiveWorkload) -> _Key:
    """Return priority first, then who came first, then the lower number; no priority is 0."""
    priority = live.status.priority
    return (
        0.0 if math.isnan(priority) else -priority,
        live.workload.submit_ms or 0,
        pad_numbers(live.workload.workload),
        live.workload.workload,
    )
