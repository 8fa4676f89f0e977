"""How fast workloads run here: what a site's own repeated runs tell of its hosts and its load."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from marey.app.queries.workspace import Workspace
from marey.app.queue.queue_documents import (
    FeatureShare,
    PerformanceDocument,
    RunTimeDocument,
    SlowHost,
)
from marey.app.queue.queue_queries import QueueQuestion
from marey.model.errors import InvalidInput
from marey.model.names import DEFAULT_CLUSTER
from marey.model.protocols import WorkloadQuery
from marey.model.times import DAY_MS
from marey.model.workloads import WorkloadState
from marey.queue.forecast.forecaster import NotEnoughHistory
from marey.queue.performance.prediction import fit_performance
from marey.queue.performance.runs import RunTable, measure_against_own
from marey.queue.performance.slow_hosts import estimate_slowness, find_slow_hosts
from marey.queue.waiting.explanation import describe_span

RUNS_LIMIT = 3000
_DAYS = 60
_LEAST_OWN = 3
# Trailing numbers of a name tell one try from the next, not one application from another.
_NUMBER = re.compile(r"[-_.]?\d+$")


@dataclass(frozen=True)
class SiteRuns:
    """The runs of a site with the names behind the numbers."""

    runs: RunTable
    hosts: tuple[str, ...]
    applications: tuple[tuple[str, str], ...]
    until_s: float


@dataclass(frozen=True)
class AskPerformance(QueueQuestion):
    """Which hosts are persistently slow, and what else explains run times."""

    PATH: ClassVar[str] = "/queue-performance"
    cluster: str = DEFAULT_CLUSTER

    def ask(self, workspace: Workspace) -> PerformanceDocument:
        """Return what repeated runs of the last 60 days tell; "not enough history" is an answer."""
        site = read_runs(workspace, workspace.check_cluster(self.cluster))
        misses = measure_against_own(site.runs)
        slow = find_slow_hosts(site.runs, misses, site.until_s)
        rows = [
            SlowHost(site.hosts[host], float(np.exp(value) - 1.0))
            for host, value in sorted(slow.items(), key=lambda item: -item[1])
        ]
        try:
            model = fit_performance(site.runs)
        except NotEnoughHistory as error:
            return PerformanceDocument(
                runs=len(site.runs),
                error=None,
                own_error=None,
                gain_claimed=False,
                features=[],
                slow_hosts=rows,
                sentence=str(error),
            )
        return PerformanceDocument(
            runs=model.runs,
            error=model.error,
            own_error=model.own_error,
            gain_claimed=model.gain_claimed,
            features=[FeatureShare(name, share) for name, share in model.importance.items()],
            slow_hosts=rows,
            sentence=model.sentence,
        )


@dataclass(frozen=True)
class AskRunTime(QueueQuestion):
    """How long a workload should run, from its own past and the hosts it is on."""

    PATH: ClassVar[str] = "/queue-runtime"
    workload: str
    cluster: str = DEFAULT_CLUSTER

    def ask(self, workspace: Workspace) -> RunTimeDocument:
        """Return the expected run time with an interval, and whether its hosts make it slower."""
        row = workspace.store.workload(self.cluster, self.workload)
        site = read_runs(workspace, self.cluster)
        own = _find_own_runs(site, row, self.workload)
        if len(own) < _LEAST_OWN:
            raise InvalidInput(
                f"Not enough history: {len(own)} finished runs like this one; {_LEAST_OWN} are "
                "needed.",
                code="no_history",
            )
        misses = measure_against_own(site.runs)
        known = estimate_slowness(site.runs, misses, site.until_s)
        names = _list_hosts(workspace, self.cluster, self.workload)
        numbers = {name: i for i, name in enumerate(site.hosts)}
        slow = {n: known.get(numbers[n], 0.0) for n in names if n in numbers}
        worst = max(slow, key=lambda n: slow[n], default="")
        factor = float(np.exp(max(0.0, slow.get(worst, 0.0)))) if worst else 1.0
        logs = np.log(site.runs.run_s[own])
        low, middle, high = (float(np.exp(q) * factor) for q in np.quantile(logs, (0.1, 0.5, 0.9)))
        return RunTimeDocument(
            workload=self.workload,
            p10_s=low,
            p50_s=middle,
            p90_s=high,
            own_runs=len(own),
            slowest_host=worst if factor > 1.05 else "",
            host_factor=factor,
            sentence=_describe(middle, low, high, worst=worst, factor=factor),
        )


def _describe(middle: float, low: float, high: float, *, worst: str, factor: float) -> str:
    told = (
        f"It should run {describe_span(middle)} "
        f"(8 in 10: {describe_span(low)} to {describe_span(high)})."
    )
    if factor <= 1.05:
        return told
    return f"{told} On {worst} it is {factor - 1.0:.0%} slower than it should be."


def _find_own_runs(site: SiteRuns, row: dict[str, Any], workload: str) -> Any:
    name = name_application(row)
    if name not in site.applications:
        return np.zeros(0, np.int64)
    return np.flatnonzero(site.runs.application == site.applications.index(name))


def name_application(row: dict[str, Any]) -> tuple[str, str]:
    """Return what counts as the same application: the user and the name without its number."""
    return row["user"], f"{_NUMBER.sub('', row['name'])}/{row['gpus_requested']}"


def _list_hosts(workspace: Workspace, cluster: str, workload: str) -> list[str]:
    table = workspace.store.allocations(cluster, workload=workload)
    return sorted({gpu.rsplit(":", 1)[0] for gpu in table["gpu"].to_pylist()})


def read_runs(workspace: Workspace, cluster: str) -> SiteRuns:
    """Return the completed runs of the last 60 days with their hosts and the load at each start."""
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
    held = workspace.store.allocations(cluster, from_ms=from_ms, to_ms=now_ms)
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
    runs = RunTable(
        application=np.array([codes[name_application(row)] for row in rows], np.int64),
        start_s=start_ms / 1000.0,
        run_s=np.array([(row["end_ms"] - row["start_ms"]) / 1000.0 for row in rows]),
        gpus=np.array([row["gpus_requested"] for row in rows], np.float64),
        hosts=np.array([numbers[host] for one in names for host in one], np.int64),
        first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        state={"gpus_in_use": count_in_use(held, start_ms)},
    )
    return SiteRuns(runs, hosts, applications, now_ms / 1000.0)


def _is_whole_run(row: dict[str, Any]) -> bool:
    start, end = row["start_ms"], row["end_ms"]
    return start is not None and end is not None and end - start >= 1000


def count_in_use(held: Any, start_ms: Any) -> Any:
    """Return how many GPUs others held at each start, as a share of the most ever held."""
    begins = np.sort(held["valid_from_ms"].to_numpy())
    ends = np.sort(held["valid_to_ms"].fill_null(2**62).to_numpy())
    now = np.searchsorted(begins, start_ms, "left") - np.searchsorted(ends, start_ms, "right")
    return now / max(1.0, float(now.max(initial=1)))
