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
    RateInterval,
    RunTimeDocument,
    SlowHost,
)
from marey.app.queue.queue_queries import QueueQuestion
from marey.app.queue.run_records import predict_efficiency, predict_throughput
from marey.model.names import DEFAULT_CLUSTER
from marey.model.tables import WorkloadFields
from marey.model.times import describe_span
from marey.queue.forecast.forecaster import NotEnoughHistory
from marey.queue.performance.prediction import HOST_SLOWNESS, fit_performance
from marey.queue.performance.runs import measure_against_own
from marey.queue.performance.slow_hosts import estimate_slowness

_LEAST_OWN = 3
_NOTABLE = 1.05


@dataclass(frozen=True)
class AskPerformance(QueueQuestion):
    """Which hosts are persistently slow, and what else explains run times."""

    PATH: ClassVar[str] = "/queue-performance"
    cluster: str = DEFAULT_CLUSTER

    def ask(self, workspace: Workspace) -> PerformanceDocument:
        """Return the finding from repeated runs of the last 60 days, or "not enough history"."""
        site = read_runs(workspace, workspace.check_cluster(self.cluster), load=True)
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
        """Return the expected run time with an interval, and whether its hosts make it slower.

        "Not enough history" is an answer.
        """
        row = workspace.store.workload(self.cluster, self.workload)
        site = read_runs(workspace, self.cluster, load=True)
        own = _find_own_runs(site, row, self.workload)
        if len(own) < _LEAST_OWN:
            return _answer_without_history(self.workload, len(own))
        names = _list_hosts(workspace, self.cluster, self.workload)
        worst, slower = _find_worst_host(site, names)
        factor, features = _predict_factor(site, own, slower, hosts=max(1, len(names)))
        logs = np.log(site.runs.run_s[own])
        low, middle, high = (float(np.exp(q) * factor) for q in np.quantile(logs, (0.1, 0.5, 0.9)))
        store, runs = workspace.store, own.tolist()
        throughput = predict_throughput(store, self.cluster, site, runs, factor=factor)
        efficiency = predict_efficiency(store, self.cluster, site, runs, factor=factor)
        host_factor = float(np.exp(max(0.0, slower)))
        rates = (throughput, efficiency)
        text = _describe((low, middle, high), rates, worst=worst, host_factor=host_factor)
        return RunTimeDocument(
            workload=self.workload,
            p10_s=low,
            p50_s=middle,
            p90_s=high,
            own_runs=len(own),
            slowest_host=worst if host_factor > _NOTABLE else "",
            host_factor=host_factor,
            factor=factor,
            features=features,
            throughput=throughput,
            efficiency=efficiency,
            sentence=text,
        )


def _answer_without_history(workload: str, own_runs: int) -> RunTimeDocument:
    """Return the answer that there are too few runs like this one to say anything."""
    return RunTimeDocument(
        workload=workload,
        p10_s=None,
        p50_s=None,
        p90_s=None,
        own_runs=own_runs,
        slowest_host="",
        host_factor=1.0,
        factor=1.0,
        features=[],
        throughput=None,
        efficiency=None,
        sentence=f"Not enough history: {own_runs} finished runs like this one; {_LEAST_OWN} are "
        "needed.",
    )


def _find_worst_host(site: SiteRuns, names: list[str]) -> tuple[str, float]:
    """Return the slowest of some hosts and the logarithm of how much longer runs take there."""
    known = estimate_slowness(site.runs, measure_against_own(site.runs), site.until_s)
    numbers = {name: i for i, name in enumerate(site.hosts)}
    slow = {name: known.get(numbers[name], 0.0) for name in names if name in numbers}
    worst = max(slow, key=lambda name: slow[name], default="")
    return worst, slow.get(worst, 0.0)


def _predict_factor(
    site: SiteRuns, own: Any, slower: float, *, hosts: int
) -> tuple[float, list[FeatureShare]]:
    """Return how much longer than usual a run takes in the present state, and what explains it.

    Where the site's runs do not show that the state explains anything, only slow hosts count.
    """
    by_hosts = float(np.exp(max(0.0, slower)))
    try:
        model = fit_performance(site.runs)
    except NotEnoughHistory:
        return by_hosts, []
    if not model.gain_claimed:
        return by_hosts, []
    # The state at the newest start is the newest that is known.
    state = {name: float(values[-1]) for name, values in site.runs.state.items()}
    size = {"gpus": np.log2(max(1.0, float(site.runs.gpus[own[-1]]))), "hosts": np.log2(hosts)}
    known = {HOST_SLOWNESS: slower, **state, **size}
    predicted = model.predict(np.array([[known[name] for name in model.names]]))
    shares = [FeatureShare(name, share) for name, share in model.importance.items()]
    return float(np.exp(predicted[0])), shares


def _describe(
    spans: tuple[float, float, float],
    rates: tuple[RateInterval | None, RateInterval | None],
    *,
    worst: str,
    host_factor: float,
) -> str:
    low, middle, high = (describe_span(span) for span in spans)
    lines = [f"It should run {middle} (8 in 10: {low} to {high})."]
    for name, rate in zip(("Throughput", "GPU activity"), rates, strict=True):
        if rate is not None:
            span = f"{rate.p10:,.4g} to {rate.p90:,.4g}"
            lines.append(f"{name}: {rate.p50:,.4g} {rate.unit} (8 in 10: {span}).")
    if host_factor > _NOTABLE:
        lines.append(
            f"On {worst} it is {100 * (host_factor - 1.0):.0f} % slower than it should be."
        )
    return " ".join(lines)


def _find_own_runs(site: SiteRuns, row: WorkloadFields, workload: str) -> Any:
    name = name_application(row)
    if name not in site.applications:
        return np.zeros(0, np.int64)
    return np.flatnonzero(site.runs.application == site.applications.index(name))


def _list_hosts(workspace: Workspace, cluster: str, workload: str) -> list[str]:
    table = workspace.store.allocations(cluster, workload=workload)
    return sorted({gpu.rsplit(":", 1)[0] for gpu in table["gpu"].to_pylist()})
