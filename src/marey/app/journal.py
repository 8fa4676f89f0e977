"""Records written in groups: kept at once as one small document, sorted in every few ticks.

Turning an observation into validity intervals takes a database some twenty statements, however
small it is; a group of ticks takes the same twenty. Until a group is sorted in, each tick of it
stands in the journal, so that a kill loses nothing; whoever asks about records has them sorted in
first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec

from marey.app.collecting import OneStepStore, Store
from marey.model.errors import Unavailable
from marey.model.events import Event
from marey.model.inventory import Gpu, GpuStatus, Host, HostStatus, Partition
from marey.model.observation import Observation
from marey.model.samples import SampleBatch
from marey.model.workloads import Allocation, Progress, Workload, WorkloadStatus

DOCUMENT_KIND = "journal"
GROUP_TICKS = 20

_KINDS: dict[str, Any] = {
    "hosts": tuple[Host, ...],
    "gpus": tuple[Gpu, ...],
    "partitions": tuple[Partition, ...],
    "host_states": tuple[HostStatus, ...],
    "gpu_states": tuple[GpuStatus, ...],
    "workloads": tuple[Workload, ...],
    "statuses": tuple[WorkloadStatus, ...],
    "allocations": tuple[Allocation, ...],
    "progress": tuple[Progress, ...],
    "events": tuple[Event, ...],
}
# Questions about records; the answer must know of every tick.
_RECORD_QUESTIONS = frozenset(
    {"moment", "workloads", "workload", "allocations", "states", "progress", "events"}
)


def to_document(observation: Observation) -> dict[str, Any]:
    """The records of an observation as JSON has them."""
    told = {name: getattr(observation, name) for name in _KINDS if getattr(observation, name)}
    return {
        "time_ms": observation.time_ms,
        "cluster": observation.cluster,
        **{name: msgspec.to_builtins(values) for name, values in told.items()},
    }


def from_document(document: dict[str, Any]) -> Observation:
    """The observation that ``to_document`` was given, without samples."""
    facts = {
        name: msgspec.convert(document[name], kind)
        for name, kind in _KINDS.items()
        if name in document
    }
    return Observation(document["time_ms"], document["cluster"], **facts)


class JournaledStore:
    """A store whose records are sorted in by groups; everything else is the store's own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.RLock()
        self._waiting: list[Observation] = []
        self._ticks = 0
        self._seq = 0
        self._replay()

    def __getattr__(self, name: str) -> Any:
        if name in _RECORD_QUESTIONS:
            self.settle()
        return getattr(self._store, name)

    def ingest(
        self, observations: Iterable[Observation], batches: Iterable[SampleBatch] = ()
    ) -> None:
        """Keep a tick: its records in the journal (or, with the group, sorted in), its samples."""
        told = [replace(observation, samples=()) for observation in observations]
        told = [o for o in told if o != Observation(o.time_ms, o.cluster)]
        with self._lock:
            # What is complete ends whatever it does not name: it must meet the records in order.
            # And many at once (history, an import) are a group by themselves.
            due = self._ticks >= GROUP_TICKS or len(told) >= GROUP_TICKS // 2
            if due or any(o.complete for o in told):
                self._sort_in(told, list(batches))
                return
            if told:
                self._note(told)
            kept = list(batches)
            if kept:
                self._store.append(kept)

    def apply(self, observation: Observation) -> None:
        """Take over what was observed."""
        self.ingest((observation,))

    def settle(self) -> None:
        """Sort in what stands in the journal."""
        with self._lock:
            if self._waiting:
                self._sort_in([], [])

    def maintain(self, now_ms: int) -> None:
        """Whatever keeps the store fast and small."""
        self.settle()
        self._store.maintain(now_ms)

    def close(self) -> None:
        """Finish cleanly."""
        self.settle()
        self._store.close()

    def _note(self, told: Sequence[Observation]) -> None:
        self._ticks += 1
        self._seq += 1
        document = {"seq": self._seq, "told": [to_document(observation) for observation in told]}
        # A ring of documents: none is deleted, the next group overwrites them.
        self._store.put_document(DOCUMENT_KIND, str(self._ticks), document)
        self._waiting += told

    def _sort_in(self, told: list[Observation], batches: list[SampleBatch]) -> None:
        group = self._waiting + told
        if isinstance(self._store, OneStepStore):
            self._store.ingest(group, batches)
        else:
            for observation in group:
                self._store.apply(observation)
            if batches:
                self._store.append(batches)
        if self._waiting:
            self._waiting = []
            self._ticks = 0
            self._store.put_document(DOCUMENT_KIND, "settled", {"seq": self._seq})

    def _replay(self) -> None:
        """Sort in what a killed process had noted but not sorted in."""
        documents = self._store.documents(DOCUMENT_KIND)
        settled = documents.pop("settled", {"seq": 0})["seq"]
        pending = sorted((d for d in documents.values() if d["seq"] > settled), key=_seq)
        self._seq = max([settled, *(document["seq"] for document in documents.values())])
        if pending:
            told = [from_document(entry) for document in pending for entry in document["told"]]
            for observation in told:
                self._store.apply(observation)
            self._store.put_document(DOCUMENT_KIND, "settled", {"seq": self._seq})


def journaled(store: Store) -> Store:
    """The store with a journal before its records."""
    return cast(Store, JournaledStore(store))


def behind_journal(store: Store) -> OneStepStore:
    """The store itself, with everything sorted in: for a whole history as one step."""
    if isinstance(store, JournaledStore):
        store.settle()
        store = store._store
    if not isinstance(store, OneStepStore):
        raise Unavailable("This store cannot take a history as one step.")
    return store


def _seq(document: dict[str, Any]) -> int:
    return int(document["seq"])


def unsettled(store: Store) -> bool:
    """Whether a store has a journal that was not sorted in: its process was killed."""
    documents = store.documents(DOCUMENT_KIND)
    settled = documents.pop("settled", {"seq": 0})["seq"]
    return any(document["seq"] > settled for document in documents.values())
