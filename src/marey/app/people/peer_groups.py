"""How efficient jobs of the same size and type of GPU were lately, to hold a job against."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from marey.app.queries.workspace import SizeEfficiency, Workspace
from marey.app.rules.finding_store import FindingStore
from marey.model.protocols import WorkloadQuery
from marey.model.times import DAY_MS, HOUR_MS
from marey.model.workloads import WorkloadState
from marey.rules.engine.findings import Finding
from marey.rules.waste import WasteBy
from marey.rules.waste import wasted as sum_waste

SPAN_MS = 7 * DAY_MS
FOREVER_MS = 1 << 50
# The newest that ran in the span: enough to say what is usual.
MOST_JOBS = 20_000
# Fewer say more of these jobs, and of whose they are, than of what is usual.
LEAST_JOBS = 5
FRESH_S = 60.0
RAN = tuple(state for state in WorkloadState if state is not WorkloadState.PENDING)

PeerKey = tuple[str, int]


class PeerGroups:
    """The groups of each cluster, summed at most once a minute; they name nobody."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Mapping[PeerKey, SizeEfficiency]]] = {}

    def find(self, cluster: str) -> Mapping[PeerKey, SizeEfficiency]:
        """Return the groups by type of GPU and number of GPUs."""
        with self._lock:
            made_s, groups = self._known.get(cluster, (float("-inf"), {}))
            if time.monotonic() - made_s > FRESH_S:
                groups = sum_peer_groups(self._workspace, cluster)
                self._known[cluster] = (time.monotonic(), groups)
            return groups


def sum_peer_groups(workspace: Workspace, cluster: str) -> Mapping[PeerKey, SizeEfficiency]:
    """Return the efficiency of each size and type of GPU over the last week, by GPU-hours."""
    now_ms = workspace.now_ms()
    wasted = sum_wasted_by_workload(FindingStore(workspace.store).all(cluster))
    query = WorkloadQuery(cluster, RAN, from_ms=now_ms - SPAN_MS, limit=MOST_JOBS)
    groups: dict[PeerKey, list[_PeerJob]] = defaultdict(list)
    for job in _list_jobs(workspace.workloads(query), wasted, now_ms):
        groups[job.key].append(job)
    return {key: _sum_group(each) for key, each in groups.items() if len(each) >= LEAST_JOBS}


@dataclass(frozen=True, slots=True)
class _PeerJob:
    key: PeerKey
    gpu_hours: float
    wasted: float


def _list_jobs(table: pa.Table, wasted: Mapping[str, float], now_ms: int) -> Iterator[_PeerJob]:
    """Yield the jobs that have run for some time, with what they used and wasted."""
    columns = ("workload", "gpu_model", "gpus_requested", "start_ms", "end_ms", "state")
    rows = zip(*(table[name].to_pylist() for name in columns), strict=True)
    for workload, model, gpus, start_ms, end_ms, state in rows:
        until_ms = now_ms if state == WorkloadState.RUNNING else end_ms
        if start_ms is None or until_ms is None or until_ms <= start_ms or not gpus:
            continue
        hours = gpus * (until_ms - start_ms) / HOUR_MS
        yield _PeerJob((model or "", gpus), hours, min(hours, wasted.get(workload, 0.0)))


def _sum_group(jobs: Sequence[_PeerJob]) -> SizeEfficiency:
    share = sum(job.wasted for job in jobs) / sum(job.gpu_hours for job in jobs)
    return SizeEfficiency(round(1 - share, 4), len(jobs))


def sum_wasted_by_workload(findings: Iterable[Finding]) -> dict[str, float]:
    """Return the GPU-hours of each workload that findings call wasted."""
    lines = sum_waste(findings, WasteBy.WORKLOAD, 0, FOREVER_MS)
    return {line.name: line.gpu_hours for line in lines}
