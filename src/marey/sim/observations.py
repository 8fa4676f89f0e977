"""What the simulated cluster tells of itself: everything at first, then what changed."""

from __future__ import annotations

from typing import Any

from marey.model.events import Event
from marey.model.inventory import GpuStatus, HostState, HostStatus
from marey.model.observation import Observation
from marey.model.workloads import Workload, WorkloadState, WorkloadStatus
from marey.sim.cluster import Cluster
from marey.sim.faults.host_life import Hosts


def merge_observations(
    time_ms: int, cluster: Cluster, hosts: Hosts, events: tuple[Event, ...]
) -> Observation:
    """Return a complete observation: the inventory and the state of all there is."""
    jobs = list(cluster.jobs.values())
    running = [job for job in jobs if job.state is WorkloadState.RUNNING]
    hardware = cluster.hardware
    return Observation(
        time_ms=time_ms,
        cluster=cluster.config.cluster,
        hosts=hardware.inventory.hosts,
        gpus=hardware.inventory.gpus,
        partitions=hardware.inventory.partitions,
        # A host of which nothing is said would be unknown, so those that are up say so too.
        host_states=tuple(
            hosts.states.get(number, HostStatus(name, HostState.UP))
            for number, name in enumerate(hardware.host_names)
        ),
        gpu_states=tuple(cluster.failed_gpus.values()),
        workloads=tuple(job.record() for job in jobs),
        statuses=tuple(job.status() for job in jobs),
        allocations=tuple(a for job in running for a in cluster.allocations(job)),
        events=events,
        complete=True,
    )


def make_change_report(time_ms: int, cluster: str, entries: list[Any]) -> Observation:
    """Make one observation of records; of a workload's several records the last one counts."""
    workloads: dict[str, Workload] = {}
    statuses: dict[str, WorkloadStatus] = {}
    hosts: dict[str, HostStatus] = {}
    gpus: dict[str, GpuStatus] = {}
    allocations: list[Any] = []
    events: list[Event] = []
    for entry in entries:
        if isinstance(entry, WorkloadStatus):
            statuses[entry.workload] = entry
        elif isinstance(entry, Workload):
            workloads[entry.workload] = entry
        elif isinstance(entry, tuple):
            allocations.extend(entry)
        elif isinstance(entry, Event):
            events.append(entry)
        elif isinstance(entry, HostStatus):
            hosts[entry.host] = entry
        else:
            gpus[entry.gpu] = entry
    return Observation(
        time_ms=time_ms,
        cluster=cluster,
        host_states=tuple(hosts.values()),
        gpu_states=tuple(gpus.values()),
        workloads=tuple(workloads.values()),
        statuses=tuple(statuses.values()),
        allocations=tuple(allocations),
        events=tuple(events),
    )
