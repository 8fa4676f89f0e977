"""How fast workloads run here: what a site's own repeated runs tell of its hosts and its load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from marey.app.queries.site_runs import (
    SiteRuns,
    find_slow,
    name_application,
    read_runs,
)
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
from marey.queue.forecast.forecaster import NotEnoughHistory
from marey.queue.performance.prediction import fit_performance
from marey.queue.performance.runs import measure_against_own
from marey.queue.performance.slow_hosts import estimate_slowness
from marey.queue.waiting.explanation import describe_span

_LEAST_OWN = 3


@dataclass(frozen=True)
class AskPerformance(QueueQuestion):
    """Which hosts are persistently slow, and what else explains run times."""

    PATH: ClassVar[str] = "/queue-performance"
    cluster: str = DEFAULT_CLUSTER

    def ask(self, workspace: Workspace) -> PerformanceDocument:
        """Return what repeated runs of the last 60 days tell; "not enough history" is an answer."""
        site = read_runs(workspace, workspace.check_cluster(self.cluster))
        rows = [SlowHost(host, slower) for host, slower in find_slow(site).items()]
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
    text = (
        f"It should run {describe_span(middle)} "
        f"(8 in 10: {describe_span(low)} to {describe_span(high)})."
    )
    if factor <= 1.05:
        return text
    return f"{text} On {worst} it is {factor - 1.0:.0%} slower than it should be."


def _find_own_runs(site: SiteRuns, row: dict[str, Any], workload: str) -> Any:
    name = name_application(row)
    if name not in site.applications:
        return np.zeros(0, np.int64)
    return np.flatnonzero(site.runs.application == site.applications.index(name))


def _list_hosts(workspace: Workspace, cluster: str, workload: str) -> list[str]:
    table = workspace.store.allocations(cluster, workload=workload)
    return sorted({gpu.rsplit(":", 1)[0] for gpu in table["gpu"].to_pylist()})
