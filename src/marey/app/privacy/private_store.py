"""A store as a scope sees it: the one place through which records and samples are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from marey.app.privacy.masked_documents import DocumentMask
from marey.app.privacy.masked_tables import TableMask
from marey.app.privacy.owners import WorkloadOwners
from marey.app.privacy.visible_queries import QueryRewriter
from marey.model.access.record_mask import RecordMask
from marey.model.errors import NotFound, shown
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
from marey.model.tables import StateRow, WorkloadRecord

# No scheduler gives a workload this id, so no sample has it.
_NO_WORKLOAD = "\x00none"


class PrivateStore:
    """Takes and gives the names that its scope is shown; what is not shown does not exist."""

    def __init__(self, whole: Store, record_mask: RecordMask, owners: WorkloadOwners) -> None:
        self._whole = whole
        self._record_mask = record_mask
        self._owners = owners
        self._tables = TableMask(record_mask, owners)
        self._documents = DocumentMask(record_mask, owners)
        self._queries = QueryRewriter(record_mask, owners)

    @property
    def path(self) -> Path | None:
        """Return the file of the store behind."""
        return self._whole.path

    def sample_state(self) -> SampleServerState | None:
        """Return how the server of the samples is doing."""
        return self._whole.sample_state()

    # Workloads

    def find_workload(self, cluster: str, workload: str) -> str | None:
        """Return the real id of a workload that is shown under this one; None if there is none."""
        return self._tables.find_id(cluster, workload)

    def knows_workload(self, cluster: str, workload: str) -> bool:
        """Return whether a workload is shown under its real names."""
        owner = self._owners.find(cluster, [workload]).get(workload)
        return owner is not None and self._record_mask.knows(*owner)

    def workloads(self, query: WorkloadQuery) -> pa.Table:
        """Return the workloads that are shown and chosen."""
        if query.after is not None:
            query = replace(query, after=self._name_inside(query.cluster, query.after))
        return self._tables.show_workloads(self._whole.workloads(self._queries.rewrite(query)))

    def count_workloads(self, query: WorkloadQuery) -> dict[str, int]:
        """Return how many are shown and chosen, by state."""
        return self._whole.count_workloads(self._queries.rewrite(query))

    def workload(self, cluster: str, workload: str) -> WorkloadRecord:
        """Return one workload; one that is not shown answers like one that never was."""
        real = self.find_workload(cluster, workload)
        if real is None:
            raise NotFound(
                f"There is no workload '{shown(workload)}' in cluster '{shown(cluster)}'."
            )
        found = self._whole.workload(cluster, real)
        if self._record_mask.knows(found["user"], found["project"]):
            return found
        return {
            **found,
            "states": [self._mask_state(row, workload) for row in found["states"]],
            "allocations": [{**row, "workload": workload} for row in found["allocations"]],
            "workload": workload,
            "name": "",
            "user": self._record_mask.show_user(found["user"]),
            "project": self._record_mask.show_project(found["project"]),
            "experiment": "",
            "qos": "",
            "reason": self._record_mask.show_reason(found["reason"]),
            "attributes": {},
        }

    def _mask_state(self, row: StateRow, workload: str) -> StateRow:
        reason = self._record_mask.show_reason(row["reason"])
        return {**row, "workload": workload, "reason": reason}

    # Tables

    def clusters(self) -> list[str]:
        """Return the clusters there are."""
        return self._whole.clusters()

    def gpus(self, cluster: str, time_ms: int) -> pa.Table:
        """Return the GPUs of a cluster at a time."""
        return self._tables.show_gpus(self._whole.gpus(cluster, time_ms))

    def moment(self, cluster: str, time_ms: int) -> Moment:
        """Return the cluster at a time, with the work that is shown."""
        moment = self._whole.moment(cluster, time_ms)
        return replace(
            moment,
            hosts=self._tables.show_hosts(moment.hosts),
            gpus=self._tables.show_gpus(moment.gpus),
            workloads=self._tables.show_workloads(moment.workloads),
            allocations=self._tables.show_rows(cluster, moment.allocations),
        )

    def allocations(
        self,
        cluster: str,
        *,
        workload: str | None = None,
        from_ms: int = 0,
        to_ms: int | None = None,
    ) -> pa.Table:
        """Return who of those that are shown held which GPU."""
        real = self._name_inside(cluster, workload)
        table = self._whole.allocations(cluster, workload=real, from_ms=from_ms, to_ms=to_ms)
        return self._tables.show_rows(cluster, table)

    def states(self, cluster: str, *, from_ms: int, to_ms: int) -> pa.Table:
        """Return state intervals of workloads that are shown."""
        table = self._whole.states(cluster, from_ms=from_ms, to_ms=to_ms)
        return self._tables.show_rows(cluster, table)

    def host_states(self, cluster: str, *, from_ms: int, to_ms: int) -> pa.Table:
        """Return state intervals of hosts, which are everybody's."""
        return self._whole.host_states(cluster, from_ms=from_ms, to_ms=to_ms)

    def progress(self, cluster: str, workload: str, from_ms: int, to_ms: int) -> pa.Table:
        """Return the progress that the workload reported."""
        real = self._name_inside(cluster, workload) or _NO_WORKLOAD
        table = self._whole.progress(cluster, real, from_ms, to_ms)
        return self._tables.show_rows(cluster, table)

    def progress_minutes(self, cluster: str, from_ms: int, to_ms: int) -> pa.Table:
        """Return the last report in each minute of every workload that is shown."""
        table = self._whole.progress_minutes(cluster, from_ms, to_ms)
        return self._tables.show_rows(cluster, table)

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
        real = self._name_inside(cluster, workload)
        table = self._whole.events(cluster, from_ms, to_ms, workload=real, limit=limit)
        return self._tables.show_events(cluster, table)

    def _name_inside(self, cluster: str, workload: str | None) -> str | None:
        """Return the id behind a shown one; one that nobody has where it is not shown."""
        if workload is None:
            return None
        return self.find_workload(cluster, workload) or _NO_WORKLOAD

    # Samples

    def scan(self, selection: Selection) -> Iterator[SampleBatch]:
        """Return the samples themselves."""
        for batch in self._whole.scan(self._select(selection)):
            yield self._tables.show_batch(batch)

    def series(self, selection: Selection, points: int) -> Answer:
        """Return downsampled series that keep extremes."""
        return self._whole.series(self._select(selection), points)

    def histograms(
        self, selection: Selection, bins: int, ranges: Sequence[tuple[float, float]] = ()
    ) -> Answer:
        """Return counts per entity and metric over equal bins."""
        return self._whole.histograms(self._select(selection), bins, ranges)

    def statistics(self, selection: Selection, quantiles: Sequence[float] = ()) -> Answer:
        """Return exact statistics per entity and metric."""
        return self._whole.statistics(self._select(selection), quantiles)

    def latest(self, cluster: str, kind: Entity, since_ms: int) -> SampleBatch:
        """Return the newest value of every metric of every entity."""
        return self._tables.show_batch(self._whole.latest(cluster, kind, since_ms))

    def span(self, cluster: str) -> tuple[int, int] | None:
        """Return time of the first and last sample."""
        return self._whole.span(cluster)

    def _select(self, selection: Selection) -> Selection:
        real = self._name_inside(selection.cluster, selection.workload)
        return replace(selection, workload=real)

    # Documents

    def document(self, kind: str, name: str) -> Any:
        """Return the document of this name; one that is not shown is not found."""
        if (found := self.documents(kind).get(name)) is not None:
            return found
        raise NotFound(f"There is no {shown(kind)} named '{shown(name)}'.")

    def documents(self, kind: str) -> dict[str, Any]:
        """Return every document of a kind that is shown."""
        return self._documents.show(kind, self._whole.documents(kind))

    def find_document(self, kind: str, name: str) -> str:
        """Return the real name of a document that is shown under this one."""
        self.document(kind, name)
        return self._documents.find_name(kind, name, self._whole.documents(kind)) or name

    # Writing

    def put_document(self, kind: str, name: str, document: Any) -> None:
        """Keep a JSON document under a name."""
        self._whole.put_document(kind, name, document)

    def put_documents(self, kind: str, named: Mapping[str, Any]) -> None:
        """Keep many documents of a kind by name."""
        self._whole.put_documents(kind, named)

    def delete_document(self, kind: str, name: str) -> None:
        """Forget a document; one that is not shown is not found."""
        self._whole.delete_document(kind, self.find_document(kind, name))

    def apply(self, observation: Observation) -> None:
        """Take over what was observed of work that is shown under its real names."""
        for report in observation.progress:
            if not self.knows_workload(observation.cluster, report.workload):
                raise NotFound(
                    f"There is no workload '{shown(report.workload)}' of yours in cluster "
                    f"'{shown(observation.cluster)}'."
                )
        self._whole.apply(observation)

    def append(self, batches: Iterable[SampleBatch]) -> None:
        """Keep these samples as one step."""
        self._whole.append(batches)

    def ingest(
        self,
        observations: Iterable[Observation],
        batches: Iterable[SampleBatch] = (),
        documents_by_kind: Documents | None = None,
    ) -> None:
        """Take over observations, samples, and documents by kind and name."""
        self._whole.ingest(observations, batches, documents_by_kind)

    def maintain(self, now_ms: int) -> None:
        """Leave keeping the store small to whoever opened it."""

    def close(self) -> None:
        """Leave the store to whoever opened it."""
