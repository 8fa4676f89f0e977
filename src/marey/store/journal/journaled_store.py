"""Ticks written in groups: kept at once in a small file, sorted into the store every few ticks.

A commit to a database, and turning an observation into validity intervals, cost the same for one
tick as for a group of them. Until a group is sorted in, each tick of it stands in the journal
beside the store, so that a kill loses nothing; whoever asks has the group sorted in first.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from marey.model.errors import NotFound
from marey.model.metrics import Entity
from marey.model.observation import Observation
from marey.model.protocols import (
    Answer,
    Documents,
    Moment,
    SampleServerState,
    Selection,
    Store,
    WorkloadQuery,
)
from marey.model.samples import SampleBatch
from marey.model.tables import WorkloadRecord
from marey.store.database.damaged_log import keep_aside
from marey.store.journal.journal_entries import Entry, pack, read_sequence_numbers, unpack
from marey.store.journal.journal_file import (
    JournalFile,
    get_journal_path,
    read_entries,
    read_journal,
)

log = logging.getLogger(__name__)

DOCUMENT_KIND = "journal"
GROUP_TICKS = 40
# A cluster of a million GPUs is not held back for long.
GROUP_BYTES = 32_000_000


@dataclass(frozen=True, slots=True)
class StoredMarks:
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
        self._lock = threading.RLock()
        self._observations: list[Observation] = []
        self._batches: list[SampleBatch] = []
        self._held_bytes = 0
        self._ticks = 0
        self._seq = 0
        self._stored_marks = StoredMarks()
        self._file: JournalFile | None = None
        self._file = self._recover()

    @property
    def path(self) -> Path | None:
        """Return the file of the store behind."""
        return self._store.path

    def sample_state(self) -> SampleServerState | None:
        """Return how the server of the samples is doing."""
        return self._store.sample_state()

    def clusters(self) -> list[str]:
        """Return the clusters there are, also those whose first tick is still held back."""
        with self._lock:
            held = {o.cluster for o in self._observations} | {b.cluster for b in self._batches}
            return sorted(held | set(self._store.clusters()))

    def ingest(
        self,
        observations: Iterable[Observation],
        batches: Iterable[SampleBatch] = (),
        documents_by_kind: Documents | None = None,
    ) -> None:
        """Keep a tick: in the journal, or with the whole group in the store.

        Documents are never held back: they take the whole group with them.
        """
        reported = [replace(observation, samples=()) for observation in observations]
        reported = [o for o in reported if o != Observation(o.time_ms, o.cluster)]
        # Many at once (history, an import) are a group by themselves.
        many = len(reported) >= GROUP_TICKS // 2
        # A batch that the store would refuse must be refused now, not when its group is due.
        measured = [batch if many else batch.checked() for batch in batches]
        with self._lock:
            # What is complete ends whatever it does not name: it must meet the records in order.
            due = self._ticks >= GROUP_TICKS or self._held_bytes >= GROUP_BYTES
            if many or due or documents_by_kind:
                self._sort_in(reported, measured, documents_by_kind or {})
                return
            if any(o.complete for o in reported):
                self._write(self._observations + reported, [])
                self._observations, reported = [], []
            if reported or measured:
                self._append_to_journal(reported, measured)

    def apply(self, observation: Observation) -> None:
        """Take over what was observed."""
        self.ingest((observation,))

    def append(self, batches: Iterable[SampleBatch]) -> None:
        """Keep these samples."""
        self.ingest((), batches)

    def apply_journal(self) -> None:
        """Sort in what stands in the journal."""
        with self._lock:
            if self._ticks:
                self._sort_in([], [])

    def _get_current_store(self) -> Store:
        """Return the store behind, which then knows of every tick."""
        self.apply_journal()
        return self._store

    # Questions: the answer must know of every tick

    def scan(self, selection: Selection) -> Iterator[SampleBatch]:
        """Return the samples themselves."""
        return self._get_current_store().scan(selection)

    def series(self, selection: Selection, points: int) -> Answer:
        """Return downsampled series that keep extremes."""
        return self._get_current_store().series(selection, points)

    def histograms(
        self, selection: Selection, bins: int, ranges: Sequence[tuple[float, float]] = ()
    ) -> Answer:
        """Return counts per entity and metric over equal bins."""
        return self._get_current_store().histograms(selection, bins, ranges)

    def statistics(self, selection: Selection, quantiles: Sequence[float] = ()) -> Answer:
        """Return exact statistics per entity and metric."""
        return self._get_current_store().statistics(selection, quantiles)

    def latest(self, cluster: str, kind: Entity, since_ms: int) -> SampleBatch:
        """Return the newest value of every metric of every entity."""
        return self._get_current_store().latest(cluster, kind, since_ms)

    def span(self, cluster: str) -> tuple[int, int] | None:
        """Return the time of the first and last sample."""
        return self._get_current_store().span(cluster)

    def moment(self, cluster: str, time_ms: int) -> Moment:
        """Return the whole cluster at any time, past or present."""
        return self._get_current_store().moment(cluster, time_ms)

    def gpus(self, cluster: str, time_ms: int) -> pa.Table:
        """Return the GPUs of a cluster at any time."""
        return self._get_current_store().gpus(cluster, time_ms)

    def workloads(self, query: WorkloadQuery) -> pa.Table:
        """Return workloads with their latest state."""
        return self._get_current_store().workloads(query)

    def count_workloads(self, query: WorkloadQuery) -> dict[str, int]:
        """Return how many workloads a query means in all, by state."""
        return self._get_current_store().count_workloads(query)

    def workload(self, cluster: str, workload: str) -> WorkloadRecord:
        """Return one workload with its intervals."""
        return self._get_current_store().workload(cluster, workload)

    def allocations(
        self,
        cluster: str,
        *,
        workload: str | None = None,
        from_ms: int = 0,
        to_ms: int | None = None,
    ) -> pa.Table:
        """Return who held which GPU from when to when."""
        return self._get_current_store().allocations(
            cluster, workload=workload, from_ms=from_ms, to_ms=to_ms
        )

    def states(self, cluster: str, *, from_ms: int, to_ms: int) -> pa.Table:
        """Return state intervals of workloads that touch this span."""
        return self._get_current_store().states(cluster, from_ms=from_ms, to_ms=to_ms)

    def host_states(self, cluster: str, *, from_ms: int, to_ms: int) -> pa.Table:
        """Return state intervals of hosts that touch this span."""
        return self._get_current_store().host_states(cluster, from_ms=from_ms, to_ms=to_ms)

    def progress(self, cluster: str, workload: str, from_ms: int, to_ms: int) -> pa.Table:
        """Return the progress that the workload reported."""
        return self._get_current_store().progress(cluster, workload, from_ms, to_ms)

    def progress_minutes(self, cluster: str, from_ms: int, to_ms: int) -> pa.Table:
        """Return the last report of every workload in each minute."""
        return self._get_current_store().progress_minutes(cluster, from_ms, to_ms)

    def events(
        self,
        cluster: str,
        from_ms: int,
        to_ms: int,
        *,
        workload: str | None = None,
        limit: int = 10_000,
    ) -> pa.Table:
        """Return events in order of time."""
        return self._get_current_store().events(
            cluster, from_ms, to_ms, workload=workload, limit=limit
        )

    # Documents: never held back, so they are the store's own

    def put_document(self, kind: str, name: str, document: Any) -> None:
        """Keep a JSON document under a name."""
        self._store.put_document(kind, name, document)

    def put_documents(self, kind: str, named: Mapping[str, Any]) -> None:
        """Keep many documents of a kind by name, as one step."""
        self._store.put_documents(kind, named)

    def document(self, kind: str, name: str) -> Any:
        """Return the document of this name."""
        return self._store.document(kind, name)

    def documents(self, kind: str) -> dict[str, Any]:
        """Return every document of a kind by name."""
        return self._store.documents(kind)

    def delete_document(self, kind: str, name: str) -> None:
        """Forget a document."""
        self._store.delete_document(kind, name)

    def maintain(self, now_ms: int) -> None:
        """Keep the store fast and small."""
        self.apply_journal()
        self._store.maintain(now_ms)

    def close(self) -> None:
        """Finish cleanly."""
        self.apply_journal()
        with self._lock:
            self._store.close()
            if self._file is not None:
                self._file.remove()

    def _append_to_journal(
        self, reported: Sequence[Observation], measured: Sequence[SampleBatch]
    ) -> None:
        if self._file is not None:
            try:
                payload = pack(Entry(self._seq + 1, tuple(reported), tuple(measured)))
            except (OverflowError, UnicodeEncodeError):
                # A number beyond 64 bits or half a character: the store bounds it, we cannot.
                self._sort_in(reported, measured)
                return
            self._file.append(payload)
            self._held_bytes += len(payload)
        self._seq += 1
        self._ticks += 1
        self._observations += reported
        self._batches += measured

    def _sort_in(
        self,
        reported: Sequence[Observation],
        measured: Sequence[SampleBatch],
        documents_by_kind: Documents | None = None,
    ) -> None:
        samples = [*self._batches, *measured]
        self._write([*self._observations, *reported], samples, documents_by_kind, samples_too=True)
        self._observations, self._batches = [], []
        self._ticks = self._held_bytes = 0
        if self._file is not None:
            self._file.clear()

    def _write(
        self,
        reported: list[Observation],
        batches: list[SampleBatch],
        documents_by_kind: Documents | None = None,
        *,
        samples_too: bool = False,
    ) -> None:
        """Put the records, or both, into the store, and say up to which tick it has them."""
        stored = replace(self._stored_marks, records=self._seq)
        if samples_too:
            stored = replace(stored, samples=self._seq)
        news = {} if stored == self._stored_marks else {"settled": asdict(stored)}
        self._store.ingest(reported, batches, {**(documents_by_kind or {}), DOCUMENT_KIND: news})
        self._stored_marks = stored

    def _recover(self) -> JournalFile | None:
        """Return the journal of this store, with what a killed process had only noted sorted in."""
        place = _place(self._store)
        if place is None:
            return None
        identity = _read_identity(self._store)
        if identity is None:
            identity = secrets.token_bytes(16)
            self._store.put_document(DOCUMENT_KIND, "file", {"id": identity.hex()})
        self._stored_marks = stored = _read_stored_marks(self._store)
        self._seq = stored.newest
        content = read_journal(place, identity)
        if content.is_damaged:
            log.warning(
                f"The journal '{place}' is damaged at byte {content.end}: its "
                f"{len(content.entries)} whole ticks before that are kept, {content.rest} bytes "
                f"after it are dropped. The whole file is kept as '{keep_aside(place).name}'."
            )
        for payload in content.entries:
            entry = unpack(payload)
            self._seq = max(self._seq, entry.seq)
            self._observations += entry.observations if entry.seq > stored.records else ()
            self._batches += entry.batches if entry.seq > stored.samples else ()
            self._ticks += entry.seq > stored.samples
        if self._ticks:
            log.info("%d ticks of the journal are sorted in", self._ticks)
            self._sort_in([], [])
        return JournalFile(place, identity)


def add_journal(store: Store) -> Store:
    """Return the store with a journal before it."""
    return JournaledStore(store)


def get_store_behind_journal(store: Store) -> Store:
    """Return the store itself, with everything sorted in: for a whole history as one step."""
    return store._get_current_store() if isinstance(store, JournaledStore) else store


def has_unapplied_journal(store: Store) -> bool:
    """Return whether a store has a journal that was not sorted in: its process was killed."""
    place = _place(store)
    if place is None or not place.exists():
        return False
    stored = _read_stored_marks(store)
    return any(
        seq > stored.samples
        for seq in read_sequence_numbers(read_entries(place, _read_identity(store)))
    )


def _place(store: Store) -> Path | None:
    return None if store.path is None else get_journal_path(store.path)


def _read_identity(store: Store) -> bytes | None:
    try:
        return bytes.fromhex(store.document(DOCUMENT_KIND, "file")["id"])
    except NotFound:
        return None


def _read_stored_marks(store: Store) -> StoredMarks:
    try:
        return StoredMarks(**store.document(DOCUMENT_KIND, "settled"))
    except NotFound:
        return StoredMarks()
