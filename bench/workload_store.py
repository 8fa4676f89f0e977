"""A store that holds one large workload, made of arrays: what the benches of the diagnosis read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marey.model.inventory import Gpu, Host, HostState, HostStatus
from marey.model.metrics import metric_named
from marey.model.observation import Observation
from marey.model.samples import SampleBatch
from marey.model.times import HOUR_MS
from marey.model.workloads import Allocation, Workload, WorkloadState, WorkloadStatus
from marey.store.embedded.embedded_store import open_store

# Begins on a full hour, as the store's hours do.
BEGIN_MS = 1_794_182_400_000
STEP_MS = 15_000
GPUS_PER_HOST = 8
# Metric: usual value, noise, and what the odd GPUs have instead.
METRICS: Mapping[str, tuple[float, float, float]] = {
    "util": (82.0, 6.0, 97.0),
    "power": (520.0, 30.0, 640.0),
    "temp": (61.0, 2.0, 70.0),
    "mem_used": (61_000.0, 300.0, 70_000.0),
    "sm_active": (64.0, 7.0, 78.0),
    "tensor_active": (41.0, 6.0, 47.0),
}


@dataclass(frozen=True)
class LargeWorkload:
    """How large the workload is; the first GPU of every node is the odd one."""

    gpus: int = 512
    hours: float = 24.0
    workload: str = "large"

    @property
    def names(self) -> list[str]:
        """The GPUs' ids."""
        return [f"n{i // GPUS_PER_HOST:04}:{i % GPUS_PER_HOST}" for i in range(self.gpus)]

    @property
    def end_ms(self) -> int:
        """When it ended."""
        return BEGIN_MS + round(self.hours * HOUR_MS)


def write_store(path: Path, large: LargeWorkload) -> None:
    """Write the workload and all its samples, rewritten for reading as a server does."""
    with open_store(path) as store:
        store.apply(_inventory(large))
        for batch in _hours(large):
            store.append([batch])
            store.maintain(int(batch.time_ms[-1]) + HOUR_MS)
        store.maintain(large.end_ms + HOUR_MS)


def _inventory(large: LargeWorkload) -> Observation:
    hosts = sorted({name.split(":")[0] for name in large.names})
    run = Workload(
        large.workload,
        name="pretrain",
        user="ada",
        gpus_requested=large.gpus,
        submit_ms=BEGIN_MS - 600_000,
        start_ms=BEGIN_MS,
        end_ms=large.end_ms,
    )
    return Observation(
        time_ms=BEGIN_MS,
        hosts=tuple(Host(host, "r1", "s1", host, ()) for host in hosts),
        gpus=tuple(
            Gpu(host, i, None, f"GPU-{host}-{i}", "H100", 700.0, 81_559.0)
            for host in hosts
            for i in range(GPUS_PER_HOST)
        ),
        host_states=tuple(HostStatus(host, HostState.UP) for host in hosts),
        workloads=(run,),
        statuses=(WorkloadStatus(large.workload, WorkloadState.RUNNING),),
        allocations=tuple(
            Allocation(large.workload, gpu, i, i % GPUS_PER_HOST)
            for i, gpu in enumerate(large.names)
        ),
        complete=True,
    )


def _hours(large: LargeWorkload) -> Iterator[SampleBatch]:
    random = np.random.default_rng(5)
    names = large.names
    per_hour = HOUR_MS // STEP_MS
    for first in range(0, round(large.hours * per_hour), per_hour):
        moments = np.arange(first, min(first + per_hour, round(large.hours * per_hour)))
        times = np.repeat(BEGIN_MS + moments * STEP_MS, large.gpus)
        entity = np.tile(np.arange(large.gpus, dtype=np.int32), len(moments))
        yield SampleBatch(
            times.astype(np.int64),
            entity,
            names,
            {
                name: metric_named(name).clean(_values(random, entity, *of))
                for name, of in METRICS.items()
            },
            workload=np.zeros(len(times), np.int32),
            workloads=(large.workload,),
        )


def _values(
    random: np.random.Generator, entity: NDArray[np.int32], usual: float, noise: float, odd: float
) -> NDArray[np.float32]:
    middle = np.where(entity % GPUS_PER_HOST == 0, odd, usual)
    return random.normal(middle, noise).clip(0).astype(np.float32)
