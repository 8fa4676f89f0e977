"""The small interfaces behind which the world stands: sources, stores and the clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypedDict, runtime_checkable

import pyarrow as pa

from marey.model.inventory import Gpu
from marey.model.metrics import Entity
from marey.model.names import DEFAULT_CLUSTER
from marey.model.observation import Observation
from marey.model.predicates import EVERYTHING, Predicate
from marey.model.samples import SampleBatch
from marey.model.tables import WorkloadRecord
from marey.model.workloads import WorkloadState


class Clock(Protocol):
    """What time it is: passed in, so that tests and the simulator have their own."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970 UTC."""


class Source(Protocol):
    """Somewhere that facts about a cluster come from."""

    @property
    def name(self) -> str:
        """What the sources page calls it."""

    def poll(self, now_ms: int) -> Sequence[Observation]:
        """Return the observations up to this moment, in order of time.

        Raises ``Unavailable`` when silent.
        """

    def close(self) -> None:
        """Close connections and files."""


@runtime_checkable
class DetailedSource(Protocol):
    """A source that says more about itself on the sources page."""

    def details(self) -> Mapping[str, Any]:
        """Return what it adds about itself, by name."""


@runtime_checkable
class ClockedSource(Protocol):
    """A source whose servers have clocks that may be off."""

    def clock_offsets(self) -> Mapping[str, int]:
        """Return milliseconds ahead of us by server or endpoint, of those that are off."""


@runtime_checkable
class MeasuringSource(Protocol):
    """A source that measures GPUs, whoever else names them."""

    def seen_gpus(self) -> list[Gpu]:
        """Return every GPU seen so far."""

    def seen_jobs(self) -> Mapping[str, Sequence[str]]:
        """Return the workload that the labels name for each GPU now."""


@runtime_checkable
class AliasingSource(Protocol):
    """A scheduler that knows other names of its hosts."""

    def host_aliases(self) -> Mapping[str, str]:
        """Return the host by each other name or address."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which samples: entities over a half-open span of time ``[from_ms, to_ms)``.

    ``workload`` narrows to the samples that were written while that workload held the GPU.
    Empty ``entities`` means all.
    """

    metrics: tuple[str, ...]
    from_ms: int
    to_ms: int
    entities: tuple[str, ...] = ()
    workload: str | None = None
    kind: Entity = Entity.GPU
    cluster: str = DEFAULT_CLUSTER


@dataclass(frozen=True, slots=True)
class Answer:
    """A table, and whether it was made from reduced data."""

    table: pa.Table
    approximate: bool = False


class SampleStore(Protocol):
    """Keeps samples; every write is durable when the call returns."""

    def append(self, batches: Iterable[SampleBatch]) -> None:
        """Keep these samples as one step; one with the same time, entity and metric replaces.

        The batches may come from a generator that reads a large file: they are taken one by one,
        and when it raises nothing of them is kept.
        """

    def scan(self, selection: Selection) -> Iterator[SampleBatch]:
        """Return the samples themselves, each once, in order of time within a batch."""

    def series(self, selection: Selection, points: int) -> Answer:
        """Return downsampled series that keep extremes.

        Columns: entity, metric, time_ms, value; at most ``points`` (and at least 4) rows per
        series, each an actual sample: per bucket of time the first, least, greatest and last.
        """

    def histograms(
        self, selection: Selection, bins: int, ranges: Sequence[tuple[float, float]] = ()
    ) -> Answer:
        """Return counts per entity and metric over equal bins (metric's own range unless given).

        Columns: entity, metric, low, high, counts (list of int64), missing (int64).
        """

    def statistics(self, selection: Selection, quantiles: Sequence[float] = ()) -> Answer:
        """Return exact count, min, max, mean, std, first, last per entity and metric, quantiles.

        Columns: entity, metric, count, min, max, mean, std, first_ms, last_ms, last, and
        ``quantiles`` (list of float64 in the order asked for).
        """

    def latest(self, cluster: str, kind: Entity, since_ms: int) -> SampleBatch:
        """Return the newest value of every metric of every entity, none older than ``since_ms``."""

    def span(self, cluster: str) -> tuple[int, int] | None:
        """Return time of the first and last sample, or None where there is none."""

    def maintain(self, now_ms: int) -> None:
        """Keep the store fast and small by rewriting and retention. Safe at any time."""

    def close(self) -> None:
        """Finish cleanly."""


@dataclass(frozen=True, slots=True)
class OrderFigures:
    """Figures of workloads that no store keeps, for an order by them."""

    # By workload: what ``figure`` orders by, GPU-milliseconds wasted for the other orders.
    by_workload: Mapping[str, float]
    # The figure of every other workload; None puts them last.
    others: float | None = None
    # The usual efficiency (0-1) by type of GPU and number of GPUs.
    usual: Mapping[tuple[str, int], float] = field(default_factory=dict)
    # One that ran shorter is not held against what is usual.
    least_run_ms: int = 0


