"""Ticks written in groups: kept at once in a small file, sorted into the store every few ticks.

A commit to a database, and turning an observation into validity intervals, cost the same for one
tick as for a group of them. Until a group is sorted in, each tick of it stands in the journal
beside the store, so that a kill loses nothing; whoever asks has the group sorted in first.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from marey.app.collecting import HistoryStore, OneStepStore, Store
from marey.app.journal_entries import Entry, pack, seqs, unpack
from marey.model.errors import NotFound, Unavailable
from marey.model.observation import Observation
from marey.model.samples import SampleBatch
from marey.store.journal_file import JournalFile, entries, journal_path

log = logging.getLogger(__name__)

DOCUMENT_KIND = "journal"
GROUP_TICKS = 40
# A cluster of a million GPUs is not held back for long.
GROUP_BYTES = 32_000_000

# The answer must know of every tick. (Documents are never held back.)
_RECORD_QUESTIONS = frozenset(
    {
        "moment",
        "workloads",
        "workload",
        "allocations",
        "states",
        "progress",
        "progress_minutes",
        "events",
    }
)
_SAMPLE_QUESTIONS = frozenset({"scan", "series", "histograms", "statistics", "latest", "span"})


@dataclass(frozen=True, slots=True)
class Settled:
    """Up to which tick the store has the records, and the samples, of the journal."""

    records: int = 0
    samples: int = 0

    @property
    def newest(self) -> int:
        """No tick has a number below this one's any more."""
        return max(self.records, self.samples)


class JournaledStore:
    """A store that takes ticks by groups; everything else is the store's own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # Samples are held back only where they and the records can be sorted in as one step.
        self._one_step = store if isinstance(store, OneStepStore) else None
        self._questions = _RECORD_QUESTIONS | (_SAMPLE_QUESTIONS if self._one_step else frozenset())
        self._lock = threading.RLock()
        self._told: list[Observation] = []
        self._batches: list[SampleBatch] = []
        self._held_bytes = 0
        self._ticks = 0
        self._seq = 0
        self._settled = Settled()
        self._file: JournalFile | None = None
        self._file = self._recovered()

    def __getattr__(self, name: str) -> Any:
        if name in self._questions:
            self.settle()
        return getattr(self._store, name)

    def clusters(self) -> list[str]:
        """The clusters there are, also those whose first tick is still held back."""
        with self._lock:
            held = {o.cluster for o in self._told} | {b.cluster for b in self._batches}
            return sorted(held | set(self._store.clusters()))

    def ingest(
        self, observations: Iterable[Observation], batches: Iterable[SampleBatch] = ()
    ) -> None:
        """Keep a tick: in the journal, or with the whole group in the store."""
        told = [replace(observation, samples=()) for observation in observations]
        told = [o for o in told if o != Observation(o.time_ms, o.cluster)]
        # Many at once (history, an import) are a group by themselves.
        many = len(told) >= GROUP_TICKS // 2
        # A batch that the store would refuse must be refused now, not when its group is due.
        measured = [batch if many else batch.checked() for batch in batches]
        with self._lock:
            # What is complete ends whatever it does not name: it must meet the records in order.
            if many or self._ticks >= GROUP_TICKS or self._held_bytes >= GROUP_BYTES:
                self._sort_in(told, measured)
                return
            if any(o.complete for o in told):
                self._write(self._told + told, [])
                self._told, told = [], []
            if self._one_step is None and measured:
                self._store.append(measured)
                measured = []
            if told or measured:
                self._note(told, measured)

    def apply(self, observation: Observation) -> None:
        """Take over what was observed."""
        self.ingest((observation,))

    def append(self, batches: Iterable[SampleBatch]) -> None:
        """Keep these samples."""
        self.ingest((), batches)

    def settle(self) -> None:
        """Sort in what stands in the journal."""
        with self._lock:
            if self._ticks:
                self._sort_in([], [])

    def maintain(self, now_ms: int) -> None:
        """Whatever keeps the store fast and small."""
        self.settle()
        self._store.maintain(now_ms)

    def close(self) -> None:
        """Finish cleanly."""
        self.settle()
        with self._lock:
            self._store.close()
            if self._file is not None:
                self._file.remove()

    def _note(self, told: Sequence[Observation], measured: Sequence[SampleBatch]) -> None:
        if self._file is not None:
            payload = pack(Entry(self._seq + 1, tuple(told), tuple(measured)))
            self._file.append(payload)
            self._held_bytes += len(payload)
        self._seq += 1
        self._ticks += 1
        self._told += told
        self._batches += measured

    def _sort_in(self, told: Sequence[Observation], measured: Sequence[SampleBatch]) -> None:
        self._write([*self._told, *told], [*self._batches, *measured], samples_too=True)
        self._told, self._batches = [], []
        self._ticks = self._held_bytes = 0
        if self._file is not None:
            self._file.clear()

    def _write(
        self, told: list[Observation], batches: list[SampleBatch], *, samples_too: bool = False
    ) -> None:
        """Put the records, or both, into the store, and say up to which tick it has them."""
        settled = replace(self._settled, records=self._seq)
        if samples_too:
            settled = replace(settled, samples=self._seq)
        news = {} if settled == self._settled else {"settled": asdict(settled)}
        if self._one_step is not None:
            self._one_step.ingest(told, batches, {DOCUMENT_KIND: news})
        else:
            for observation in told:
                self._store.apply(observation)
            if batches:
                self._store.append(batches)
            for name, document in news.items():
                self._store.put_document(DOCUMENT_KIND, name, document)
        self._settled = settled

    def _recovered(self) -> JournalFile | None:
        """The journal of this store, with what a killed process had only noted sorted in."""
        place = _place(self._store)
        if place is None:
            return None
        identity = _identity(self._store)
        if identity is None:
            identity = secrets.token_bytes(16)
            self._store.put_document(DOCUMENT_KIND, "file", {"id": identity.hex()})
        self._settled = settled = _settled(self._store)
        self._seq = settled.newest
        for payload in entries(place, identity):
            entry = unpack(payload)
            self._seq = max(self._seq, entry.seq)
            self._told += entry.told if entry.seq > settled.records else ()
            self._batches += entry.batches if entry.seq > settled.samples else ()
            self._ticks += entry.seq > settled.samples
        if self._ticks:
            log.info("%d ticks of the journal are sorted in", self._ticks)
            self._sort_in([], [])
        return JournalFile(place, identity)


def journaled(store: Store) -> Store:
    """The store with a journal before it."""
    return cast(Store, JournaledStore(store))


def behind_journal(store: Store) -> HistoryStore:
    """The store itself, with everything sorted in: for a whole history as one step."""
    if isinstance(store, JournaledStore):
        store.settle()
        store = store._store
    if not isinstance(store, OneStepStore):
        raise Unavailable("This store cannot take a history as one step.")
    return cast(HistoryStore, store)


def unsettled(store: Store) -> bool:
    """Whether a store has a journal that was not sorted in: its process was killed."""
    place = _place(store)
    if place is None or not place.exists():
        return False
    settled = _settled(store)
    return any(seq > settled.samples for seq in seqs(entries(place, _identity(store))))


def _place(store: Store) -> Path | None:
    path = getattr(store, "path", None)
    return None if path is None else journal_path(path)


def _identity(store: Store) -> bytes | None:
    try:
        return bytes.fromhex(store.document(DOCUMENT_KIND, "file")["id"])
    except NotFound:
        return None


def _settled(store: Store) -> Settled:
    try:
        return Settled(**store.document(DOCUMENT_KIND, "settled"))
    except NotFound:
        return Settled()
