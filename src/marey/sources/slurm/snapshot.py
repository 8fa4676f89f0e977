"""Everything the controller says at one moment, as one complete observation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from marey.model.inventory import Gpu, Host, HostStatus, Partition
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
    _inventory: _Inventory = ((), (), ())
    _jobs: dict[int, tuple[Job, list[SeenJob]]] = field(default_factory=dict)

    def observe(self, snapshot: Snapshot, now_ms: int) -> Observation:
        """The whole cluster at this moment: what it does not name has gone."""
        hosts, gpus, states = self._read_nodes(list(snapshot.nodes))
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

    def _read_nodes(self, nodes: list[Node]) -> _Inventory:
        if nodes != self._nodes:
            self._nodes = nodes
            found = [(node, gpus_of(node)) for node in nodes if text(node.name)]
            kept = [(node, gpus) for node, gpus in found if gpus or not self.gpu_only]
            self._inventory = (
                tuple(host_of(node) for node, _ in kept),
                tuple(gpu for _, gpus in kept for gpu in gpus),
                tuple(status_of(node) for node, _ in kept),
            )
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