@dataclass(frozen=True, slots=True)
class WorkloadQuery:
    """Which workloads, newest submission first; ``after`` is the cursor of the page before."""

    cluster: str = DEFAULT_CLUSTER
    states: tuple[WorkloadState, ...] = ()
    where: Predicate = EVERYTHING
    # Only those that waited or ran at some time in this span.
    from_ms: int | None = None
    to_ms: int | None = None
    limit: int = 1000
    after: str | None = None
    # Another order than by submission: a column, wait_ms, run_ms or gpu_ms; with figures also
    # figure, efficiency, or over_usual.
    order_by: str = ""
    descending: bool = True
    offset: int = 0
    figures: OrderFigures | None = None
    # Until when one that waits or runs has done so; the wall clock's time if None.
    now_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """A cluster as it was (or is) at one time; the tables of ``model.tables``."""

    cluster: str
    time_ms: int
    hosts: pa.Table
    gpus: pa.Table
    partitions: pa.Table
    workloads: pa.Table
    allocations: pa.Table


class RecordStore(Protocol):
    """Keeps everything that is not a sample, with validity intervals for what changes."""

    def apply(self, observation: Observation) -> None:
        """Take over what was observed, as one step; the samples in it are not this store's."""

    def clusters(self) -> list[str]:
        """Return the clusters there are."""

    def moment(self, cluster: str, time_ms: int) -> Moment:
        """Return the whole cluster at any time, past or present."""

    def gpus(self, cluster: str, time_ms: int) -> pa.Table:
        """Return the GPUs of a cluster at any time; schema ``tables.GPUS``."""

    def workloads(self, query: WorkloadQuery) -> pa.Table:
        """Return workloads with their latest state; schema ``tables.WORKLOADS``."""

    def count_workloads(self, query: WorkloadQuery) -> dict[str, int]:
        """Return how many workloads a query means in all, by state; its page is not heeded."""

    def workload(self, cluster: str, workload: str) -> WorkloadRecord:
        """Return one workload, with its intervals; raises ``NotFound``."""

    def allocations(
        self,
        cluster: str,
        *,
        workload: str | None = None,
        from_ms: int = 0,
        to_ms: int | None = None,
    ) -> pa.Table:
        """Return who held which GPU from when to when; schema ``tables.ALLOCATIONS``."""

    def states(self, cluster: str, *, from_ms: int, to_ms: int) -> pa.Table:
        """Return state intervals of workloads that touch this span; schema ``tables.STATES``."""

    def host_states(self, cluster: str, *, from_ms: int, to_ms: int) -> pa.Table:
        """Return state intervals of hosts that touch this span; schema ``tables.HOST_STATES``."""

    def progress(self, cluster: str, workload: str, from_ms: int, to_ms: int) -> pa.Table:
        """Return the progress that the workload reported; schema ``tables.PROGRESS``."""

    def progress_minutes(self, cluster: str, from_ms: int, to_ms: int) -> pa.Table:
        """Return the last report of every workload in each minute: workload, time_ms."""

    def events(
        self,
        cluster: str,
        from_ms: int,
        to_ms: int,
        *,
        workload: str | None = None,
        limit: int = 10_000,
    ) -> pa.Table:
        """Return events in order of time; schema ``tables.EVENTS``."""

    def put_document(self, kind: str, name: str, document: Any) -> None:
        """Keep a JSON document (a saved view, a rule, a state of the app) under a name."""

    def put_documents(self, kind: str, named: Mapping[str, Any]) -> None:
        """Keep many documents of a kind by name, as one step: all of them, or none."""

    def document(self, kind: str, name: str) -> Any:
        """Return the document of this name; raises ``NotFound``."""

    def documents(self, kind: str) -> dict[str, Any]:
        """Return every document of a kind by name."""

    def delete_document(self, kind: str, name: str) -> None:
        """Forget a document; raises ``NotFound``."""

    def close(self) -> None:
        """Finish cleanly."""


# JSON documents by kind and name.
Documents = Mapping[str, Mapping[str, Any]]


class SampleServerState(TypedDict):
    """How the server of the samples is doing, and what waits for it on disk."""

    reachable: bool
    error: str
    error_code: str
    failing_since_s: float | None
    attempts: int
    failures: int
    delivered_samples: int
    resent_samples: int
    refused_samples: int
    refused_reason: str
    newest_confirmed_ms: int
    waiting_rows: int
    spill_bytes: int
    spill_limit_bytes: int


class TickStore(Protocol):
    """A store that takes a whole tick as one step: all of it survives a kill, or nothing."""

    def ingest(
        self,
        observations: Iterable[Observation],
        batches: Iterable[SampleBatch] = (),
        documents_by_kind: Documents | None = None,
    ) -> None:
        """Take over observations, samples, and documents by kind and name."""


class Store(SampleStore, RecordStore, TickStore, Protocol):
    """A store of both kinds behind one close: what every part of Marey is given.

    A wrapper writes out each method, so that the type checker sees one that is missing.
    """

    @property
    def path(self) -> Path | None:
        """Return the file of the records, or None for a store in memory."""

    def sample_state(self) -> SampleServerState | None:
        """Return how the server of the samples is doing; None where they are in the file."""


class Pace(Protocol):
    """The clock of a cluster, and how fast it runs."""

    @property
    def speed(self) -> float:
        """Cluster time per wall time."""

    def now_ms(self) -> int:
        """Return the cluster's time."""
