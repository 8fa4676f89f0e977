"""A past or present moment of the store as an observation, and so as a live table."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import msgspec

from marey.app.cluster_table import ClusterTable
from marey.app.frames import Frame
from marey.model.inventory import Gpu, GpuStatus, Host, HostState, HostStatus, Partition
from marey.model.observation import Observation
from marey.model.protocols import Moment
from marey.model.samples import SampleBatch
from marey.model.workloads import Allocation, Workload, WorkloadState, WorkloadStatus

_WORKLOAD_FIELDS = (
    "workload",
    "name",
    "user",
    "project",
    "experiment",
    "partition",
    "qos",
    "gpus_requested",
    "gpus_per_host",
    "gpu_model",
    "resource_type",
    "time_limit_s",
    "submit_ms",
    "eligible_ms",
    "start_ms",
    "end_ms",
    "exit_code",
)


def observation_of(moment: Moment) -> Observation:
    """Everything that existed at the moment, as one complete observation."""
    return _with_work(moment, _inventory(moment))


def _inventory(moment: Moment) -> Observation:
    """The machines at the moment, and how they were."""
    hosts = moment.hosts.to_pylist()
    gpus = [(_gpu(row), row) for row in moment.gpus.to_pylist()]
    return Observation(
        time_ms=moment.time_ms,
        cluster=moment.cluster,
        hosts=tuple(_host(row) for row in hosts),
        gpus=tuple(gpu for gpu, _ in gpus),
        partitions=tuple(_partition(row) for row in moment.partitions.to_pylist()),
        host_states=tuple(
            HostStatus(row["host"], HostState(row["state"] or "up"), row["reason"] or "")
            for row in hosts
        ),
        gpu_states=tuple(
            GpuStatus(gpu.gpu, True, row["failed_reason"] or "")
            for gpu, row in gpus
            if row["failed"]
        ),
    )


def _with_work(moment: Moment, inventory: Observation) -> Observation:
    """The inventory, with what waited and what ran on it."""
    workloads = [
        row
        for row in moment.workloads.to_pylist()
        if row["state"] in (WorkloadState.PENDING, WorkloadState.RUNNING)
    ]
    held = [
        moment.allocations.column(name).to_pylist()
        for name in ("workload", "gpu", "global_rank", "local_rank")
    ]
    return replace(
        inventory,
        workloads=tuple(_workload(row) for row in workloads),
        statuses=tuple(
            WorkloadStatus(
                row["workload"],
                WorkloadState(row["state"]),
                row["reason"] or "",
                row["priority"] or 0.0,
            )
            for row in workloads
        ),
        allocations=tuple(map(Allocation, *held)),
        complete=True,
    )


class PastFrames:
    """Past moments as the frames that a client would have been sent.

    Whoever walks through the past asks for moments on the same machines: the table of the last
    one is kept and brought to the next. So a GPU also keeps its row from one to the other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: dict[str, _PastTable] = {}

    def frame(self, moment: Moment, samples: SampleBatch | None) -> Frame:
        """The cluster at this moment."""
        with self._lock:
            past = self._tables.get(moment.cluster)
            if past is None or not past.has_machines_of(moment):
                past = self._tables[moment.cluster] = _PastTable(moment)
            return past.frame(moment, samples)


_HOW_HOSTS_ARE = ["state", "reason"]
_HOW_GPUS_ARE = ["failed", "failed_reason"]


class _PastTable:
    """The table of one cluster as of the moment asked for last."""

    def __init__(self, moment: Moment) -> None:
        self._hosts = moment.hosts
        self._gpus = moment.gpus
        self._table = ClusterTable(moment.cluster)
        inventory = _inventory(moment)
        self._failed = {status.gpu for status in inventory.gpu_states}
        self._table.apply(inventory)

    def has_machines_of(self, moment: Moment) -> bool:
        """Whether the moment had just these machines; how they were may differ."""
        return (
            # An allocation has named a GPU that no inventory knew; another moment may not.
            self._table.units.unknown_count == 0
            and moment.hosts.drop(_HOW_HOSTS_ARE).equals(self._hosts.drop(_HOW_HOSTS_ARE))
            and moment.gpus.drop(_HOW_GPUS_ARE).equals(self._gpus.drop(_HOW_GPUS_ARE))
        )

    def frame(self, moment: Moment, samples: SampleBatch | None) -> Frame:
        """Bring the table to this moment and take its picture."""
        self._table.apply(_with_work(moment, self._how_machines_are(moment)))
        self._table.forget_samples()
        if samples is not None:
            self._table.measure(samples)
        return self._table.frame(moment.time_ms)

    def _how_machines_are(self, moment: Moment) -> Observation:
        """What changed of the machines' states; none of the machines themselves."""
        still = Observation(moment.time_ms, moment.cluster)
        if moment.hosts.equals(self._hosts) and moment.gpus.equals(self._gpus):
            return still
        now = _inventory(moment)
        failed = {status.gpu for status in now.gpu_states}
        whole = tuple(GpuStatus(gpu, False) for gpu in sorted(self._failed - failed))
        self._hosts, self._gpus, self._failed = moment.hosts, moment.gpus, failed
        return replace(still, host_states=now.host_states, gpu_states=(*whole, *now.gpu_states))


def _host(row: dict[str, Any]) -> Host:
    return Host(
        row["host"],
        row["rack"] or "",
        row["switch"] or "",
        row["nvlink_domain"] or "",
        tuple(row["partitions"] or ()),
        row["cpus"] or 0,
        row["memory_mib"] or 0,
    )


def _gpu(row: dict[str, Any]) -> Gpu:
    return Gpu(
        row["host"],
        row["index"],
        row["instance"],
        row["uuid"] or "",
        row["model"] or "",
        row["power_limit_w"],
        row["memory_mib"],
    )


def _partition(row: dict[str, Any]) -> Partition:
    return Partition(
        row["partition"],
        row["min_gpus"] or 0,
        row["max_gpus"],
        row["time_limit_s"],
        row["priority"] or 0,
    )


def _workload(row: dict[str, Any]) -> Workload:
    facts = {name: row[name] for name in _WORKLOAD_FIELDS}
    for name in ("gpus_requested", "gpus_per_host"):
        facts[name] = facts[name] or 0
    for name in ("name", "user", "project", "experiment", "partition", "qos", "gpu_model"):
        facts[name] = facts[name] or ""
    facts["resource_type"] = facts["resource_type"] or ""
    attributes = msgspec.json.decode(row["attributes"]) if row["attributes"] else {}
    return Workload(**facts, attributes=attributes)
