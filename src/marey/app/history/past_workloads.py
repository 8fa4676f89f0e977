"""Workloads of the past as observations: their whole lives at once, reported when they are over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from marey.model.inventory import Gpu, Host, HostState, HostStatus
from marey.model.observation import Observation
from marey.model.protocols import WorkloadQuery
from marey.model.workloads import Allocation, WorkloadState, WorkloadStatus
from marey.sources.workloads_file import WorkloadRow

_PAGE = 20_000


class WorkloadLookup(Protocol):
    """A store that tells which workloads it knows."""

    def workloads(self, query: WorkloadQuery) -> pa.Table:
        """Return workloads with their latest state; schema ``tables.WORKLOADS``."""


def make_past_observations(
    rows: Sequence[WorkloadRow],
    cluster: str,
    gpus: Iterable[Gpu] = (),
    first_ms: int | None = None,
) -> Iterator[Observation]:
    """Yield the inventory first, then every change of every workload in order of time."""
    statuses: dict[int, list[WorkloadStatus]] = defaultdict(list)
    held: dict[int, list[Allocation]] = defaultdict(list)
    for row in rows:
        for moment, status in _list_states(row):
            statuses[moment].append(status)
        if row.workload.start_ms is not None:
            held[row.workload.start_ms].extend(row.allocations)
    moments = sorted(statuses)
    begin = min([m for m in (first_ms, *moments[:1]) if m is not None], default=0)
    gpus = tuple(gpus)
    hosts = {gpu.host: Host(gpu.host) for gpu in gpus}
    yield Observation(
        time_ms=begin,
        cluster=cluster,
        hosts=tuple(hosts.values()),
        # A host that sends samples is up; files say nothing else of hosts.
        host_states=tuple(HostStatus(host, HostState.UP) for host in hosts),
        gpus=gpus,
        workloads=tuple(row.workload for row in rows),
    )
    for moment in moments:
        yield Observation(
            time_ms=moment,
            cluster=cluster,
            statuses=tuple(statuses[moment]),
            allocations=tuple(held.get(moment, ())),
        )


def _list_states(row: WorkloadRow) -> Iterator[tuple[int, WorkloadStatus]]:
    work, identity = row.workload, row.workload.workload
    start = work.start_ms
    if work.submit_ms is not None and start is not None and work.submit_ms < start:
        yield work.submit_ms, WorkloadStatus(identity, WorkloadState.PENDING, "", row.priority)
    if start is not None:
        yield start, WorkloadStatus(identity, WorkloadState.RUNNING, "", row.priority)
    if work.end_ms is not None:
        ended = row.state if row.state.ended else WorkloadState.COMPLETED
        yield work.end_ms, WorkloadStatus(identity, ended, row.reason, row.priority)


def find_unknown_rows(
    rows: Sequence[WorkloadRow], store: WorkloadLookup, cluster: str
) -> list[WorkloadRow]:
    """Return the rows of workloads that the store has never heard of."""
    begins = [row.workload.submit_ms or row.workload.start_ms or 0 for row in rows]
    if not begins:
        return []
    known: set[str] = set()
    query = WorkloadQuery(cluster, from_ms=max(0, min(begins) - 1), limit=_PAGE)
    while True:
        page = store.workloads(query).column("workload").to_pylist()
        known.update(page)
        if len(page) < _PAGE:
            return [row for row in rows if row.workload.workload not in known]
        query = WorkloadQuery(cluster, from_ms=query.from_ms, limit=_PAGE, after=page[-1])
