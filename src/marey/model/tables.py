"""The schemas of the record tables, as stores return them and files carry them.

Times are milliseconds since 1970 UTC; ``valid_to_ms`` null means "until further notice".
"""

from __future__ import annotations

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
