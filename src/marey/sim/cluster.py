"""The cluster's life as discrete events: submissions, passes of the scheduler, ends, faults.

Everything here depends on seed, configuration and the commands given, never on how far time is
advanced at once: events carry their own moments, and passes run on a fixed grid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.model.events import ClusterEventKind, Event
from marey.model.inventory import GpuStatus
from marey.model.times import HOUR_MS
from marey.model.workloads import Allocation, WorkloadState
from marey.sim.config import Placement, Policy, SimConfig
from marey.sim.hardware import Hardware
from marey.sim.metrics import sample_kernels as k
from marey.sim.metrics.behaviour import healthy
from marey.sim.metrics.gpu_state import GpuStates, Regime
from marey.sim.metrics.progress import ProgressTracks
from marey.sim.passes.host_room import WHOLE_GPU
from marey.sim.scheduling.event_queue import EventQueue, QueuedEventKind
from marey.sim.scheduling.gpu_shares import free_gpus, hand_over
from marey.sim.scheduling.jobs import Job
from marey.sim.scheduling.people import User
from marey.sim.scheduling.planned_pass import Reservation, run_planned
from marey.sim.scheduling.scheduler_pass import (
    FIFO_FIRST,
    NEVER_MS,
    QOS_FACTOR,
    Queue,
    Reason,
    priorities,
    run_pass,
)

PASS_EVERY_MS, PASS_PHASE_MS = 15_000, 7_300
BACKFILL_DEPTH = 400
USE_HALF_LIFE_MS = 2 * 24 * HOUR_MS
# A waiting workload's priority is told anew when it has moved this far.
REPORTED_PRIORITY = 100.0
ANNOUNCED_GPUS = 16


class Cluster:
    """Hardware, queues and workloads, advanced from event to event."""

    def __init__(self, config: SimConfig, hardware: Hardware, users: tuple[User, ...]) -> None:
        self.config, self.hardware, self.users = config, hardware, users
        self.policy, self.placement, self.backfill = (
            config.policy,
            config.placement,
            config.backfill,
        )
        self.now_ms = config.start_ms - config.warmup_ms
        self.gpu_states = GpuStates(hardware, config)
        self.tracks = ProgressTracks()
        # What has happened since the records were last taken: (moment, record).
        self.log: list[tuple[int, Any]] = []
        self.jobs: dict[int, Job] = {}
        self.queues = [Queue() for _ in hardware.parts]
        self.until = np.zeros(hardware.gpus, np.int64)
        self.host_up = np.ones(len(hardware.host_names), np.bool_)
        self.host_jobs: list[set[int]] = [set() for _ in hardware.host_names]
        self.failed_gpus: dict[int, GpuStatus] = {}
        # Thousandths of each GPU that are left, who shares it, and hosts that are reserved.
        self.gpu_left = np.full(hardware.gpus, WHOLE_GPU, np.int64)
        self.sharers: dict[int, list[Job]] = {}
        self.reserved: list[Reservation] = []
        self._plans = config.planned or config.preemption
        self.user_gpus = [np.zeros(len(users), np.int64) for _ in hardware.parts]
        self._use = np.zeros(len(users))
        self._use_ms = self.now_ms
        self._agenda = EventQueue()
        self._pass_at = [-1] * len(hardware.parts)
        # (moment, workload, reserved moment) of each pass that left someone waiting, on request.
        self.reservations: list[tuple[int, int, int]] | None = None
        # Others take part in its life: they handle kinds of happenings, and hear of workloads.
        self.on_start: list[Callable[[Job], None]] = []
        self.on_end: list[Callable[[Job], None]] = []
        self.on_event: dict[QueuedEventKind, Callable[..., None]] = {
            QueuedEventKind.PASS: self._pass,
            QueuedEventKind.END: self._end,
            QueuedEventKind.PAUSE: self._pause,
        }

    # -- events ---------------------------------------------------------------------------------

    def at(self, time_ms: int, what: QueuedEventKind, *details: Any) -> None:
        """Plan what will happen at this moment."""
        self._agenda.plan(time_ms, what, details)

    def run_until(self, time_ms: int) -> None:
        """Let everything happen up to and including this moment."""
        while (due := self._agenda.due(time_ms)) is not None:
            self.now_ms, what, details = due
            self.on_event[what](*details)
        self.now_ms = max(self.now_ms, time_ms)

    def tell(self, record: Any) -> None:
        """Note a record for whoever observes."""
        self.log.append((self.now_ms, record))

    # -- scheduling -----------------------------------------------------------------------------

    def enqueue(self, job: Job) -> None:
        """Let the workload start as soon as the scheduler finds room."""
        job.reason = Reason.PRIORITY
        self._plans |= job.asks_more
        job.priority = FIFO_FIRST - job.seq if self.policy is Policy.FIFO else 0.0
        self.queues[job.partition].push(
            seq=job.seq,
            gpus=job.gpus,
            per_host=job.per_host,
            limit_ms=job.limit_ms,
            submit_ms=job.submit_ms,
            user=job.user_number,
            qos=QOS_FACTOR.get(job.qos, 0.2),
            reason=int(job.reason),
            reported=job.priority,
        )
        self.call_pass(job.partition)

    def call_pass(self, partition: int) -> None:
        """Ask the scheduler to look at this partition at its next turn."""
        if self._pass_at[partition] < self.now_ms:
            turn = -((PASS_PHASE_MS - self.now_ms) // PASS_EVERY_MS) * PASS_EVERY_MS + PASS_PHASE_MS
            self._pass_at[partition] = turn
            self.at(turn, QueuedEventKind.PASS, partition)

    def user_cap(self, partition: int) -> int:
        """Return how many GPUs of a partition one user may hold (the quality of
        service's limit).
        """
        part = self.hardware.parts[partition]
        if part.plan.user_gpus is not None:
            return part.plan.user_gpus
        if part.plan.min_gpus > 8:
            return max(part.gpu_count // 2, part.plan.min_gpus)
        return max(2 * part.plan.gpus_per_host, part.gpu_count // 8)

    def shares(self) -> NDArray[np.float64]:
        """Return the rest of each user's fair share.

        1 for none used, falling with decayed use.
        """
        passed = self.now_ms - self._use_ms
        if passed > 0:
            holds = sum(self.user_gpus, np.zeros(len(self.users), np.int64))
            self._use = self._use * 0.5 ** (passed / USE_HALF_LIFE_MS) + holds * (passed / HOUR_MS)
            self._use_ms = self.now_ms
        total = self._use.sum()
        if total <= 0.0:
            return np.ones(len(self.users))
        fair = 3.0 / len(self.users)
        left: NDArray[np.float64] = 2.0 ** -(self._use / total / fair)
        return left

    def _pass(self, partition: int) -> None:
        self._pass_at[partition] = -1
        queue, part = self.queues[partition], self.hardware.parts[partition]
        waiting = queue.count
        if not waiting:
            return
        share = self.shares()[queue.view("user")]
        if self.policy is Policy.FIFO:
            priority = FIFO_FIRST - queue.view("seq")
            order = np.arange(waiting)
        else:
            priority = priorities(
                self.now_ms,
                submit_ms=queue.view("submit_ms"),
                gpus=queue.view("gpus"),
                share=share,
                qos=queue.view("qos"),
                partition_gpus=part.gpu_count,
            )
            order = np.argsort(-priority, kind="stable")
        if self._plans:
            run_planned(self, partition, order, priority)
            return
        reasons = np.zeros(waiting, np.int64)
        slots, ends = np.empty(waiting, np.int64), np.empty(waiting, np.int64)
        started = np.empty(part.gpu_count, np.int64)
        hosts = slice(part.first_host, part.first_host + part.host_count)
        count, head, shadow = run_pass(
            self.now_ms,
            order,
            queue.view("gpus"),
            queue.view("per_host"),
            queue.view("limit_ms"),
            queue.view("user"),
            self.user_gpus[partition],
            self.user_cap(partition),
            self.hardware.host_first[hosts],
            self.hardware.host_size[hosts],
            self.host_up[hosts],
            self.until,
            self.placement is Placement.LEAST_ALLOCATED,
            self.backfill,
            BACKFILL_DEPTH,
            reasons,
            slots,
            ends,
            started,
        )
        if self.reservations is not None and head >= 0:
            self.reservations.append((self.now_ms, int(queue.view("seq")[head]), int(shadow)))
        seqs = queue.view("seq").tolist()
        self.tell_waiting(queue, reasons, priority)
        begin = 0
        for slot, end in zip(slots[:count].tolist(), ends[:count].tolist(), strict=True):
            job = self.jobs[seqs[slot]]
            job.priority = float(priority[slot])
            self.start(job, np.sort(started[begin:end]))
            begin = end
        if count:
            queue.drop(reasons != 0)

    def list_running(self, partition: int) -> list[Job]:
        """Return the running jobs of a partition, in the order of their numbers."""
        return [
            job
            for job in self.jobs.values()
            if job.partition == partition and job.state is WorkloadState.RUNNING
        ]

    def reserve(self, reservation: Reservation) -> None:
        """Keep hosts for a user or for nobody; nothing that would overlap starts there."""
        self.reserved.append(reservation)
        self._plans = True
        for partition in range(len(self.hardware.parts)):
            self.at(max(self.now_ms, reservation.end_ms), QueuedEventKind.PASS, partition)

    def tell_waiting(
        self, queue: Queue, reasons: NDArray[np.int64], priority: NDArray[np.float64]
    ) -> None:
        """Tell of those that wait what has changed: reasons, and priorities that moved far."""
        moved = np.abs(priority - queue.view("reported")) >= REPORTED_PRIORITY
        news = np.flatnonzero(((reasons != queue.view("reason")) | moved) & (reasons != 0))
        queue.view("reason")[news] = reasons[news]
        queue.view("reported")[news] = priority[news]
        for slot in news.tolist():
            job = self.jobs[int(queue.view("seq")[slot])]
            job.reason, job.priority = Reason(int(reasons[slot])), float(priority[slot])
            self.tell(job.status())

    # -- running --------------------------------------------------------------------------------

    def start(self, job: Job, gpus: NDArray[np.int64]) -> None:
        """Start the workload on these GPUs now."""
        job.state, job.reason = WorkloadState.RUNNING, Reason.NONE
        job.start_ms, job.gpu_numbers = self.now_ms, gpus
        for host in np.unique(self.hardware.gpu_host[gpus]).tolist():
            self.host_jobs[host].add(job.seq)
        model = self.hardware.parts[job.partition].model
        job.regime = healthy(job, self.gpu_states, model, self.config.seed)
        # The part that knows faults may change the regime before anything is seen of it.
        for hear in self.on_start:
            hear(job)
        self.gpu_states.begin(gpus, job.regime, job.seq, self.now_ms)
        self.tracks.begin(job, job.regime, self.now_ms, model.speed)
        self.schedule_end(job, self.now_ms + job.duration_ms, job.outcome)
        self.tell(job.record())
        self.tell(job.status())
        self.tell(self.allocations(job))
        if job.gpus >= ANNOUNCED_GPUS:
            self._announce(job)

    def allocations(self, job: Job) -> tuple[Allocation, ...]:
        """Return which GPUs a workload holds, by rank."""
        names, hosts = self.hardware.gpu_names, self.hardware.gpu_host[job.gpu_numbers]
        local = np.arange(job.gpus) - np.searchsorted(hosts, hosts)
        return tuple(
            Allocation(job.id, names[gpu], rank, own)
            for rank, (gpu, own) in enumerate(
                zip(job.gpu_numbers.tolist(), local.tolist(), strict=True)
            )
        )

    def schedule_end(self, job: Job, time_ms: int, outcome: WorkloadState) -> None:
        """Plan the workload's end then, or at its time limit; any earlier plan is forgotten."""
        assert job.start_ms is not None
        limit = job.start_ms + job.limit_ms
        if time_ms > limit:
            time_ms, outcome = limit, WorkloadState.TIMEOUT
        job.end_token += 1
        job.planned_end_ms, job.planned_outcome = time_ms, outcome
        self.at(max(time_ms, self.now_ms), QueuedEventKind.END, job.seq, job.end_token, outcome)

    def change(self, job: Job, regime: Regime) -> None:
        """Change how the workload behaves from now on."""
        regime.roles[:, k.REGIME_MS] = self.now_ms
        old, job.regime = job.regime, regime
        alive = ~self.gpu_states.is_silent(job.gpu_numbers)
        if alive.all():
            self.gpu_states.begin(job.gpu_numbers, regime, job.seq, self.now_ms)
        else:
            some = Regime(
                regime.roles, regime.role_of[alive], regime.gpu_states[alive], regime.rate
            )
            self.gpu_states.begin(job.gpu_numbers[alive], some, job.seq, self.now_ms)
            regime.rows = some.rows
        self.gpu_states.retire(old)
        self.tracks.begin(job, regime, self.now_ms, self.hardware.parts[job.partition].model.speed)

    def _end(self, seq: int, token: int, outcome: WorkloadState) -> None:
        job = self.jobs.get(seq)
        if job is not None and job.end_token == token and job.state is WorkloadState.RUNNING:
            self.end(job, outcome)

    def end(self, job: Job, outcome: WorkloadState) -> None:
        """End the workload now; its GPUs are free unless they are broken."""
        gpus = free_gpus(self, job)
        for gpu in gpus.tolist():
            if gpu in self.failed_gpus:
                self.until[gpu] = NEVER_MS
        for host in np.unique(self.hardware.gpu_host[job.gpu_numbers]).tolist():
            self.host_jobs[host].discard(job.seq)
        self.user_gpus[job.partition][job.user_number] -= job.gpus
        silent = self.gpu_states.is_silent(gpus)
        self.gpu_states.rest(gpus[~silent], self.now_ms)
        if silent.any():
            self.gpu_states.release(gpus[silent], self.now_ms)
        self.gpu_states.retire(job.regime)
        hand_over(self, job)
        self.tracks.end(job.seq, self.now_ms)
        self.finish(job, outcome)
        self.call_pass(job.partition)

    def finish(self, job: Job, outcome: WorkloadState) -> None:
        """Close the workload, whether it ran or not."""
        job.state, job.end_ms, job.reason = outcome, self.now_ms, Reason.NONE
        failed = outcome is WorkloadState.FAILED and job.planned_exit is not None
        job.exit_code = job.planned_exit if failed else _EXIT_CODES[outcome]
        job.end_reason = job.end_reason or _END_REASONS.get(outcome, "")
        self.tell(job.record())
        self.tell(job.status())
        del self.jobs[job.seq]
        for hear in self.on_end:
            hear(job)

    def _announce(self, job: Job) -> None:
        role = job.regime.roles[0]
        pause = role[k.EVAL_MS] + role[k.CHECKPOINT_MS]
        if pause > 0.0:
            warm = role[k.INIT_MS] + role[k.LOAD_MS]
            first = self.now_ms + int(warm + role[k.TRAIN_MS])
            period = int(role[k.TRAIN_MS] + pause)
            self.at(first, QueuedEventKind.PAUSE, job.seq, period, int(role[k.EVAL_MS]))

    def _pause(self, seq: int, period: int, evaluation: int, saving: bool = False) -> None:
        job = self.jobs.get(seq)
        if job is None or job.state is not WorkloadState.RUNNING or job.regime.rate <= 0.0:
            return
        if evaluation and not saving:
            self.tell(Event(self.now_ms, ClusterEventKind.EVALUATION, workload=job.id))
            self.at(self.now_ms + evaluation, QueuedEventKind.PAUSE, seq, period, evaluation, True)
            return
        self.tell(Event(self.now_ms, ClusterEventKind.CHECKPOINT, workload=job.id))
        next_pause = self.now_ms + period - (evaluation if saving else 0)
        self.at(next_pause, QueuedEventKind.PAUSE, seq, period, evaluation)


# As Slurm words them.
_END_REASONS = {
    WorkloadState.FAILED: "NonZeroExitCode",
    WorkloadState.TIMEOUT: "TimeLimit",
    WorkloadState.NODE_FAIL: "NodeDown",
}
_EXIT_CODES = {
    WorkloadState.COMPLETED: 0,
    WorkloadState.FAILED: 1,
    WorkloadState.CANCELLED: 15,
    WorkloadState.TIMEOUT: 15,
    WorkloadState.NODE_FAIL: 1,
}
