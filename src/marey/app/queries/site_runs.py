"""The completed runs of a site, and the hosts on which they are persistently slow."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from marey.app.queries.system_load import read_system_load
from marey.app.queries.workspace import Workspace
from marey.model.protocols import WorkloadQuery
from marey.model.tables import WorkloadFields
from marey.model.times import DAY_MS, HOUR_MS
from marey.model.workloads import WorkloadState
from marey.queue.performance.runs import RunTable, measure_against_own
from marey.queue.performance.slow_hosts import find_slow_hosts

RUNS_LIMIT = 3000
_DAYS = 60
# Trailing numbers of a name tell one try from the next, not one application from another.
_NUMBER = re.compile(r"[-_.]?\d+$")


@dataclass(frozen=True)
class SiteRuns:
    """The runs of a site with the names behind the numbers."""

    runs: RunTable
    hosts: tuple[str, ...]
    applications: tuple[tuple[str, str], ...]
    workloads: tuple[str, ...]
    until_s: float

    def get_span_ms(self, run: int) -> tuple[int, int]:
        """Return from when to when a run ran."""
        begin = float(self.runs.start_s[run])
        return round(begin * 1000), round((begin + float(self.runs.run_s[run])) * 1000)


def name_application(row: WorkloadFields) -> tuple[str, str]:
    """Return the application that runs belong to: the user and the name without its number."""
    name = _NUMBER.sub("", row["name"] or "")
    return row["user"] or "", f"{name}/{row['gpus_requested']}"


def read_runs(workspace: Workspace, cluster: str, *, load: bool = False) -> SiteRuns:
    """Return the completed runs of the last 60 days with their hosts and what was in use at each
    start; on request also the load of fabric and file system.
    """
    now_ms = workspace.now_ms()
    from_ms = now_ms - _DAYS * DAY_MS
    query = WorkloadQuery(
        cluster=cluster,
        states=(WorkloadState.COMPLETED,),
        from_ms=from_ms,
        to_ms=now_ms,
        limit=RUNS_LIMIT,
    )
    rows = [row for row in workspace.workloads(query).to_pylist() if _is_whole_run(row)]
    rows.sort(key=lambda row: row["start_ms"])
    # Busy sites have thousands of runs in a day: no older allocation is read than these need.
    first_ms = rows[0]["start_ms"] if rows else now_ms
    held = workspace.store.allocations(cluster, from_ms=max(from_ms, first_ms), to_ms=now_ms)
    by_workload: dict[str, set[str]] = defaultdict(set)
    for workload, gpu in zip(held["workload"].to_pylist(), held["gpu"].to_pylist(), strict=True):
        by_workload[workload].add(gpu.rsplit(":", 1)[0])
    names = [sorted(by_workload[row["workload"]]) for row in rows]
    hosts = tuple(sorted({host for one in names for host in one}))
    numbers = {host: i for i, host in enumerate(hosts)}
    applications = tuple(sorted({name_application(row) for row in rows}))
    codes = {name: i for i, name in enumerate(applications)}
    counts = [len(one) for one in names]
    start_ms = np.array([row["start_ms"] for row in rows], np.int64)
    loads = read_system_load(workspace.store, cluster, start_ms, hosts) if load else {}
    runs = RunTable(
        application=np.array([codes[name_application(row)] for row in rows], np.int64),
        start_s=start_ms / 1000.0,
        run_s=np.array([(row["end_ms"] - row["start_ms"]) / 1000.0 for row in rows]),
        gpus=np.array([row["gpus_requested"] for row in rows], np.float64),
        hosts=np.array([numbers[host] for one in names for host in one], np.int64),
        first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        state={"gpus_in_use": count_in_use(held, start_ms), **loads},
    )
    workloads = tuple(row["workload"] for row in rows)
    return SiteRuns(runs, hosts, applications, workloads, now_ms / 1000.0)


def _is_whole_run(row: WorkloadFields) -> bool:
    start, end = row["start_ms"], row["end_ms"]
    return start is not None and end is not None and end - start >= 1000


def count_in_use(held: Any, start_ms: Any) -> Any:
    """Return how many GPUs others held at each start, as a share of the most ever held."""
    begins = np.sort(held["valid_from_ms"].to_numpy())
    ends = np.sort(held["valid_to_ms"].fill_null(2**62).to_numpy())
    now = np.searchsorted(begins, start_ms, "left") - np.searchsorted(ends, start_ms, "right")
    return now / max(1.0, float(now.max(initial=1)))


def find_slow(site: SiteRuns) -> dict[str, float]:
    """Return the slow hosts, slowest first, and how much longer runs take there (0.3: a third)."""
    slow = find_slow_hosts(site.runs, measure_against_own(site.runs), site.until_s)
    return {
        site.hosts[host]: float(np.exp(value) - 1.0)
        for host, value in sorted(slow.items(), key=lambda item: -item[1])
    }


def list_slow_hosts(workspace: Workspace, cluster: str) -> dict[str, float]:
    """Return the slow hosts of a cluster, found anew once an hour."""
    hour = workspace.now_ms() // HOUR_MS
    known = workspace.slow_hosts.get(cluster)
    if known is None or known[0] != hour:
        known = (hour, find_slow(read_runs(workspace, cluster)))
        workspace.slow_hosts[cluster] = known
    return known[1]
