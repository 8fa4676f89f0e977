"""The embedded store: samples and records in one DuckDB file, for one process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from marey.model.metrics import Entity
from marey.model.names import bounded
from marey.model.observation import Observation
from marey.model.protocols import Answer, Moment, SampleServerState, Selection, WorkloadQuery
from marey.model.samples import SampleBatch
from marey.model.tables import WorkloadRecord
from marey.model.times import HOUR_MS
from marey.store.database.database_file import Database
from marey.store.embedded import documents, maintenance
from marey.store.embedded.imported_spans import IMPORTED_KIND
from marey.store.embedded.maintenance import Retention
from marey.store.records import record_queries
from marey.store.records.record_writer import Records
from marey.store.records.workload_queries import KnownWorkloads, read_workloads
from marey.store.samples.charts import Charts
from marey.store.samples.sample_queries import SampleReader
from marey.store.samples.sample_tables import SampleTables

__all__ = ["EmbeddedStore", "Retention", "open_store"]

# Pages of the file and what questions compute.
MEMORY_LIMIT_MB = 96
# Questions that sort all workloads: more of them wait, as together they would need too much memory.
TABLES_AT_ONCE = 2


def open_store(
    path: str | Path | None,
    *,
    retention: Retention | None = None,
    memory_limit_mb: int = MEMORY_LIMIT_MB,
    read_only: bool = False,
) -> EmbeddedStore:
    """Open the store in this file, creating it where there is none; None keeps it in memory."""
    where = None if path is None or str(path) == ":memory:" else Path(path)
    database = Database(where, memory_limit_mb=memory_limit_mb, read_only=read_only)
    return EmbeddedStore(database, retention or Retention())


class EmbeddedStore:
    """Samples and records in one file; one writer at a time, readers beside it."""

    def __init__(self, database: Database, retention: Retention) -> None:
        self._database = database
        self._retention = retention
        self._lock = threading.RLock()
        self._loaded = -1
        self._maintained_ms: int | None = None
        self._records = Records()
        self._samples = SampleTables()
        self._known_workloads = KnownWorkloads()
        try:
            self._refresh()
        except BaseException:
            database.close()
            raise

    @property
    def path(self) -> Path | None:
        """The file, or None for a store in memory."""
        return self._database.path

    def sample_state(self) -> SampleServerState | None:
        """Return None: the samples are in the file."""
        return None

    def _refresh(self) -> None:
        """Read again what is kept in memory, after a write was undone or the file reopened."""
        # Without the lock first: a reader must not wait for a writer.
        if self._loaded == self._database.generation:
            return
        with self._lock:
            if self._loaded == self._database.generation:
                return
            records, samples = Records(), SampleTables()
            with self._database.read() as connection:
                generation = self._database.generation
                records.load(connection)
                samples.load(connection)
            self._records, self._samples = records, samples
            self._loaded = generation
            self._known_workloads = KnownWorkloads()
        self._tables_at_once = threading.BoundedSemaphore(TABLES_AT_ONCE)

    def _make_reader(self, connection: duckdb.DuckDBPyConnection) -> SampleReader:
        return SampleReader(connection, self._samples)

    # Samples

    def append(self, batches: Iterable[SampleBatch]) -> None:
        """Keep these samples as one step; one with the same time, entity and metric replaces."""
        self.ingest((), batches)

    def ingest(
        self,
        observations: Iterable[Observation],
        batches: Iterable[SampleBatch] = (),
        documents_by_kind: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Take over observations, samples and documents (by kind and name) as one commit."""
        with self._lock:
            self._refresh()
            with self._watch_workloads(), self._database.write() as connection:
                self._records.apply_all(connection, list(observations))
                imported = (documents_by_kind or {}).get(IMPORTED_KIND, {})
                restored = [(one["from_ms"], one["to_ms"]) for one in imported.values()]
                for batch in batches:
                    self._records.note_cluster(connection, bounded(batch.cluster))
                    self._samples.append(connection, batch, restored)
                self._samples.flush(connection)
                for kind, named in (documents_by_kind or {}).items():
                    for name, document in named.items():
                        documents.put(connection, kind, name, document)

    @contextmanager
    def _watch_workloads(self) -> Iterator[None]:
        """Forget what is known about all workloads if one of them is changed meanwhile."""
        before = self._records.workload_changes
        try:
            yield
        finally:
            if self._records.workload_changes != before:
                self._known_workloads = KnownWorkloads()

    def scan(self, selection: Selection) -> Iterator[SampleBatch]:
        """Yield the samples themselves, each once, in order of time within a batch."""
        self._refresh()
        with self._database.read() as connection:
            yield from self._make_reader(connection).scan(selection)

    def series(self, selection: Selection, points: int) -> Answer:
        """Return downsampled series that keep extremes."""
        with self._open_charts(selection) as charts:
            return charts.series(points)

    def histograms(
        self, selection: Selection, bins: int, ranges: Sequence[tuple[float, float]] = ()
    ) -> Answer:
        """Return counts per entity and metric over equal bins (metric's own range unless given)."""
        with self._open_charts(selection) as charts:
            return charts.histograms(bins, ranges)

    def statistics(self, selection: Selection, quantiles: Sequence[float] = ()) -> Answer:
        """Return exact count, min, max, mean, std, first, last per entity and metric, and
        quantiles.
        """
        with self._open_charts(selection) as charts:
            return charts.statistics(quantiles)

    @contextmanager
    def _open_charts(self, selection: Selection) -> Iterator[Charts]:
        self._refresh()
        with self._database.read() as connection:
            yield Charts(connection, self._samples, selection)

    def latest(self, cluster: str, kind: Entity, since_ms: int) -> SampleBatch:
        """Return the newest value of every metric of every entity, none older than ``since_ms``."""
        self._refresh()
        with self._database.read() as connection:
            return self._make_reader(connection).latest(cluster, kind, since_ms)

    def span(self, cluster: str) -> tuple[int, int] | None:
        """Return time of the first and last sample, or None where there is none."""
        self._refresh()
        with self._database.read() as connection:
            return self._make_reader(connection).span(cluster)

    def maintain(self, now_ms: int) -> None:
        """Rewrite finished hours for reading, reduce what is old, drop what is older."""
        hour_ms = now_ms - now_ms % HOUR_MS
        with self._lock:
            self._refresh()
            finished = any(oldest < hour_ms for oldest in self._samples.oldest_hot.values())
            if not finished and hour_ms == self._maintained_ms:
                return
            changed = False
            for kind in Entity:
                changed |= maintenance.rewrite(self._database, self._samples, kind, now_ms)
                changed |= maintenance.reduce_old(
                    self._database, self._samples, kind, now_ms=now_ms, retention=self._retention
                )
                changed |= maintenance.drop_old(
                    self._database, self._samples, kind, now_ms=now_ms, retention=self._retention
                )
            if changed:
                self._database.checkpoint()
                self._database.release_cache()
            self._maintained_ms = hour_ms

    # Records

    def apply(self, observation: Observation) -> None:
        """Take over what was observed, as one step; the samples in it are not this call's."""
        self.ingest((observation,))

    def clusters(self) -> list[str]:
        """Return the clusters there are."""
        with self._database.read() as connection:
            rows = connection.execute("SELECT cluster FROM clusters ORDER BY cluster").fetchall()
        return [row[0] for row in rows]

    def moment(self, cluster: str, time_ms: int) -> Moment:
        """Return the whole cluster at any time, past or present."""
        with self._database.read() as connection:
            return record_queries.read_moment(connection, cluster, time_ms)

    def gpus(self, cluster: str, time_ms: int) -> pa.Table:
        """Return the GPUs of a cluster at any time, past or present."""
        with self._database.read() as connection:
            return record_queries.read_gpus(connection, cluster, time_ms)

    def workloads(self, query: WorkloadQuery) -> pa.Table:
        """Return workloads with their latest state.

        ``after`` is the id of the last one of a page.
        """
        # Taken before the snapshot: what this reader adds cannot outlive a later change.
        known = self._known_workloads
        with self._tables_at_once, self._database.read() as connection:
            return read_workloads(connection, query, known)

    def count_workloads(self, query: WorkloadQuery) -> dict[str, int]:
        """Return how many workloads a query means in all, by state."""
        known = self._known_workloads
        with self._tables_at_once, self._database.read() as connection:
            return known.count(connection, query)

    def workload(self, cluster: str, workload: str) -> WorkloadRecord:
        """Return one workload, with its intervals under ``states`` and ``allocations``."""
        with self._database.read() as connection:
            return record_queries.read_workload(connection, cluster, workload)

    def allocations(
        self,
        cluster: str,
        *,
        workload: str | None = None,
        from_ms: int = 0,
        to_ms: int | None = None,
    ) -> pa.Table:
        """Return who held which GPU from when to when."""
        with self._database.read() as connection:
            return record_queries.read_allocations(
                connection, cluster, workload, from_ms=from_ms, to_ms=to_ms
            )

    def states(self, cluster: str, *, from_ms: int, to_ms: int) -> pa.Table:
        """Return state intervals of workloads that touch this span."""
        with self._database.read() as connection:
            return record_queries.read_states(connection, cluster, from_ms, to_ms)

    def host_states(self, cluster: str, *, from_ms: int, to_ms: int) -> pa.Table:
        """Return state intervals of hosts that touch this span."""
        with self._database.read() as connection:
            return record_queries.read_host_states(connection, cluster, from_ms, to_ms)

    def progress(self, cluster: str, workload: str, from_ms: int, to_ms: int) -> pa.Table:
        """Return the progress that the workload reported."""
        with self._database.read() as connection:
            return record_queries.read_progress(
                connection, cluster, workload, from_ms=from_ms, to_ms=to_ms
            )

    def progress_minutes(self, cluster: str, from_ms: int, to_ms: int) -> pa.Table:
        """Return the last report of every workload in each minute: workload, time_ms."""
        with self._database.read() as connection:
            return record_queries.read_progress_minutes(connection, cluster, from_ms, to_ms)

    def events(
        self,
        cluster: str,
        from_ms: int,
        to_ms: int,
        *,
        workload: str | None = None,
        limit: int = 10_000,
    ) -> pa.Table:
        """Return events in order of time.

        Where there are more than ``limit``, the newest of them.
        """
        with self._database.read() as connection:
            return record_queries.read_events(
                connection, cluster, (from_ms, to_ms), workload=workload, limit=limit
            )

    def put_document(self, kind: str, name: str, document: Any) -> None:
        """Keep a JSON document under a name."""
        with self._lock, self._database.write() as connection:
            documents.put(connection, kind, name, document)

    def put_documents(self, kind: str, named: Mapping[str, Any]) -> None:
        """Keep many documents of a kind by name, as one commit."""
        with self._lock, self._database.write() as connection:
            documents.put_all(connection, kind, named)

    def document(self, kind: str, name: str) -> Any:
        """Return the document of this name."""
        with self._database.read() as connection:
            return documents.get(connection, kind, name)

    def documents(self, kind: str) -> dict[str, Any]:
        """Return every document of a kind by name."""
        with self._database.read() as connection:
            return documents.list_documents(connection, kind)

    def delete_document(self, kind: str, name: str) -> None:
        """Forget a document."""
        with self._lock, self._database.write() as connection:
            documents.delete(connection, kind, name)

    def close(self) -> None:
        """Finish cleanly; closing twice is fine."""
        with self._lock:
            self._database.close()

    def __enter__(self) -> EmbeddedStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
