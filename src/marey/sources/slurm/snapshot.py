"""Everything the controller says at one moment, as one complete observation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from marey.model.inventory import Gpu, Host, HostState, HostStatus, Partition
from marey.model.observation import Observation
from marey.sources.slurm.documents import Job, Node
from marey.sources.slurm.jobs import SeenJob, seen_jobs, with_priority
from marey.sources.slurm.nodes import gpus_of, host_of, status_of
from marey.sources.slurm.values import text


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was asked: nodes and jobs as documents, partitions as the model has them."""

    nodes: Sequence[Node] = ()
    jobs: Sequence[Job] = ()
    partitions: Sequence[Partition] = ()


ALONE = "measured, but Slurm does not know it"
_Inventory = tuple[tuple[Host, ...], tuple[Gpu, ...], tuple[HostStatus, ...]]


@dataclass(slots=True)
class SnapshotReader:
    """Turns snapshots into observations; a job that has ended is told once, not at every poll.

    With ``gpu_only`` (the default) nodes without GPUs, and jobs that ask for none, are left out.
    """

    cluster: str
    gpu_only: bool = True
    _ended: set[str] = field(default_factory=set)
    # Most of a cluster is as it was at the last poll: what a record meant then, it means now.
    _nodes: list[Node] = field(default_factory=list)
    _measured: list[Gpu] = field(default_factory=list)
    _inventory: _Inventory = ((), (), ())
    _jobs: dict[int, tuple[Job, list[SeenJob]]] = field(default_factory=dict)

    def observe(self, snapshot: Snapshot, now_ms: int, measured: Iterable[Gpu] = ()) -> Observation:
        """The whole cluster at this moment: what it does not name has gone.

        GPUs that others measure lend Slurm's their UUID and model; on hosts that Slurm does not
        know they are told too, as unknown.
        """
        hosts, gpus, states = self._read_nodes(list(snapshot.nodes), list(measured))
        seen = list(self._wanted(self._read_jobs(snapshot.jobs)))
        news = self._without_old_ends(seen)
        return Observation(
            now_ms,
            self.cluster,
            hosts=hosts,
            gpus=gpus,
            partitions=tuple(snapshot.partitions),
            host_states=states,
            workloads=tuple(job.workload for job in news),
            statuses=tuple(job.status for job in news),
            allocations=tuple(a for job in news for a in job.allocations),
            complete=True,
        )

    def _read_nodes(self, nodes: list[Node], measured: list[Gpu]) -> _Inventory:
        if nodes != self._nodes or measured != self._measured:
            self._nodes, self._measured = nodes, measured
            found = [(node, gpus_of(node)) for node in nodes if text(node.name)]
            kept = [(node, gpus) for node, gpus in found if gpus or not self.gpu_only]
            told = (
                tuple(host_of(node) for node, _ in kept),
                tuple(gpu for _, gpus in kept for gpu in gpus),
                tuple(status_of(node) for node, _ in kept),
            )
            self._inventory = with_measured(told, measured)
        return self._inventory

    def _read_jobs(self, jobs: Sequence[Job]) -> Iterable[SeenJob]:
        now: dict[int, tuple[Job, list[SeenJob]]] = {}
        for job in jobs:
            key = job.job_id if isinstance(job.job_id, int) else 0
            before = self._jobs.get(key)
            if before is not None and _only_priority_changed(before[0], job):
                seen = [with_priority(one, job) for one in before[1]]
            else:
                seen = seen_jobs(job)
            now[key] = (job, seen)
            yield from seen
        self._jobs = now

    def _wanted(self, seen: Iterable[SeenJob]) -> Iterable[SeenJob]:
        return (job for job in seen if job.workload.gpus_requested or not self.gpu_only)

    def _without_old_ends(self, seen: list[SeenJob]) -> list[SeenJob]:
        ended = {job.workload.workload for job in seen if job.status.state.ended}
        news = [
            job
            for job in seen
            if not job.status.state.ended or job.workload.workload not in self._ended
        ]
        self._ended = ended
        return news


def _only_priority_changed(before: Job, job: Job) -> bool:
    priority, before.priority = before.priority, job.priority
    same = before == job
    before.priority = priority
    return bool(same)


def with_measured(told: _Inventory, measured: Iterable[Gpu]) -> _Inventory:
    """The scheduler's inventory, with what exporters add: facts of its GPUs, and GPUs it lacks."""
    hosts, gpus, states = told
    seen = {gpu.gpu: gpu for gpu in measured}
    known = {gpu.gpu for gpu in gpus}
    named = {host.host for host in hosts}
    extra = [gpu for name, gpu in sorted(seen.items()) if name not in known]
    alone = sorted({gpu.host for gpu in extra} - named)
    return (
        (*hosts, *(Host(host) for host in alone)),
        (*(_joined(gpu, seen.get(gpu.gpu)) for gpu in gpus), *extra),
        (*states, *(HostStatus(host, HostState.UNKNOWN, ALONE) for host in alone)),
    )


def _joined(gpu: Gpu, measured: Gpu | None) -> Gpu:
    if measured is None:
        return gpu
    return replace(gpu, uuid=measured.uuid, model=measured.model or gpu.model)
