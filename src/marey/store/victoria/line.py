"""The line of parcels: on disk, in memory as far as they are few, seen by readers and delivery."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

from marey.model.samples import SampleBatch
from marey.store.victoria.parcels import Parcel, Stage
from marey.store.victoria.reading import Scope
from marey.store.victoria.spill import Spill

# Rows kept in memory beside their file, so that the usual parcel is not read again.
MEMORY_ROWS = 400_000


class ParcelLine:
    """Parcels in the order in which they were written; safe to use from several threads."""

    def __init__(self, spill: Spill) -> None:
        self._spill = spill
        self._parcels: deque[Parcel] = deque()
        self._lock = threading.RLock()
        self._writing = threading.Lock()
        now_s = time.monotonic()
        for _, places in spill.waiting():
            # Sent at the last moment of another process, for all that is known.
            self._parcels += [Parcel(place, Stage.DOUBTFUL, sent_s=now_s) for place in places]
        self._remembered = spill.reaches()

    def parcels(self) -> list[Parcel]:
        """All of them, oldest first."""
        with self._lock:
            return list(self._parcels)

    def keep(self, batches: Iterable[SampleBatch], waiting: str) -> None:
        """Put batches on disk as one step and in line."""
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
                    self._parcels.append(Parcel(place, batch=batch))
                self._bound_memory()

    def _bound_memory(self) -> None:
        rows = 0
        for parcel in reversed(self._parcels):
            rows += parcel.place.rows
            if rows > MEMORY_ROWS:
                parcel.batch = None

    def pending(self, scope: Scope, from_ms: int, to_ms: int) -> list[SampleBatch]:
        """Batches that may not be visible yet and reach into this span, oldest first."""
        with self._lock:
            own = [p for p in self._parcels if p.overlaps(scope, from_ms, to_ms)]
            return [self.loaded(parcel) for parcel in own]

    def reach(self, scope: Scope) -> tuple[int, int] | None:
        """From when to when the parcels of a scope reach."""
        with self._lock:
            own = [p.place for p in self._parcels if p.scope == scope]
            if not own:
                return None
            return min(p.from_ms for p in own), max(p.to_ms for p in own)

    def remembered_reach(self, scope: Scope) -> tuple[int, int] | None:
        """From when to when confirmed samples of a scope reach, as far as this machine knows."""
        with self._lock:
            return self._remembered.get((scope.cluster, scope.kind))

    def clusters(self) -> set[str]:
        """The clusters that samples were written of from this machine."""
        with self._lock:
            waiting = {parcel.place.cluster for parcel in self._parcels}
            return waiting | {cluster for cluster, _ in self._remembered}

    def waiting(self) -> tuple[int, int]:
        """How many rows and bytes are not confirmed."""
        with self._lock:
            return sum(p.place.rows for p in self._parcels), self._spill.bytes

    def loaded(self, parcel: Parcel) -> SampleBatch:
        """The samples of a parcel."""
        batch = parcel.batch
        return self._spill.load(parcel.place) if batch is None else batch

    def set_aside(self, file: Path, reason: str) -> int:
        """Take a file that cannot be read out of the line, but keep it; how many rows it had."""
        with self._lock:
            if file in self._spill.files:
                self._spill.set_aside(file, reason)
            rows = sum(p.place.rows for p in self._parcels if p.place.file == file)
            self._parcels = deque(p for p in self._parcels if p.place.file != file)
        return rows

    def trim(self) -> None:
        """Drop files of which everything is confirmed, oldest first.

        Never a later one before an earlier one: what is sent again after a restart must be
        followed by everything that was written after it.
        """
        with self._lock:
            while self._parcels and self._parcels[0].stage is Stage.CONFIRMED:
                file: Path = self._parcels[0].place.file
                own = [p for p in self._parcels if p.place.file == file]
                if any(parcel.stage is not Stage.CONFIRMED for parcel in own):
                    return
                self._remember(own)
                for _ in own:
                    self._parcels.popleft()
                self._spill.drop(file)

    def _remember(self, parcels: Sequence[Parcel]) -> None:
        for parcel in parcels:
            place = parcel.place
            key = (place.cluster, place.kind)
            reach = self._remembered.get(key, (place.from_ms, place.to_ms))
            self._remembered[key] = min(reach[0], place.from_ms), max(reach[1], place.to_ms)
        self._spill.keep_reaches(self._remembered)
