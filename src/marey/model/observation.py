"""What a source says when it is asked: the unit of ingestion, applied as one step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from marey.model.events import Event
from marey.model.inventory import Gpu, GpuStatus, Host, HostStatus, Partition
from marey.model.names import DEFAULT_CLUSTER
from marey.model.samples import SampleBatch
from marey.model.workloads import Allocation, Progress, Workload, WorkloadStatus


@dataclass(frozen=True, slots=True)
class Observation:
    """New or changed facts at one moment; applying the same one twice changes nothing.

    Every list holds only what is new or changed, unless ``complete``: then hosts, GPUs,
    workloads that are pending or running, and allocations are all that exist, and whatever is
    missing has gone. ``allocations`` of a workload replace those it had; an empty allocation of
    an ended workload need not be sent: its GPUs are free from its end on. ``shares`` are the
    scheduler's own weights of projects, all of them, or None where it says nothing of them.
    """

    time_ms: int
    cluster: str = DEFAULT_CLUSTER
    hosts: tuple[Host, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    partitions: tuple[Partition, ...] = ()
    host_states: tuple[HostStatus, ...] = ()
    gpu_states: tuple[GpuStatus, ...] = ()
    workloads: tuple[Workload, ...] = ()
    statuses: tuple[WorkloadStatus, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    progress: tuple[Progress, ...] = ()
    events: tuple[Event, ...] = ()
    samples: tuple[SampleBatch, ...] = ()
    shares: Mapping[str, float] | None = None
    complete: bool = False
