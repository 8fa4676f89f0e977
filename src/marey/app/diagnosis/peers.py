"""How a workload uses its GPUs against others of the same size on the same type of GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from marey.app.diagnosis.part_documents import PeerGroup, PeerMetric, Peers
from marey.app.queries.selection import SelectionRequest
from marey.app.queries.table_queries import query_of
from marey.app.queries.workspace import Workspace
from marey.model.metrics import catalogue
from marey.model.names import DEFAULT_CLUSTER
from marey.model.predicates import And, Comparison
from marey.model.protocols import WorkloadQuery
from marey.model.tables import WorkloadRecord
from marey.model.workloads import WorkloadState

METRICS = ("util", "tensor_active", "power_share", "mem_share")
# Enough to say where one stands; each costs a reading of its whole life.
MOST_PEERS = 24
CANDIDATES = 400
# Work that ran shorter than this has hardly more than its start to show.
LEAST_RUN_MS = 10 * 60_000
RAN = tuple(state for state in WorkloadState if state is not WorkloadState.PENDING)


@dataclass(frozen=True)
class AskPeers:
    """Efficiency of a workload against its peers."""

    workload: str
    cluster: str = DEFAULT_CLUSTER

    def ask(self, workspace: Workspace) -> Peers:
        """Return per metric the workload's own mean, and median and quartiles of its
        peers' means.
        """
        workspace.check_cluster(self.cluster)
        record = workspace.store.workload(self.cluster, self.workload)
        own = _compute_means(workspace, self.cluster, self.workload)
        peers = list(_find_peers(workspace, self.cluster, record))
        means = [_compute_means(workspace, self.cluster, name) for name in peers]
        rows = []
        for metric in METRICS:
            values = [m[metric] for m in means if metric in m]
            rows.append(
                PeerMetric(
                    metric=metric,
                    label=catalogue()[metric].label,
                    unit=catalogue()[metric].unit,
                    own=_round_value(own.get(metric)),
                    peers=_round_value(float(np.median(values))) if values else None,
                    low=_round_value(float(np.percentile(values, 25))) if values else None,
                    high=_round_value(float(np.percentile(values, 75))) if values else None,
                    better_than=_share_below(own.get(metric), values),
                )
            )
        return Peers(
            workload=self.workload,
            same=PeerGroup(gpus=_count_gpus(record), gpu_model=record["gpu_model"] or ""),
            peers=peers,
            metrics=rows,
        )

    def path(self) -> str:
        """Return the API path that answers it."""
        return "/diagnosis/peers"

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        return query_of(self)


def _count_gpus(record: WorkloadRecord) -> int:
    held = len({entry["gpu"] for entry in record["allocations"]})
    return held or int(record["gpus_requested"] or 0)


def _find_peers(workspace: Workspace, cluster: str, record: WorkloadRecord) -> Iterator[str]:
    same = [Comparison("gpus_requested", "eq", record["gpus_requested"])]
    if record["gpu_model"]:
        same.append(Comparison("gpu_model", "eq", record["gpu_model"]))
    query = WorkloadQuery(cluster, RAN, And(tuple(same)), limit=CANDIDATES)
    found = 0
    for row in workspace.workloads(query).to_pylist():
        if row["workload"] == record["workload"] or row["start_ms"] is None:
            continue
        end_ms = row["end_ms"] if row["end_ms"] is not None else workspace.now_ms()
        if end_ms - row["start_ms"] >= LEAST_RUN_MS and found < MOST_PEERS:
            found += 1
            yield row["workload"]


def _compute_means(workspace: Workspace, cluster: str, workload: str) -> dict[str, float]:
    """Return per metric the mean over all samples of all its GPUs."""
    table = workspace.statistics(SelectionRequest(METRICS, cluster, workload), ()).table
    sums: dict[str, list[float]] = {}
    for row in table.select(["metric", "count", "mean"]).to_pylist():
        if row["mean"] is not None and row["count"]:
            total = sums.setdefault(row["metric"], [0.0, 0.0])
            total[0] += row["mean"] * row["count"]
            total[1] += row["count"]
    return {metric: total / count for metric, (total, count) in sums.items()}


def _round_value(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else round(value, 2)


def _share_below(own: float | None, values: list[float]) -> float | None:
    if own is None or not values:
        return None
    return round(float(np.mean(np.array(values) < own)), 3)
