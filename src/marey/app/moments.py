"""A past or present moment of the store as an observation, and so as a live table."""

from __future__ import annotations

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
    hosts = moment.hosts.to_pylist()
    gpus = moment.gpus.to_pylist()
    workloads = [
        row
        for row in moment.workloads.to_pylist()
        if row["state"] in (WorkloadState.PENDING, WorkloadState.RUNNING)
    ]
    return Observation(
        time_ms=moment.time_ms,
        cluster=moment.cluster,
        hosts=tuple(_host(row) for row in hosts),
        gpus=tuple(_gpu(row) for row in gpus),
        partitions=tuple(_partition(row) for row in moment.partitions.to_pylist()),
        host_states=tuple(
            HostStatus(row["host"], HostState(row["state"] or "up"), row["reason"] or "")
            for row in hosts
        ),
        gpu_states=tuple(
            GpuStatus(_gpu(row).gpu, True, row["failed_reason"] or "")
            for row in gpus
            if row["failed"]
        ),
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
        allocations=tuple(
            Allocation(row["workload"], row["gpu"], row["global_rank"], row["local_rank"])
            for row in moment.allocations.to_pylist()
        ),
        complete=True,
    )


def frame_of(moment: Moment, samples: SampleBatch | None) -> Frame:
    """The moment as the frame that a client would have been sent."""
    table = ClusterTable(moment.cluster)
    table.apply(observation_of(moment))
    if samples is not None:
        table.measure(samples)
    return table.frame(moment.time_ms)


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
