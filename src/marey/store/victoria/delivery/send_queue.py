"""The queue of entries: on disk, in memory as far as they are few, seen by readers and delivery."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

from marey.model.samples import SampleBatch
from marey.store.victoria.delivery.queue_entries import DeliveryStage, QueueEntry
from marey.store.victoria.delivery.spill import Spill
from marey.store.victoria.server_queries import Scope

# Rows kept in memory beside their file, so that the usual entry is not read again.
MEMORY_ROWS = 400_000


class SendQueue:
    """Entries in the order in which they were written; safe to use from several threads."""

    def __init__(self, spill: Spill) -> None:
        self._spill = spill
        self._entries: deque[QueueEntry] = deque()
        self._lock = threading.RLock()
        self._writing = threading.Lock()
        now_s = time.monotonic()
        for _, places in spill.waiting():
            # Sent at the last moment of another process, for all that is known.
            self._entries += [
                QueueEntry(place, DeliveryStage.DOUBTFUL, sent_s=now_s) for place in places
            ]
        self._remembered = spill.reaches()

    def entries(self) -> list[QueueEntry]:
        """Return all of them, oldest first."""
        with self._lock:
            return list(self._entries)

    def keep(self, batches: Iterable[SampleBatch], waiting: str) -> None:
        """Put batches on disk as one step and in the queue."""
        kept: list[SampleBatch] = []
        size = 0

        def noted() -> Iterable[SampleBatch]:
            nonlocal size
            for batch in batches:
                size += len(batch)
                # A history read from a file does not stay in memory.
                if size <= MEMORY_ROWS:
                    kept.append(batch)
                yield batch

        # Not under the lock of readers: the batches may come from a file that takes long to read.
        with self._writing:
            places = self._spill.keep(noted(), waiting)
            held = [batch for batch in kept if len(batch)]
            with self._lock:
                for number, place in enumerate(places):
                    batch = held[number] if number < len(held) else None
                    self._entries.append(QueueEntry(place, batch=batch))
                self._limit_memory()

    def _limit_memory(self) -> None:
        rows = 0
        for entry in reversed(self._entries):
            rows += entry.place.rows
            if rows > MEMORY_ROWS:
                entry.batch = None

    def pending(self, scope: Scope, from_ms: int, to_ms: int) -> list[SampleBatch]:
        """Return batches that may not be visible yet and reach into this span, oldest first."""
        with self._lock:
            own = [p for p in self._entries if p.overlaps(scope, from_ms, to_ms)]
            return [self.loaded(entry) for entry in own]

    def reach(self, scope: Scope) -> tuple[int, int] | None:
        """Return from when to when the entries of a scope reach."""
        with self._lock:
            own = [p.place for p in self._entries if p.scope == scope]
            if not own:
                return None
            return min(p.from_ms for p in own), max(p.to_ms for p in own)

    def remembered_reach(self, scope: Scope) -> tuple[int, int] | None:
        """Return from when to when confirmed samples of a scope reach, as far as this machine
        knows.
        """
        with self._lock:
            return self._remembered.get((scope.cluster, scope.kind))

    def clusters(self) -> set[str]:
        """Return the clusters that samples were written of from this machine."""
        with self._lock:
            waiting = {entry.place.cluster for entry in self._entries}
            return waiting | {cluster for cluster, _ in self._remembered}

    def waiting(self) -> tuple[int, int]:
        """Return how many rows and bytes are not confirmed."""
        with self._lock:
            return sum(p.place.rows for p in self._entries), self._spill.bytes

    def loaded(self, entry: QueueEntry) -> SampleBatch:
        """Return the samples of a entry."""
        batch = entry.batch
        return self._spill.load(entry.place) if batch is None else batch

    def set_aside(self, file: Path, reason: str) -> int:
        """Take a file that cannot be read out of the queue, but keep it; how many rows it had."""
        with self._lock:
            if file in self._spill.files:
                self._spill.set_aside(file, reason)
            rows = sum(p.place.rows for p in self._entries if p.place.file == file)
            self._entries = deque(p for p in self._entries if p.place.file != file)
        return rows

    def trim(self) -> None:
        """Drop files of which everything is confirmed, oldest first.

        Never a later one before an earlier one: what is sent again after a restart must be
        followed by everything that was written after it.
        """
        with self._lock:
            while self._entries and self._entries[0].stage is DeliveryStage.CONFIRMED:
                file: Path = self._entries[0].place.file
                own = [p for p in self._entries if p.place.file == file]
                if any(entry.stage is not DeliveryStage.CONFIRMED for entry in own):
                    return
                self._remember(own)
                for _ in own:
                    self._entries.popleft()
                self._spill.drop(file)

    def _remember(self, entries: Sequence[QueueEntry]) -> None:
        for entry in entries:
            place = entry.place
            key = (place.cluster, place.kind)
            reach = self._remembered.get(key, (place.from_ms, place.to_ms))
            self._remembered[key] = min(reach[0], place.from_ms), max(reach[1], place.to_ms)
        self._spill.keep_reaches(self._remembered)
