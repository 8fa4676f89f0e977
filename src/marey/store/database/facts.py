"""The facts that have validity intervals: which columns each has, and how it becomes a row."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from marey.model.inventory import Gpu, GpuStatus, Host, HostState, HostStatus, Partition
from marey.model.names import NAME_LIMIT, bounded
from marey.model.workloads import Allocation, Workload, WorkloadState, WorkloadStatus

# Attributes of a workload: more than any hyperparameter list we have seen.
ATTRIBUTES_LIMIT = 200
ATTRIBUTE_TEXT_LIMIT = 2_000

Key = tuple[str, ...]
Row = tuple[Any, ...]

_ARROW = {
    "VARCHAR": pa.string(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "VARCHAR[]": pa.list_(pa.string()),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fact: its table, its columns (the keys first), and the way to and from a row."""

    name: str
    keys: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    key_of: Callable[[Any], Key]
    to_row: Callable[[Any], Row]
    from_row: Callable[[Row], Any]
    clean: Callable[[Any], Any]

    @property
    def now(self) -> str:
        """The table of what holds until further notice."""
        return f"{self.name}_now"

    @property
    def past(self) -> str:
        """The table of what held once."""
        return f"{self.name}_past"

    def clean_key(self, key: Key) -> Key:
        """Return the key that a value with this one has once it is cleaned."""
        return tuple(
            limit_gpu_name(part) if name == "gpu" else bounded(part)
            for name, part in zip(self.keys, key, strict=True)
        )

    def schema(self, *times: str) -> pa.Schema:
        """Return the columns as Arrow has them, with these columns of time after them."""
        fields = [("cluster", pa.string())]
        fields += [(name, _ARROW[type_]) for name, type_ in self.columns]
        fields += [(name, pa.int64()) for name in times]
        return pa.schema(fields)


def limit_gpu_name(text: str) -> str:
    """Return a GPU's id with its host bounded by itself: the id of the bounded host's GPU."""
    host, colon, index = text.rpartition(":")
    if len(text) <= NAME_LIMIT or not colon or len(index) > 9:
        return bounded(text)
    return f"{bounded(host)}:{index}"


def clip_int32(value: int | None) -> int | None:
    """Return the number, or the nearest that the column holds."""
    return None if value is None else max(-(2**31), min(2**31 - 1, int(value)))


def clip_int64(value: int | None) -> int | None:
    """Return the number, or the nearest that the column holds."""
    return None if value is None else max(-(2**63), min(2**63 - 1, int(value)))


def keep_finite(value: float | None) -> float | None:
    """Return the number, or nothing where it is none."""
    return None if value is None or not math.isfinite(value) else float(value)


def _clean_host(host: Host) -> Host:
    return Host(
        bounded(host.host),
        bounded(host.rack),
        bounded(host.switch),
        nvlink_domain=bounded(host.nvlink_domain),
        partitions=tuple(bounded(p) for p in host.partitions),
        cpus=clip_int32(host.cpus) or 0,
        memory_mib=clip_int64(host.memory_mib) or 0,
    )


def _make_host_row(host: Host) -> Row:
    return (
        host.host,
        host.rack,
        host.switch,
        host.nvlink_domain,
        list(host.partitions),
        host.cpus,
        host.memory_mib,
    )


def _read_host(row: Row) -> Host:
    return Host(
        row[0],
        row[1],
        row[2],
        nvlink_domain=row[3],
        partitions=tuple(row[4]),
        cpus=row[5],
        memory_mib=row[6],
    )


def _clean_gpu(gpu: Gpu) -> Gpu:
    return Gpu(
        bounded(gpu.host),
        gpu.index,
        gpu.instance,
        uuid=bounded(gpu.uuid),
        model=bounded(gpu.model),
        power_limit_w=keep_finite(gpu.power_limit_w),
        memory_mib=keep_finite(gpu.memory_mib),
    )


def _make_gpu_row(gpu: Gpu) -> Row:
    return (
        gpu.gpu,
        gpu.host,
        gpu.index,
        gpu.instance,
        gpu.uuid,
        gpu.model,
        gpu.power_limit_w,
        gpu.memory_mib,
    )


def _clean_partition(p: Partition) -> Partition:
    return Partition(
        bounded(p.partition),
        clip_int32(p.min_gpus) or 0,
        clip_int32(p.max_gpus),
        clip_int64(p.time_limit_s),
        clip_int32(p.priority) or 0,
    )


def _make_partition_row(p: Partition) -> Row:
    return (p.partition, p.min_gpus, p.max_gpus, p.time_limit_s, p.priority)


def _clean_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    kept = list(attributes.items())[:ATTRIBUTES_LIMIT]
    return {bounded(str(k)): _clean_text(str(v)) for k, v in kept}


def _clean_text(text: str) -> str:
    if len(text) <= ATTRIBUTE_TEXT_LIMIT:
        return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")
    return bounded(text)


_WORKLOAD_TEXTS = ("name", "user", "project", "experiment", "partition", "qos")
_WORKLOAD_TIMES = ("submit_ms", "eligible_ms", "start_ms", "end_ms")
_WORKLOAD_COLUMNS = (
    ("workload", "VARCHAR"),
    *((name, "VARCHAR") for name in _WORKLOAD_TEXTS),
    ("gpus_requested", "INTEGER"),
    ("gpus_per_host", "INTEGER"),
    ("gpu_model", "VARCHAR"),
    ("resource_type", "VARCHAR"),
    ("time_limit_s", "BIGINT"),
    *((name, "BIGINT") for name in _WORKLOAD_TIMES),
    ("exit_code", "INTEGER"),
    ("attributes", "VARCHAR"),
)
_BY_TYPE: dict[str, Callable[[Any], Any]] = {
    "VARCHAR": bounded,
    "INTEGER": clip_int32,
    "BIGINT": clip_int64,
}


