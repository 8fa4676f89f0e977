"""Records in the file, samples in VictoriaMetrics: two stores that look like one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from marey.model.errors import StoreError, Unavailable, shown
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

if TYPE_CHECKING:
    from marey.store.victoria.victoria_store import VictoriaStore


class _RecordsBehind:
    """What a store whose samples are elsewhere passes on to the store of its records."""

    def __init__(self, records: Store) -> None:
        self._records = records

    @property
    def path(self) -> Path | None:
        """Return the file of the records."""
        return self._records.path

    def apply(self, observation: Observation) -> None:
        """Take over what was observed; the samples in it are not this call's."""
        self._records.apply(observation)

    def moment(self, cluster: str, time_ms: int) -> Moment:
        """Return the whole cluster at any time, past or present."""
        return self._records.moment(cluster, time_ms)

    def gpus(self, cluster: str, time_ms: int) -> pa.Table:
        """Return the GPUs of a cluster at any time."""
        return self._records.gpus(cluster, time_ms)

    def workloads(self, query: WorkloadQuery) -> pa.Table:
        """Return workloads with their latest state."""
        return self._records.workloads(query)

    def count_workloads(self, query: WorkloadQuery) -> dict[str, int]:
        """Return how many workloads a query means in all, by state."""
        return self._records.count_workloads(query)

    def workload(self, cluster: str, workload: str) -> WorkloadRecord:
        """Return one workload with its intervals."""
        return self._records.workload(cluster, workload)

    def allocations(
        self,
        cluster: str,
        *,
        workload: str | None = None,
        from_ms: int = 0,
        to_ms: int | None = None,
    ) -> pa.Table:
        """Return who held which GPU from when to when."""
        return self._records.allocations(cluster, workload=workload, from_ms=from_ms, to_ms=to_ms)

    def states(self, cluster: str, *, from_ms: int, to_ms: int) -> pa.Table:
        """Return state intervals of workloads that touch this span."""
        return self._records.states(cluster, from_ms=from_ms, to_ms=to_ms)

    def host_states(self, cluster: str, *, from_ms: int, to_ms: int) -> pa.Table:
        """Return state intervals of hosts that touch this span."""
        return self._records.host_states(cluster, from_ms=from_ms, to_ms=to_ms)

    def progress(self, cluster: str, workload: str, from_ms: int, to_ms: int) -> pa.Table:
        """Return the progress that the workload reported."""
        return self._records.progress(cluster, workload, from_ms, to_ms)

    def progress_minutes(self, cluster: str, from_ms: int, to_ms: int) -> pa.Table:
        """Return the last report of every workload in each minute."""
        return self._records.progress_minutes(cluster, from_ms, to_ms)

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
        return self._records.events(cluster, from_ms, to_ms, workload=workload, limit=limit)

    def put_document(self, kind: str, name: str, document: Any) -> None:
        """Keep a JSON document under a name."""
        self._records.put_document(kind, name, document)

    def put_documents(self, kind: str, named: Mapping[str, Any]) -> None:
        """Keep many documents of a kind by name, as one step."""
        self._records.put_documents(kind, named)

    def document(self, kind: str, name: str) -> Any:
        """Return the document of this name."""
        return self._records.document(kind, name)

    def documents(self, kind: str) -> dict[str, Any]:
        """Return every document of a kind by name."""
        return self._records.documents(kind)

    def delete_document(self, kind: str, name: str) -> None:
        """Forget a document."""
        self._records.delete_document(kind, name)


