"""A past or present moment of the store as an observation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from marey.model.inventory import Gpu, GpuStatus, Host, HostState, HostStatus, Partition
from marey.model.observation import Observation
from marey.model.protocols import Moment
from marey.model.tables import GpuRow, HostRow, PartitionRow, WorkloadRow
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
    """Return everything that existed at the moment, as one complete observation."""
    return _add_work(moment, inventory_of(moment))


def inventory_of(moment: Moment) -> Observation:
    """Return the machines at the moment, and how they were."""
    hosts = moment.hosts.to_pylist()
    gpus = [(_read_gpu(row), row) for row in moment.gpus.to_pylist()]
    return Observation(
        time_ms=moment.time_ms,
        cluster=moment.cluster,
        hosts=tuple(_read_host(row) for row in hosts),
        gpus=tuple(gpu for gpu, _ in gpus),
        partitions=tuple(_read_partition(row) for row in moment.partitions.to_pylist()),
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


def _add_work(moment: Moment, inventory: Observation) -> Observation:
    """Return the inventory, with what waited and what ran on it."""
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
        workloads=tuple(workload_of(row) for row in workloads),
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


def _read_host(row: HostRow) -> Host:
    return Host(
        host=row["host"],
        rack=row["rack"] or "",
        switch=row["switch"] or "",
        nvlink_domain=row["nvlink_domain"] or "",
        partitions=tuple(row["partitions"] or ()),
        cpus=row["cpus"] or 0,
        memory_mib=row["memory_mib"] or 0,
    )


def _read_gpu(row: GpuRow) -> Gpu:
    return Gpu(
        host=row["host"],
        index=row["index"],
        instance=row["instance"],
        uuid=row["uuid"] or "",
        model=row["model"] or "",
        power_limit_w=row["power_limit_w"],
        memory_mib=row["memory_mib"],
    )


def _read_partition(row: PartitionRow) -> Partition:
    return Partition(
        row["partition"],
        row["min_gpus"] or 0,
        row["max_gpus"],
        row["time_limit_s"],
        row["priority"] or 0,
    )


def workload_of(row: WorkloadRow) -> Workload:
    """Return the workload of a row of a moment's table."""
    facts: dict[str, Any] = {n: value for n, value in row.items() if n in _WORKLOAD_FIELDS}
    for name in ("gpus_requested", "gpus_per_host"):
        facts[name] = facts[name] or 0
    for name in ("name", "user", "project", "experiment", "partition", "qos", "gpu_model"):
        facts[name] = facts[name] or ""
    facts["resource_type"] = facts["resource_type"] or ""
    attributes = msgspec.json.decode(row["attributes"]) if row["attributes"] else {}
    return Workload(**facts, attributes=attributes)