def _clean_workload(workload: Workload) -> Workload:
    cleaned: dict[str, Any] = {
        name: _BY_TYPE[type_](getattr(workload, name)) for name, type_ in _WORKLOAD_COLUMNS[:-1]
    }
    cleaned["attributes"] = _clean_attributes(workload.attributes)
    return Workload(**cleaned)


def _make_workload_row(workload: Workload) -> Row:
    values = tuple(getattr(workload, name) for name, _ in _WORKLOAD_COLUMNS[:-1])
    return (*values, json.dumps(dict(workload.attributes), ensure_ascii=False))


def _read_workload(row: Row) -> Workload:
    values = dict(zip((name for name, _ in _WORKLOAD_COLUMNS), row, strict=True))
    values["attributes"] = json.loads(values["attributes"] or "{}")
    return Workload(**values)


def _clean_status(status: WorkloadStatus) -> WorkloadStatus:
    return WorkloadStatus(
        bounded(status.workload),
        status.state,
        bounded(status.reason),
        keep_finite(status.priority) or 0.0,
    )


def _read_status(row: Row) -> WorkloadStatus:
    return WorkloadStatus(row[0], WorkloadState(row[1]), row[2], row[3])


def _clean_allocation(a: Allocation) -> Allocation:
    return Allocation(
        bounded(a.workload),
        limit_gpu_name(a.gpu),
        clip_int32(a.global_rank),
        clip_int32(a.local_rank),
        float(a.share) if math.isfinite(a.share) else 1.0,
    )


HOSTS = Kind(
    name="hosts",
    keys=("host",),
    columns=(
        ("host", "VARCHAR"),
        ("rack", "VARCHAR"),
        ("switch", "VARCHAR"),
        ("nvlink_domain", "VARCHAR"),
        ("partitions", "VARCHAR[]"),
        ("cpus", "INTEGER"),
        ("memory_mib", "BIGINT"),
    ),
    key_of=lambda host: (host.host,),
    to_row=_make_host_row,
    from_row=_read_host,
    clean=_clean_host,
)

GPUS = Kind(
    name="gpus",
    keys=("gpu",),
    columns=(
        ("gpu", "VARCHAR"),
        ("host", "VARCHAR"),
        ("index", "INTEGER"),
        ("instance", "INTEGER"),
        ("uuid", "VARCHAR"),
        ("model", "VARCHAR"),
        ("power_limit_w", "DOUBLE"),
        ("memory_mib", "DOUBLE"),
    ),
    key_of=lambda gpu: (gpu.gpu,),
    to_row=_make_gpu_row,
    from_row=lambda row: Gpu(*row[1:]),
    clean=_clean_gpu,
)

PARTITIONS = Kind(
    name="partitions",
    keys=("partition",),
    columns=(
        ("partition", "VARCHAR"),
        ("min_gpus", "INTEGER"),
        ("max_gpus", "INTEGER"),
        ("time_limit_s", "BIGINT"),
        ("priority", "INTEGER"),
    ),
    key_of=lambda partition: (partition.partition,),
    to_row=_make_partition_row,
    from_row=lambda row: Partition(*row),
    clean=_clean_partition,
)

HOST_STATES = Kind(
    name="host_states",
    keys=("host",),
    columns=(("host", "VARCHAR"), ("state", "VARCHAR"), ("reason", "VARCHAR")),
    key_of=lambda status: (status.host,),
    to_row=lambda status: (status.host, str(status.state), status.reason),
    from_row=lambda row: HostStatus(row[0], HostState(row[1]), row[2]),
    clean=lambda s: HostStatus(bounded(s.host), s.state, bounded(s.reason)),
)

GPU_STATES = Kind(
    name="gpu_states",
    keys=("gpu",),
    columns=(("gpu", "VARCHAR"), ("failed", "BOOLEAN"), ("reason", "VARCHAR")),
    key_of=lambda status: (status.gpu,),
    to_row=lambda status: (status.gpu, status.failed, status.reason),
    from_row=lambda row: GpuStatus(*row),
    clean=lambda s: GpuStatus(limit_gpu_name(s.gpu), bool(s.failed), bounded(s.reason)),
)

WORKLOADS = Kind(
    name="workloads",
    keys=("workload",),
    columns=_WORKLOAD_COLUMNS,
    key_of=lambda workload: (workload.workload,),
    to_row=_make_workload_row,
    from_row=_read_workload,
    clean=_clean_workload,
)

STATES = Kind(
    name="states",
    keys=("workload",),
    columns=(
        ("workload", "VARCHAR"),
        ("state", "VARCHAR"),
        ("reason", "VARCHAR"),
        ("priority", "DOUBLE"),
    ),
    key_of=lambda status: (status.workload,),
    to_row=lambda s: (s.workload, str(s.state), s.reason, s.priority),
    from_row=_read_status,
    clean=_clean_status,
)

ALLOCATIONS = Kind(
    name="allocations",
    keys=("workload", "gpu"),
    columns=(
        ("workload", "VARCHAR"),
        ("gpu", "VARCHAR"),
        ("global_rank", "INTEGER"),
        ("local_rank", "INTEGER"),
        ("share", "DOUBLE"),
    ),
    key_of=lambda a: (a.workload, a.gpu),
    to_row=lambda a: (a.workload, a.gpu, a.global_rank, a.local_rank, a.share),
    from_row=lambda row: Allocation(*row),
    clean=_clean_allocation,
)

KINDS = (HOSTS, GPUS, PARTITIONS, HOST_STATES, GPU_STATES, WORKLOADS, STATES, ALLOCATIONS)
