"""Work in hand for somebody who waits: how far it is, and whether they still want it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


class RequestAbandoned(Exception):
    """Whoever asked has gone: there is nobody to answer."""


@dataclass(slots=True)
class Work:
    """One question about a workload that is being answered."""

    cluster: str
    workload: str
    # How much of the samples has been read, from 0 to 1.
    share: float = 0.0
    _given_up: threading.Event = field(default_factory=threading.Event)

    def tell(self, share: float) -> None:
        """Report how far the reading is; raises ``RequestAbandoned`` when nobody waits any more."""
        self.share = min(1.0, max(self.share, share))
        if self._given_up.is_set():
            raise RequestAbandoned

    def give_up(self) -> None:
        """Stop when it next tells how far it is."""
        self._given_up.set()


@dataclass(slots=True)
class RunningWork:
    """Every question about workloads that is being answered."""

    _works: list[Work] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def begin(self, cluster: str, workload: str) -> Iterator[Work]:
        """Count a question as being answered while the block runs."""
        work = Work(cluster, workload)
        with self._lock:
            self._works.append(work)
        try:
            yield work
        finally:
            with self._lock:
                self._works.remove(work)

    def share(self, cluster: str, workload: str) -> float | None:
        """Return how far the oldest question about a workload is; None where there is none."""
        with self._lock:
            found = (w for w in self._works if (w.cluster, w.workload) == (cluster, workload))
            oldest = next(found, None)
        return None if oldest is None else oldest.share
