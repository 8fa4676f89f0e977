"""Everything the controller says at one moment, as one complete observation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from marey.model.inventory import Partition
from marey.model.observation import Observation
from marey.sources.slurm.documents import Job, Node
from marey.sources.slurm.jobs import SeenJob, seen_jobs
from marey.sources.slurm.nodes import gpus_of, host_of, status_of
from marey.sources.slurm.values import text


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was asked: nodes and jobs as documents, partitions as the model has them."""

    nodes: Sequence[Node] = ()
    jobs: Sequence[Job] = ()
    partitions: Sequence[Partition] = ()


@dataclass(slots=True)
class SnapshotReader:
    """Turns snapshots into observations; a job that has ended is told once, not at every poll.

    With ``gpu_only`` (the default) nodes without GPUs, and jobs that ask for none, are left out.
    """

    cluster: str
    gpu_only: bool = True
    _ended: set[str] = field(default_factory=set)

    def observe(self, snapshot: Snapshot, now_ms: int) -> Observation:
        """The whole cluster at this moment: what it does not name has gone."""
        nodes = [n for n in snapshot.nodes if text(n.name) and (not self.gpu_only or gpus_of(n))]
        seen = list(self._wanted(job for record in snapshot.jobs for job in seen_jobs(record)))
        news = self._without_old_ends(seen)
        return Observation(
            now_ms,
            self.cluster,
            hosts=tuple(host_of(node) for node in nodes),
            gpus=tuple(gpu for node in nodes for gpu in gpus_of(node)),
            partitions=tuple(snapshot.partitions),
            host_states=tuple(status_of(node) for node in nodes),
            workloads=tuple(job.workload for job in news),
            statuses=tuple(job.status for job in news),
            allocations=tuple(a for job in news for a in job.allocations),
            complete=True,
        )

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
