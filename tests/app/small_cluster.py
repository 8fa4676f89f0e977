"""A cluster small enough to know by heart, and a source that tells of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from marey.model.errors import Unavailable
from marey.model.events import ClusterEventKind, Event
from marey.model.inventory import Gpu, Host, HostState, HostStatus, Partition
from marey.model.metrics import EVERYDAY, metric_named
from marey.model.observation import Observation
from marey.model.samples import SampleBatch
from marey.model.workloads import (
    Allocation,
    Progress,
    Workload,
    WorkloadState,
    WorkloadStatus,
)

START_MS = 1_794_182_400_000
TICK_MS = 15_000
HOSTS = ("n1", "n2")
GPUS = tuple(f"{host}:{index}" for host in HOSTS for index in range(4))


class HandClock:
    """A clock that a test moves."""

    speed = 1.0

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int = TICK_MS) -> None:
        self._now_ms += ms


def inventory() -> Observation:
    """Two hosts of four A100s; job 1 runs on n1, job 2 and 3 wait."""
    return Observation(
        time_ms=START_MS,
        hosts=tuple(Host(host, "r1", "s1", host, ("main",)) for host in HOSTS),
        gpus=tuple(
            Gpu(host, index, None, f"GPU-{host}-{index}", "NVIDIA A100-SXM4-80GB", 1000.0, 163840.0)
            for host in HOSTS
            for index in range(4)
        ),
        partitions=(Partition("main", 1, 8),),
        host_states=tuple(HostStatus(host, HostState.UP) for host in HOSTS),
        workloads=(
            Workload(
                "1",
                name="train",
                user="ada",
                project="p1",
                experiment="e1",
                partition="main",
                gpus_requested=4,
                submit_ms=START_MS - 60_000,
                start_ms=START_MS,
                attributes={"lr": "0.1"},
            ),
            Workload("2", name="eval", user="bob", gpus_requested=8, submit_ms=START_MS - 30_000),
            Workload("3", name="tune", user="ada", gpus_requested=2, submit_ms=START_MS - 20_000),
        ),
        statuses=(
            WorkloadStatus("1", WorkloadState.RUNNING),
            WorkloadStatus("2", WorkloadState.PENDING, "Resources", 10.0),
            WorkloadStatus("3", WorkloadState.PENDING, "Priority", 20.0),
        ),
        allocations=tuple(Allocation("1", f"n1:{i}", i, i) for i in range(4)),
        progress=(Progress("1", START_MS, 1, 100.0, "tokens", 3.5),),
        events=(
            Event(START_MS, ClusterEventKind.XID, "n2", "n2:0", value=31.0, text="<b>xid</b>"),
        ),
        complete=True,
    )


def samples(
    time_ms: int, gpus: Sequence[str] = GPUS, metrics: Sequence[str] = EVERYDAY
) -> SampleBatch:
    """One sample of every GPU: a value that GPU, metric and time decide."""
    count = len(gpus)
    tick = (time_ms - START_MS) // TICK_MS
    columns = {}
    for at, name in enumerate(metrics):
        metric = metric_named(name)
        share = ((np.arange(count) * 7 + at * 13 + tick * 3) % 50) / 100
        columns[name] = metric.clean(
            (metric.minimum + share * (metric.maximum - metric.minimum)).astype(np.float32)
        )
    times = np.full(count, time_ms, np.int64)
    return SampleBatch(times, np.arange(count, dtype=np.int32), tuple(gpus), columns)


class SmallSource:
    """Tells the inventory once, then samples at every tick; can be told to fail."""

    name = "small"

    def __init__(self, gpus: Sequence[str] = GPUS) -> None:
        self._told_ms: int | None = None
        self._gpus = tuple(gpus)
        self.silent = False
        self.closed = False
        self.extra: list[Observation] = []

    def poll(self, now_ms: int) -> Sequence[Observation]:
        if self.silent:
            raise Unavailable("nobody answers at n1")
        first = self._told_ms is None
        begin = START_MS if self._told_ms is None else self._told_ms + TICK_MS
        told = []
        for time_ms in range(begin, now_ms + 1, TICK_MS):
            batch = samples(time_ms, self._gpus)
            told.append(Observation(time_ms, samples=(batch,)))
            self._told_ms = time_ms
        if first and told:
            told[0] = replace(inventory(), samples=told[0].samples)
        told += self.extra
        self.extra = []
        return told

    def close(self) -> None:
        self.closed = True