class SplitStore(_RecordsBehind):
    """Both promises of a store; what is not about samples is the record store's."""

    def __init__(self, records: Store, samples: VictoriaStore) -> None:
        super().__init__(records)
        self.samples = samples

    def ingest(
        self,
        observations: Iterable[Observation],
        batches: Iterable[SampleBatch] = (),
        documents_by_kind: Documents | None = None,
    ) -> None:
        """Take over a tick or a history: the samples onto the disk, then the records.

        Killed between the two, the samples of that tick are there without its records. A spill
        that is full does not keep the records from being kept; that error is raised afterwards.
        """
        failure: StoreError | None = None
        try:
            self.samples.append(batches)
        except StoreError as error:
            failure = error
        self._records.ingest(observations, (), documents_by_kind)
        if failure is not None:
            raise failure

    def append(self, batches: Iterable[SampleBatch]) -> None:
        """Keep these samples."""
        self.samples.append(batches)

    def clusters(self) -> list[str]:
        """Return the clusters there are, also those that only have samples."""
        return sorted({*self._records.clusters(), *self.samples.clusters()})

    def scan(self, selection: Selection) -> Iterator[SampleBatch]:
        """Return the samples themselves."""
        return self.samples.scan(selection)

    def series(self, selection: Selection, points: int) -> Answer:
        """Return downsampled series that keep extremes."""
        return self.samples.series(selection, points)

    def histograms(
        self, selection: Selection, bins: int, ranges: Sequence[tuple[float, float]] = ()
    ) -> Answer:
        """Return counts per entity and metric over equal bins."""
        return self.samples.histograms(selection, bins, ranges)

    def statistics(self, selection: Selection, quantiles: Sequence[float] = ()) -> Answer:
        """Return exact statistics per entity and metric."""
        return self.samples.statistics(selection, quantiles)

    def latest(self, cluster: str, kind: Entity, since_ms: int) -> SampleBatch:
        """Return the newest value of every metric of every entity."""
        return self.samples.latest(cluster, kind, since_ms)

    def span(self, cluster: str) -> tuple[int, int] | None:
        """Return time of the first and last sample."""
        return self.samples.span(cluster)

    def maintain(self, now_ms: int) -> None:
        """Keep the stores fast and small."""
        self._records.maintain(now_ms)
        self.samples.maintain(now_ms)

    def close(self) -> None:
        """Finish cleanly."""
        try:
            self.samples.close()
        finally:
            self._records.close()

    def sample_state(self) -> SampleServerState | None:
        """Return how the server of the samples is doing, and what waits for it."""
        return self.samples.state()


class RecordsAlone(_RecordsBehind):
    """A store's file without its samples: says where they are when it is asked for them."""

    def __init__(self, records: Store, url: str) -> None:
        super().__init__(records)
        self._url = url

    def _refuse(self) -> NoReturn:
        raise Unavailable(
            f"The samples of this store are in VictoriaMetrics at {shown(self._url)}; ask "
            "through the server that uses both: start it with marey serve."
        )

    def ingest(
        self,
        observations: Iterable[Observation],
        batches: Iterable[SampleBatch] = (),
        documents_by_kind: Documents | None = None,
    ) -> None:
        """Take over a tick, samples included, into the file."""
        self._records.ingest(observations, batches, documents_by_kind)

    def append(self, batches: Iterable[SampleBatch]) -> None:
        """Keep these samples in the file."""
        self._records.append(batches)

    def clusters(self) -> list[str]:
        """Return the clusters there are."""
        return self._records.clusters()

    def scan(self, selection: Selection) -> Iterator[SampleBatch]:
        """Refuse: samples are kept elsewhere."""
        self._refuse()

    def series(self, selection: Selection, points: int) -> Answer:
        """Refuse: samples are kept elsewhere."""
        self._refuse()

    def histograms(
        self, selection: Selection, bins: int, ranges: Sequence[tuple[float, float]] = ()
    ) -> Answer:
        """Refuse: samples are kept elsewhere."""
        self._refuse()

    def statistics(self, selection: Selection, quantiles: Sequence[float] = ()) -> Answer:
        """Refuse: samples are kept elsewhere."""
        self._refuse()

    def latest(self, cluster: str, kind: Entity, since_ms: int) -> SampleBatch:
        """Refuse: samples are kept elsewhere."""
        self._refuse()

    def span(self, cluster: str) -> tuple[int, int] | None:
        """Return the time of the first and last sample of the file."""
        return self._records.span(cluster)

    def sample_state(self) -> SampleServerState | None:
        """Return None: nothing is known of a server that was not asked."""
        return None

    def maintain(self, now_ms: int) -> None:
        """Do whatever keeps the file fast and small."""
        self._records.maintain(now_ms)

    def close(self) -> None:
        """Finish cleanly."""
        self._records.close()
