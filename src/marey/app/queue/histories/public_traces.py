"""Read public traces of GPU clusters: Alibaba's pods (v2023), Helios' job log, Philly's jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from marey.model.errors import InvalidInput, shown
from marey.queue.policy.recorded_jobs import (
    UNKNOWN_MS,
    WHOLE_GPU,
    Hosts,
    RecordedJobs,
    shape_gangs,
)

Column = NDArray[np.int64]
# Traces tell no time limits: this many times the run time stands for one.
_LIMIT_FACTOR = 2
HELIOS_COLUMNS = ("job_id", "user", "gpu_num", "submit_time", "start_time", "duration")
PHILLY_COLUMNS = ("timestamp", "duration", "num_gpus")
POD_COLUMNS = ("name", "num_gpu", "gpu_milli", "creation_time", "scheduled_time", "deletion_time")
_NO_LIMITS = "The trace tells no time limits: twice the run time stands for one."


def read_table(path: Path) -> dict[str, Any]:
    """Return the columns of a CSV file, plain or compressed; an empty one has none."""
    try:
        table = pacsv.read_csv(path)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{shown(str(path))} is no CSV table: {shown(str(error))}") from error
    return {name: table[name] for name in table.column_names}


def _whole(column: Any) -> Column:
    values = column.to_numpy(zero_copy_only=False).astype(np.float64)
    return np.asarray(np.nan_to_num(values, nan=-1.0), np.int64)


def _to_ms(column: Any) -> Column:
    """Return times, as text or as timestamps, in ms; −1 where there is none."""
    moments = []
    for value in column.to_pylist():
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                value = None
        known = isinstance(value, datetime)
        moments.append(int(value.replace(tzinfo=UTC).timestamp() * 1000) if known else UNKNOWN_MS)
    return np.array(moments, np.int64)


def read_alibaba_pods(nodes: Path, pods: Path) -> RecordedJobs:
    """Return the GPU pods of Alibaba's trace with their shares of GPUs, CPUs and memory."""
    host, pod = read_table(nodes), read_table(pods)
    has = _whole(host["gpu"]) > 0
    created, placed = _whole(pod["creation_time"]), _whole(pod["scheduled_time"])
    ended = _whole(pod["deletion_time"])
    kept = (_whole(pod["num_gpu"]) > 0) & (placed >= 0) & (ended > placed)
    rows = np.flatnonzero(kept)[np.argsort(created[kept], kind="stable")]
    if not len(rows):
        raise InvalidInput(f"{shown(str(pods))} holds no pod with GPUs that ran.", code="no_history")  # fmt: skip  # noqa: E501
    run = np.maximum(1, ended[rows] - placed[rows]) * 1000
    qos = [str(value or "") for value in pod["qos"].to_pylist()]
    owners = tuple(sorted({qos[i] for i in rows}))
    models = ["" if value is None else str(value) for value in pod["gpu_spec"].to_pylist()]
    names = pod["name"].to_pylist()
    left_out = int((_whole(pod["num_gpu"]) > 0).sum()) - len(rows)
    return RecordedJobs(
        ids=tuple(str(names[i]) for i in rows),
        submit_ms=created[rows] * 1000,
        start_ms=np.maximum(placed[rows], created[rows]) * 1000,
        run_ms=run,
        limit_ms=run * _LIMIT_FACTOR,
        gpus_per_host=_whole(pod["num_gpu"])[rows],
        hosts=np.ones(len(rows), np.int64),
        owner=np.array([owners.index(qos[i]) for i in rows], np.int64),
        owners=owners,
        host_gpus=_whole(host["gpu"])[has],
        priority=np.zeros(len(rows)),
        # CPUs in thousandths, as the trace has them.
        cpus_per_host=_whole(pod["cpu_milli"])[rows],
        memory_mb_per_host=_whole(pod["memory_mib"])[rows],
        gpu_share=np.clip(_whole(pod["gpu_milli"])[rows], 1, WHOLE_GPU),
        gpu_model=tuple(models[i] for i in rows),
        site=Hosts(
            names=tuple(str(n) for n, ok in zip(host["sn"].to_pylist(), has, strict=True) if ok),
            models=tuple(
                str(m or "") for m, ok in zip(host["model"].to_pylist(), has, strict=True) if ok
            ),
            cpus=_whole(host["cpu_milli"])[has],
            memory_mb=_whole(host["memory_mib"])[has],
        ),
        notes=(
            _NO_LIMITS,
            "Users are not told: quality of service stands for them.",
            *(
                [f"{left_out} pods that were never placed or never ended are left out."]
                if left_out
                else []
            ),
        ),
    )


