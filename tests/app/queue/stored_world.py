"""A simulated world of control jobs as a store keeps one: runs, allocations, the hosts' samples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from marey.app.queries.workspace import Workspace
from marey.live.summary import SummaryLog
from marey.model.inventory import Gpu, Host, HostState, HostStatus
from marey.model.metrics import Entity
from marey.model.observation import Observation
from marey.model.protocols import Store
from marey.model.samples import SampleBatch
from marey.model.times import DAY_MS, HOUR_MS
from marey.model.workloads import Allocation, Workload, WorkloadState, WorkloadStatus
from marey.sim.scheduling.control_jobs import ControlWorld
from tests.app.small_cluster import HandClock

BEGIN_MS = 1_794_182_400_000
GPUS = 8
# Megabytes a second at full load: what all share is seen on every host.
FULL = 10_000.0


def open_world(store: Store, world: ControlWorld, days: int) -> Workspace:
    """Write a world to a store and return the workspace at its end; the truth stays outside."""
    runs = [_see_run(world, i) for i in range(len(world.start_s))]
    told = sorted((one for run in runs for one in run), key=lambda one: one.time_ms)
    store.ingest([_see_hosts(world), *told], [])
    store.append(list(_sample_loads(world)))
    return Workspace(store, HandClock(BEGIN_MS + days * DAY_MS), {}, SummaryLog(store))


def _see_hosts(world: ControlWorld) -> Observation:
    names = [f"h{i}" for i in range(int(world.hosts.max()) + 1)]
    return Observation(
        time_ms=BEGIN_MS,
        hosts=tuple(Host(name, "r1", "s1", name, ("gpu",)) for name in names),
        gpus=tuple(
            Gpu(name, i, None, f"{name}-{i}", "A100", 400.0, 80_000.0)
            for name in names
            for i in range(GPUS)
        ),
        host_states=tuple(HostStatus(name, HostState.UP) for name in names),
    )


def _see_run(world: ControlWorld, i: int) -> Iterator[Observation]:
    start = BEGIN_MS + round(world.start_s[i] * 1000)
    end = start + round(world.run_s[i] * 1000)
    hosts = world.hosts[world.first[i] : world.first[i + 1]]
    held = tuple(
        Allocation(f"run-{i}", f"h{host}:{i % GPUS}", n, 0) for n, host in enumerate(hosts)
    )
    for at, state in ((start, WorkloadState.RUNNING), (end, WorkloadState.COMPLETED)):
        running = state is WorkloadState.RUNNING
        workload = Workload(
            f"run-{i}",
            name=f"control{chr(97 + int(world.application[i]))}",
            user="ada",
            project="lab",
            partition="gpu",
            gpus_requested=int(world.gpus[i]),
            submit_ms=start,
            start_ms=start,
            end_ms=None if running else end,
        )
        yield Observation(
            time_ms=at,
            workloads=(workload,),
            statuses=(WorkloadStatus(f"run-{i}", state),),
            allocations=held if running else (),
        )


def _sample_loads(world: ControlWorld) -> Iterator[SampleBatch]:
    """Yield each load at the full hour before a run, on every host with some noise."""
    hours, runs = np.unique(world.start_s // 3600, return_index=True)
    hosts = int(world.hosts.max()) + 1
    draws = np.random.default_rng(1)
    loads = {"host_net_rx": world.fabric_load, "host_fs_read": world.file_system_load}
    noisy = {
        name: (np.repeat(load[runs], hosts) * draws.uniform(0.9, 1.1, len(runs) * hosts) * FULL)
        for name, load in loads.items()
    }
    yield SampleBatch(
        kind=Entity.HOST,
        time_ms=np.repeat(BEGIN_MS + hours.astype(np.int64) * HOUR_MS, hosts),
        entities=tuple(f"h{i}" for i in range(hosts)),
        entity=np.tile(np.arange(hosts, dtype=np.int32), len(hours)),
        columns={name: values.astype(np.float32) for name, values in noisy.items()},
    )
