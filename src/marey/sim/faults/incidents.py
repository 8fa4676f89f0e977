"""Faults in the life of the cluster: when they strike, what follows, and the truth about them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.model.errors import Conflict, InvalidInput, NotFound, shown
from marey.model.events import ClusterEventKind, Event
from marey.model.faults import FAILURES, FaultKind, Truth
from marey.model.inventory import GpuStatus
from marey.model.times import HOUR_MS, MINUTE_MS, SECOND_MS
from marey.model.workloads import WorkloadState
from marey.sim.cluster import Cluster
from marey.sim.config import FaultPlan
from marey.sim.faults import fault_effects
from marey.sim.faults.host_life import Hosts
from marey.sim.metrics import sample_kernels as k
from marey.sim.random_draws import RandomDraws
from marey.sim.scheduling.event_queue import QueuedEventKind
from marey.sim.scheduling.jobs import Job

XID_TEXT = {
    13: "Graphics engine exception",
    31: "GPU memory page fault",
    43: "GPU stopped processing",
    48: "Double-bit ECC error",
    63: "Row remapping recorded",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    94: "Contained memory error",
    119: "GSP RPC timeout",
}
# Of these the machine may recover while the workload goes on.
PASSING = (FaultKind.THROTTLED_GPU, FaultKind.SLOW_NODE, FaultKind.SLOW_FABRIC)


# Failures that no fault of the machine is behind.
_NATURAL_ENDS = {
    WorkloadState.FAILED: FaultKind.SCRIPT_ERROR,
    WorkloadState.TIMEOUT: FaultKind.TIME_LIMIT,
}


@dataclass(slots=True)
class _Open:
    kind: FaultKind
    workload: str
    gpus: tuple[str, ...]
    hosts: tuple[str, ...]
    start_ms: int
    end_ms: int | None = None


class Incidents:
    """Decides who falls ill, carries out what follows, and writes the truth down."""

    def __init__(self, cluster: Cluster, hosts: Hosts, plan: FaultPlan) -> None:
        self.cluster, self.hosts, self.plan = cluster, hosts, plan
        self.records: list[_Open] = []
        self._open: dict[int, list[_Open]] = {}
        cluster.on_start.append(self._job_starts)
        cluster.on_end.append(self._job_ends)
        cluster.on_event[QueuedEventKind.FAULT] = self._start_fault
        cluster.on_event[QueuedEventKind.RECOVERED] = self._recovers
        cluster.on_event[QueuedEventKind.NODE_LOST] = self._node_is_lost

    def truth(self, now_ms: int) -> list[Truth]:
        """Return every fault so far; one that goes on ends with the tick after now."""
        end_ms = now_ms + self.cluster.config.tick_ms
        return [
            Truth(
                kind=r.kind,
                workload=r.workload,
                gpus=r.gpus,
                hosts=r.hosts,
                start_ms=r.start_ms,
                end_ms=r.end_ms if r.end_ms is not None else end_ms,
            )
            for r in self.records
        ]

    def inject(self, kind: FaultKind, workload: str | None) -> str:
        """Let a fault strike now; without a name, the largest workload that can have it."""
        job = self._candidate(kind, workload)
        self._apply(job, kind)
        return job.id

    def _candidate(self, kind: FaultKind, workload: str | None) -> Job:
        running = [j for j in self.cluster.jobs.values() if j.state is WorkloadState.RUNNING]
        if workload is None:
            able = [j for j in running if j.fault is None and fault_effects.eligible(kind, j)]
            if not able:
                raise NotFound(f"No running workload can have the fault '{kind}' now.")
            return max(able, key=lambda j: (j.gpus, -j.seq))
        named = [j for j in running if j.id == workload]
        if not named:
            raise NotFound(f"No workload '{shown(workload)}' is running.")
        job = named[0]
        if job.fault is not None:
            raise Conflict(f"Workload {job.id} already has the fault '{job.fault}'.")
        if not fault_effects.eligible(kind, job):
            raise InvalidInput(
                f"Workload {job.id} ({job.kind}, {job.gpus} GPUs) cannot have the fault '{kind}'."
            )
        return job

    # -- beginnings -----------------------------------------------------------------------------

    def _job_starts(self, job: Job) -> None:
        job.wellness = job.regime
        dice = RandomDraws(self.cluster.config.seed, 91, job.seq)
        kind = job.planned_fault or fault_effects.choose(self.plan, job, dice)
        if kind is None:
            return
        if kind is FaultKind.TIME_LIMIT:
            # It would need longer than it may.
            job.duration_ms = max(job.duration_ms, 2 * job.limit_ms)
            job.fault = kind
            return
        if kind in fault_effects.FROM_START:
            case = self._case(job, kind, fresh=True)
            affected = fault_effects.shape(kind, case)
            job.regime, job.fault = case.regime, kind
            self._note(kind, job, affected)
            if kind is FaultKind.MEMORY_LEAK:
                self._plan_overflow(job)
            return
        role = job.regime.roles[0]
        ready = int(role[k.INIT_MS] + role[k.LOAD_MS]) + 4 * MINUTE_MS
        run = min(job.duration_ms, job.limit_ms)
        delay = min(ready + dice.between(0.1, 0.45) * max(0, run - ready), run * 0.8)
        self.cluster.at(self.cluster.now_ms + int(delay), QueuedEventKind.FAULT, job.seq, kind)

    def _plan_overflow(self, job: Job) -> None:
        full = fault_effects.leak_time_ms(job.regime)
        if full < job.duration_ms:
            job.duration_ms, job.outcome = full, WorkloadState.FAILED

    def _case(self, job: Job, kind: FaultKind, *, fresh: bool = False) -> fault_effects.FaultCase:
        hosts = self.cluster.hardware.gpu_host[job.gpu_numbers].astype(np.int64)
        number = list(FaultKind).index(kind)
        dice = RandomDraws(self.cluster.config.seed, 92, job.seq, number)
        return fault_effects.FaultCase(job, job.wellness.copy(), hosts, dice, fresh)

    def _note(self, kind: FaultKind, job: Job, affected: NDArray[np.bool_]) -> None:
        hardware = self.cluster.hardware
        gpus = job.gpu_numbers[affected]
        hosts = np.unique(hardware.gpu_host[gpus])
        record = _Open(
            kind,
            job.id,
            tuple(hardware.gpu_names[g] for g in gpus.tolist()),
            tuple(hardware.host_names[h] for h in hosts.tolist()),
            self.cluster.now_ms,
        )
        self.records.append(record)
        self._open.setdefault(job.seq, []).append(record)

    def _start_fault(self, seq: int, kind: FaultKind) -> None:
        job = self.cluster.jobs.get(seq)
        if job is not None and job.state is WorkloadState.RUNNING and job.fault is None:
            self._apply(job, kind)

    def _apply(self, job: Job, kind: FaultKind) -> None:
        job.fault = kind
        if kind is FaultKind.XID:
            self._xid(job)
        elif kind is FaultKind.NODE_FAILURE:
            self._node_dies(job)
        elif kind in FAILURES:
            self._fail(job, kind)
        else:
            self._start_job_fault(job, kind)

    # -- courses --------------------------------------------------------------------------------

    def _start_job_fault(self, job: Job, kind: FaultKind) -> None:
        cluster, case = self.cluster, self._case(job, kind)
        affected = fault_effects.shape(kind, case)
        left = max(0, job.planned_end_ms - cluster.now_ms)
        cluster.change(job, case.regime)
        self._note(kind, job, affected)
        if kind is FaultKind.STALLED:
            # Nobody looks at night: it hangs until someone notices or time runs out.
            hang = int(case.dice.between(0.6, 3.5) * HOUR_MS)
            cluster.schedule_end(job, cluster.now_ms + hang, WorkloadState.CANCELLED)
            return
        if kind is FaultKind.MEMORY_LEAK:
            full = fault_effects.leak_time_ms(case.regime)
            if full < left:
                cluster.schedule_end(job, cluster.now_ms + full, WorkloadState.FAILED)
            return
        rate = max(0.05, case.regime.rate / job.wellness.rate)
        cluster.schedule_end(job, cluster.now_ms + int(left / rate), job.planned_outcome)
        if kind is FaultKind.THROTTLED_GPU:
            self._tell_throttle(job, affected, case)
        if kind in PASSING and case.dice.chance(0.5):
            until = int(case.dice.between(0.75, 3.0) * HOUR_MS)
            cluster.at(cluster.now_ms + until, QueuedEventKind.RECOVERED, job.seq, kind)

    def _tell_throttle(
        self, job: Job, affected: NDArray[np.bool_], case: fault_effects.FaultCase
    ) -> None:
        hardware = self.cluster.hardware
        gpu = int(job.gpu_numbers[affected][0])
        clock = float(case.regime.gpu_states[affected, k.CLOCK][0])
        self.cluster.tell(
            Event(
                self.cluster.now_ms,
                ClusterEventKind.THROTTLE,
                host=hardware.host_names[int(hardware.gpu_host[gpu])],
                gpu=hardware.gpu_names[gpu],
                workload=job.id,
                value=clock,
                text="HW thermal slowdown",
            )
        )

    def _recovers(self, seq: int, kind: FaultKind) -> None:
        job = self.cluster.jobs.get(seq)
        if job is None or job.state is not WorkloadState.RUNNING or job.fault is not kind:
            return
        left = max(0, job.planned_end_ms - self.cluster.now_ms)
        rate = max(0.05, job.regime.rate / job.wellness.rate)
        self.cluster.change(job, job.wellness.copy())
        self._close(seq)
        end = self.cluster.now_ms + int(left * rate)
        self.cluster.schedule_end(job, end, job.planned_outcome)

    def _stall_other_ranks(self, job: Job) -> None:
        """Let ranks wait in a collective for a peer that has vanished."""
        case = self._case(job, FaultKind.STALLED)
        fault_effects.shape(FaultKind.STALLED, case)
        self.cluster.change(job, case.regime)

    def _xid(self, job: Job) -> None:
        cluster, hardware = self.cluster, self.cluster.hardware
        case = self._case(job, FaultKind.XID)
        victim = case.one_rank()
        gpu = int(job.gpu_numbers[victim][0])
        host = int(hardware.gpu_host[gpu])
        lot = case.dice.uniform()
        group = (
            fault_effects.XID_DEVICE
            if lot < 0.45
            else fault_effects.XID_PROGRAM
            if lot < 0.8
            else fault_effects.XID_SURVIVED
        )
        number = case.dice.pick(group)
        self._note(FaultKind.XID, job, victim)
        cluster.tell(
            Event(
                time_ms=cluster.now_ms,
                kind=ClusterEventKind.XID,
                host=hardware.host_names[host],
                gpu=hardware.gpu_names[gpu],
                workload=job.id,
                value=float(number),
                text=XID_TEXT[number],
            )
        )
        if group is fault_effects.XID_DEVICE:
            self._break_gpu(job, gpu=gpu, host=host, number=number, dice=case.dice)
        elif group is fault_effects.XID_PROGRAM:
            soon = int(case.dice.between(3.0, 30.0) * SECOND_MS)
            cluster.schedule_end(job, cluster.now_ms + soon, WorkloadState.FAILED)

    def _fail(self, job: Job, kind: FaultKind) -> None:
        """End the program by itself: an error in it, or no memory left."""
        cluster = self.cluster
        case = self._case(job, kind)
        soon = int(case.dice.between(2.0, 5.0) * SECOND_MS)
        if kind is FaultKind.SCRIPT_ERROR:
            job.planned_exit = case.dice.pick(fault_effects.EXIT_CODES)
            affected = case.everyone()
        elif kind is FaultKind.TIME_LIMIT:
            cluster.schedule_end(job, cluster.now_ms + soon, WorkloadState.TIMEOUT)
            self._note(kind, job, case.everyone())
            return
        elif case.dice.chance(0.5):
            # The host's memory: the kernel kills it, and the scheduler says so.
            job.planned_exit, job.end_reason = 137, "OutOfMemory"
            affected = case.everyone()
        else:
            affected = fault_effects.shape(kind, case)
            cluster.change(job, case.regime)
            soon = int(case.dice.between(45.0, 180.0) * SECOND_MS)
        self._note(kind, job, affected)
        cluster.schedule_end(job, cluster.now_ms + soon, WorkloadState.FAILED)

    def _break_gpu(self, job: Job, *, gpu: int, host: int, number: int, dice: RandomDraws) -> None:
        cluster, hardware = self.cluster, self.cluster.hardware
        cluster.gpu_states.silence(np.array([gpu]), cluster.now_ms)
        status = GpuStatus(hardware.gpu_names[gpu], True, f"XID {number}")
        cluster.failed_gpus[gpu] = status
        cluster.tell(status)
        self._stall_other_ranks(job)
        soon = int(dice.between(20.0, 150.0) * SECOND_MS)
        cluster.schedule_end(job, cluster.now_ms + soon, WorkloadState.FAILED)
        reason = f"XID {number} on GPU {gpu - int(hardware.host_first[host])}"
        self.hosts.drain(host, reason, int(dice.between(2.0, 8.0) * HOUR_MS))

    def _node_dies(self, job: Job) -> None:
        """Silence the host now; the scheduler notices when it has missed enough answers."""
        cluster, hardware = self.cluster, self.cluster.hardware
        case = self._case(job, FaultKind.NODE_FAILURE)
        host = int(case.hosts[case.dice.integer(len(case.hosts))])
        cluster.host_up[host] = False
        cluster.gpu_states.silence(self.hosts.gpus(host), cluster.now_ms)
        for seq in sorted(cluster.host_jobs[host]):
            other = cluster.jobs[seq]
            self._close(seq)
            other.fault = FaultKind.NODE_FAILURE
            self._note(FaultKind.NODE_FAILURE, other, hardware.gpu_host[other.gpu_numbers] == host)
            self._stall_other_ranks(other)
            # It cannot end by itself any more.
            other.end_token += 1
        delay = int(case.dice.between(60.0, 300.0) * SECOND_MS)
        repair = delay + int(case.dice.between(1.0, 8.0) * HOUR_MS)
        cluster.at(cluster.now_ms + delay, QueuedEventKind.NODE_LOST, host)
        self.hosts.plan_repair(host, repair)

    def _node_is_lost(self, host: int) -> None:
        cluster = self.cluster
        self.hosts.lose(host, "Not responding")
        for seq in sorted(cluster.host_jobs[host]):
            cluster.end(cluster.jobs[seq], WorkloadState.NODE_FAIL)

    # -- ends -----------------------------------------------------------------------------------

    def _close(self, seq: int) -> None:
        for record in self._open.pop(seq, ()):
            record.end_ms = self.cluster.now_ms

    def _job_ends(self, job: Job) -> None:
        if job.fault is not None and job.fault is not FaultKind.TIME_LIMIT:
            self._close(job.seq)
            return
        kind = _NATURAL_ENDS.get(job.state)
        if kind is not None and job.start_ms is not None and job.seq not in self._open:
            self._note(kind, job, np.ones(job.gpus, np.bool_))
            tick_ms = self.cluster.config.tick_ms
            self.records[-1].start_ms = max(job.start_ms, self.cluster.now_ms - tick_ms)
        self._close(job.seq)