def read_helios_log(path: Path) -> RecordedJobs:
    """Return the GPU jobs of a Helios cluster log; virtual clusters are its partitions."""
    table = read_table(path)
    gpus = _whole(table["gpu_num"])
    submit, start = _to_ms(table["submit_time"]), _to_ms(table["start_time"])
    run = _whole(table["duration"])
    kept = (gpus > 0) & (submit >= 0) & (run > 0)
    rows = np.flatnonzero(kept)[np.argsort(submit[kept], kind="stable")]
    if not len(rows):
        raise InvalidInput(f"{shown(str(path))} holds no job with GPUs that ran.", code="no_history")  # fmt: skip  # noqa: E501
    need, count = shape_gangs(gpus[rows], 8)
    if "node_num" in table:
        count = np.maximum(1, _whole(table["node_num"])[rows])
        need = np.maximum(1, -(-gpus[rows] // count))
    users = [str(value) for value in table["user"].to_pylist()]
    owners = sorted({users[i] for i in rows})
    number = {name: i for i, name in enumerate(owners)}
    clusters = [str(v or "") for v in table["vc"].to_pylist()] if "vc" in table else []
    return RecordedJobs(
        ids=tuple(str(v) for v in table["job_id"].take(rows).to_pylist()),
        submit_ms=submit[rows],
        start_ms=np.where(start[rows] >= submit[rows], start[rows], UNKNOWN_MS),
        run_ms=run[rows] * 1000,
        limit_ms=run[rows] * 1000 * _LIMIT_FACTOR,
        gpus_per_host=need,
        hosts=count,
        owner=np.array([number[users[i]] for i in rows], np.int64),
        owners=tuple(owners),
        host_gpus=np.zeros(0, np.int64),
        priority=np.zeros(len(rows)),
        partition=tuple(clusters[i] for i in rows) if clusters else (),
        notes=(_NO_LIMITS, "The log names no hosts: the policy must ('hosts')."),
    )


def read_philly_jobs(path: Path) -> RecordedJobs:
    """Return Philly's jobs: submission, run time and GPUs; it has neither start nor user."""
    table = read_table(path)
    submit, gpus = _to_ms(table["timestamp"]), _whole(table["num_gpus"])
    run = np.maximum(1, np.asarray(table["duration"].to_numpy() * 1000.0, np.int64))
    kept = (gpus > 0) & (submit >= 0)
    rows = np.flatnonzero(kept)[np.argsort(submit[kept], kind="stable")]
    need, count = shape_gangs(gpus[rows], 8)
    clusters = [str(value) for value in table["cluster"].to_pylist()] if "cluster" in table else []
    return RecordedJobs(
        ids=tuple(str(i) for i in rows),
        submit_ms=submit[rows],
        start_ms=np.full(len(rows), UNKNOWN_MS, np.int64),
        run_ms=run[rows],
        limit_ms=run[rows] * _LIMIT_FACTOR,
        gpus_per_host=need,
        hosts=count,
        owner=np.zeros(len(rows), np.int64),
        owners=("all",),
        host_gpus=np.zeros(0, np.int64),
        priority=np.zeros(len(rows)),
        partition=tuple(clusters[i] for i in rows) if clusters else (),
        notes=(_NO_LIMITS, "The trace tells neither starts, users nor hosts."),
    )


def refuse_sums(path: Path, columns: Sequence[str]) -> InvalidInput:
    """Return why sums over jobs, as Helios publishes per minute, cannot be replayed."""
    return InvalidInput(
        f"{shown(str(path))} holds sums over jobs ({', '.join(columns[:3])}, …) and no single job: "
        "no policy can be replayed on it. Helios' own cluster_log.csv, with one row per job "
        f"({', '.join(HELIOS_COLUMNS)}), can."
    )
