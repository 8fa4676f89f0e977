"""The schemas of the record tables, as stores return them and files carry them.

Times are milliseconds since 1970 UTC; ``valid_to_ms`` null means "until further notice". Below the
schemas stand the rows of the same tables as types, for what reads them one at a time.
"""

from __future__ import annotations

from typing import TypedDict

import pyarrow as pa

_TEXT = pa.string()
_MS = pa.int64()

HOSTS = pa.schema(
    {
        "cluster": _TEXT,
        "host": _TEXT,
        "rack": _TEXT,
        "switch": _TEXT,
        "nvlink_domain": _TEXT,
        "partitions": pa.list_(_TEXT),
        "cpus": pa.int32(),
        "memory_mib": pa.int64(),
        "state": _TEXT,
        "reason": _TEXT,
    }
)

GPUS = pa.schema(
    {
        "cluster": _TEXT,
        "gpu": _TEXT,
        "host": _TEXT,
        "index": pa.int32(),
        "instance": pa.int32(),
        "uuid": _TEXT,
        "model": _TEXT,
        "power_limit_w": pa.float32(),
        "memory_mib": pa.float32(),
        "failed": pa.bool_(),
        "failed_reason": _TEXT,
    }
)

PARTITIONS = pa.schema(
    {
        "cluster": _TEXT,
        "partition": _TEXT,
        "min_gpus": pa.int32(),
        "max_gpus": pa.int32(),
        "time_limit_s": pa.int64(),
        "priority": pa.int32(),
    }
)

WORKLOADS = pa.schema(
    {
        "cluster": _TEXT,
        "workload": _TEXT,
        "name": _TEXT,
        "user": _TEXT,
        "project": _TEXT,
        "experiment": _TEXT,
        "partition": _TEXT,
        "qos": _TEXT,
        "gpus_requested": pa.int32(),
        "gpus_per_host": pa.int32(),
        "gpu_model": _TEXT,
        "resource_type": _TEXT,
        "time_limit_s": pa.int64(),
        "submit_ms": _MS,
        "eligible_ms": _MS,
        "start_ms": _MS,
        "end_ms": _MS,
        "exit_code": pa.int32(),
        "state": _TEXT,
        "reason": _TEXT,
        "priority": pa.float64(),
        # JSON object of text to text.
        "attributes": _TEXT,
    }
)

STATES = pa.schema(
    {
        "cluster": _TEXT,
        "workload": _TEXT,
        "state": _TEXT,
        "reason": _TEXT,
        "priority": pa.float64(),
        "valid_from_ms": _MS,
        "valid_to_ms": _MS,
    }
)

# Whether hosts took work, from when to when; the operators' reasons are not among it.
HOST_STATES = pa.schema(
    {
        "cluster": _TEXT,
        "host": _TEXT,
        "state": _TEXT,
        "valid_from_ms": _MS,
        "valid_to_ms": _MS,
    }
)

ALLOCATIONS = pa.schema(
    {
        "cluster": _TEXT,
        "workload": _TEXT,
        "gpu": _TEXT,
        "global_rank": pa.int32(),
        "local_rank": pa.int32(),
        "share": pa.float32(),
        "valid_from_ms": _MS,
        "valid_to_ms": _MS,
    }
)

PROGRESS = pa.schema(
    {
        "cluster": _TEXT,
        "workload": _TEXT,
        "time_ms": _MS,
        "step": pa.int64(),
        "throughput": pa.float64(),
        "unit": _TEXT,
        "loss": pa.float64(),
    }
)

EVENTS = pa.schema(
    {
        "cluster": _TEXT,
        "time_ms": _MS,
        "kind": _TEXT,
        "host": _TEXT,
        "gpu": _TEXT,
        "workload": _TEXT,
        "value": pa.float64(),
        "text": _TEXT,
    }
)


class HostRow(TypedDict):
    """A row of ``HOSTS``."""

    cluster: str
    host: str
    rack: str | None
    switch: str | None
    nvlink_domain: str | None
    partitions: list[str] | None
    cpus: int | None
    memory_mib: int | None
    state: str | None
    reason: str | None


class GpuRow(TypedDict):
    """A row of ``GPUS``."""

    cluster: str
    gpu: str
    host: str
    index: int
    instance: int | None
    uuid: str | None
    model: str | None
    power_limit_w: float | None
    memory_mib: float | None
    failed: bool | None
    failed_reason: str | None


class PartitionRow(TypedDict):
    """A row of ``PARTITIONS``."""

    cluster: str
    partition: str
    min_gpus: int | None
    max_gpus: int | None
    time_limit_s: int | None
    priority: int | None


class WorkloadFields(TypedDict):
    """What a row of ``WORKLOADS`` and a whole record of a workload have in common.

    Of a workload that only a state has been reported of, every fact is null.
    """

    cluster: str
    workload: str
    name: str | None
    user: str | None
    project: str | None
    experiment: str | None
    partition: str | None
    qos: str | None
    gpus_requested: int | None
    gpus_per_host: int | None
    gpu_model: str | None
    resource_type: str | None
    time_limit_s: int | None
    submit_ms: int | None
    eligible_ms: int | None
    start_ms: int | None
    end_ms: int | None
    exit_code: int | None
    state: str
    reason: str | None
    priority: float | None


class WorkloadRow(WorkloadFields):
    """A row of ``WORKLOADS``."""

    # JSON object of text to text.
    attributes: str | None


class StateRow(TypedDict):
    """A row of ``STATES``."""

    cluster: str
    workload: str
    state: str
    reason: str | None
    priority: float | None
    valid_from_ms: int
    valid_to_ms: int | None


class AllocationRow(TypedDict):
    """A row of ``ALLOCATIONS``."""

    cluster: str
    workload: str
    gpu: str
    global_rank: int | None
    local_rank: int | None
    share: float | None
    valid_from_ms: int
    valid_to_ms: int | None


class ProgressRow(TypedDict):
    """A row of ``PROGRESS``."""

    cluster: str
    workload: str
    time_ms: int
    step: int | None
    throughput: float | None
    unit: str | None
    loss: float | None


class EventRow(TypedDict):
    """A row of ``EVENTS``."""

    cluster: str
    time_ms: int
    kind: str
    host: str | None
    gpu: str | None
    workload: str | None
    value: float | None
    text: str | None


class WorkloadRecord(WorkloadFields):
    """A workload with its validity intervals, as ``RecordStore.workload`` returns it."""

    attributes: dict[str, str]
    states: list[StateRow]
    allocations: list[AllocationRow]
