"""How workloads come into the queues: submissions, dependencies, begin times, holds, patience."""

from __future__ import annotations

from typing import Any

from marey.model.times import HOUR_MS
from marey.model.workloads import WorkloadState
from marey.sim.cluster import Cluster
from marey.sim.random_draws import RandomDraws
from marey.sim.scheduling.demand import Demand
from marey.sim.scheduling.event_queue import QueuedEventKind
from marey.sim.scheduling.jobs import Job
from marey.sim.scheduling.scheduler_pass import Reason

# Of a thousand submissions: so many wait for another workload, for a time, for their owner, and
# for more than the partition can ever give; and so many owners lose patience.
DEPENDENT, DELAYED, HELD, IMPOSSIBLE, IMPATIENT = 0.03, 0.02, 0.01, 0.003, 0.06


class Intake:
    """Brings workloads to the cluster, hour by hour, and decides when they become eligible."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        config, hardware = cluster.config, cluster.hardware
        self.demands = (
            [Demand(part, i, cluster.users, config.seed) for i, part in enumerate(hardware.parts)]
            if config.load > 0.0
            else []
        )
        self._next_seq = 0
        self._waiting_for: dict[int, list[int]] = {}
        self._last_of_user: dict[int, int] = {}
        cluster.on_end.append(self._release_dependents)
        cluster.on_event[QueuedEventKind.HOUR] = self._hour
        cluster.on_event[QueuedEventKind.SUBMIT] = self._arrive
        cluster.on_event[QueuedEventKind.ELIGIBLE] = self._becomes_eligible
        cluster.on_event[QueuedEventKind.GIVE_UP] = self._gives_up
        if self.demands:
            self._populate()
            cluster.at(cluster.now_ms, QueuedEventKind.HOUR)

    def new_seq(self) -> int:
        """Return the next workload's number."""
        self._next_seq += 1
        return self._next_seq - 1

    def _populate(self) -> None:
        """Add what runs and waits already when the cluster is first looked at."""
        cluster = self.cluster
        for demand in self.demands:
            draws = demand.already_there(cluster.config.load)
            for row in range(len(draws.gpus)):
                hours = RandomDraws(cluster.config.seed, 81, demand.number, row).between(0.0, 6.0)
                submitted = cluster.now_ms - int(hours * HOUR_MS)
                self.submit(demand.job(draws, row, self.new_seq(), submitted))

    def _hour(self) -> None:
        cluster = self.cluster
        for number, demand in enumerate(self.demands):
            waiting = float(cluster.queues[number].view("gpus").sum()) / demand.part.gpu_count
            draws, times = demand.arrivals(cluster.now_ms, cluster.config.load, waiting)
            for row, moment in enumerate(times.tolist()):
                cluster.at(moment, QueuedEventKind.SUBMIT, number, draws, row)
        cluster.at(cluster.now_ms + HOUR_MS, QueuedEventKind.HOUR)

    def _arrive(self, number: int, draws: Any, row: int) -> None:
        cluster = self.cluster
        job = self.demands[number].job(draws, row, self.new_seq(), cluster.now_ms)
        dice = RandomDraws(cluster.config.seed, 83, job.seq)
        lot = dice.uniform()
        if lot < DEPENDENT:
            job.depends_on = self._last_of_user.get(job.user_number)
        elif lot < DEPENDENT + DELAYED:
            job.eligible_ms = cluster.now_ms + int(dice.between(0.5, 5.0) * HOUR_MS)
        elif lot < DEPENDENT + DELAYED + HELD:
            job.reason = Reason.HELD
        elif lot < DEPENDENT + DELAYED + HELD + IMPOSSIBLE:
            job.reason = Reason.PARTITION_CONFIG
            job.gpus = (cluster.hardware.parts[number].plan.max_gpus or job.per_host) * 2
        if dice.chance(IMPATIENT):
            job.patience_ms = int(dice.between(0.5, 8.0) * HOUR_MS)
        self._last_of_user[job.user_number] = job.seq
        self.submit(job)

    def submit(self, job: Job) -> None:
        """Put a workload where it has to wait first."""
        cluster = self.cluster
        cluster.jobs[job.seq] = job
        dice = RandomDraws(cluster.config.seed, 84, job.seq)
        if job.reason is Reason.HELD:
            self._later(dice.between(0.2, 3.0) * HOUR_MS, QueuedEventKind.ELIGIBLE, job)
        elif job.reason is Reason.PARTITION_CONFIG:
            self._later(dice.between(0.5, 4.0) * HOUR_MS, QueuedEventKind.GIVE_UP, job)
        elif job.depends_on is not None and job.depends_on in cluster.jobs:
            job.reason = Reason.DEPENDENCY
            self._waiting_for.setdefault(job.depends_on, []).append(job.seq)
        elif job.eligible_ms > cluster.now_ms:
            job.reason = Reason.BEGIN_TIME
            cluster.at(job.eligible_ms, QueuedEventKind.ELIGIBLE, job.seq)
        else:
            cluster.enqueue(job)
        if job.patience_ms is not None:
            self._later(job.patience_ms, QueuedEventKind.GIVE_UP, job)
        cluster.tell(job.record())
        cluster.tell(job.status())

    def _later(self, delay_ms: float, what: QueuedEventKind, job: Job) -> None:
        self.cluster.at(self.cluster.now_ms + int(delay_ms), what, job.seq)

    def _becomes_eligible(self, seq: int) -> None:
        cluster = self.cluster
        job = cluster.jobs.get(seq)
        if job is None or job.state is not WorkloadState.PENDING:
            return
        job.eligible_ms = cluster.now_ms
        cluster.enqueue(job)
        cluster.tell(job.record())
        cluster.tell(job.status())

    def _gives_up(self, seq: int) -> None:
        cluster = self.cluster
        job = cluster.jobs.get(seq)
        if job is not None and job.state is WorkloadState.PENDING:
            cluster.queues[job.partition].remove(seq)
            cluster.finish(job, WorkloadState.CANCELLED)

    def _release_dependents(self, job: Job) -> None:
        for seq in self._waiting_for.pop(job.seq, ()):
            self._becomes_eligible(seq)
