"""From observations to the loop: the feed knows who runs where, and tells it in order."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import replace

from marey.model.inventory import Gpu
from marey.model.names import parse_gpu_id
from marey.model.observation import Observation
from marey.model.times import DAY_MS
from marey.model.workloads import Allocation, Workload, WorkloadState, WorkloadStatus
from marey.rules.engine.allocations import FOREVER, Facts, HeldGpu
from marey.rules.engine.evaluation_loop import EvaluationLoop
from marey.rules.engine.findings import FindingChange

FAILURES = (WorkloadState.FAILED, WorkloadState.NODE_FAIL)
FAILURES_KEPT_MS = DAY_MS


class Failures:
    """How often the same work of the same person failed in the last day."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], deque[int]] = defaultdict(deque)

    def add(self, user: str, name: str, time_ms: int) -> None:
        """Count one failed run."""
        if user and name:
            self._times[user, name].append(time_ms)

    def count(self, user: str, name: str, now_ms: int) -> int:
        """Return failed runs in the day before."""
        times = self._times.get((user, name))
        if not times:
            return 0
        while times and times[0] <= now_ms - FAILURES_KEPT_MS:
            times.popleft()
        if not times:
            del self._times[user, name]
            return 0
        return len(times)


class ObservationFeed:
    """Keeps what observations say of workloads and GPUs, and admits workloads to the loop."""

    def __init__(self, loop: EvaluationLoop) -> None:
        self.loop = loop
        self.gpus: dict[str, Gpu] = {}
        self.workloads: dict[str, Workload] = {}
        self.statuses: dict[str, WorkloadStatus] = {}
        self.allocations: dict[str, tuple[Allocation, ...]] = {}
        self.failures = Failures()

    def observe(self, observation: Observation) -> list[FindingChange]:
        """Take one observation; returns the findings that opened or closed by it."""
        now_ms = observation.time_ms
        changes = self.loop.advance(now_ms - 1)
        touched = self._take_records(observation)
        for workload in touched:
            self._tell(workload, now_ms)
        for report in observation.progress:
            self.loop.progress(report.workload, report.time_ms)
        for event in observation.events:
            self.loop.note(event)
        for batch in observation.samples:
            changes += self.loop.take(batch, now_ms)
        return changes + self.loop.advance(now_ms)

    def _take_records(self, observation: Observation) -> set[str]:
        self.gpus |= {gpu.gpu: gpu for gpu in observation.gpus}
        touched: set[str] = set()
        if observation.complete:
            present = {w.workload for w in observation.workloads}
            for gone in set(self.allocations) - present:
                self.statuses[gone] = WorkloadStatus(gone, WorkloadState.COMPLETED)
                touched.add(gone)
        for workload in observation.workloads:
            self.workloads[workload.workload] = workload
            touched.add(workload.workload)
        for status in observation.statuses:
            self.statuses[status.workload] = status
            touched.add(status.workload)
        for name, group in _group_by_workload(observation.allocations).items():
            self._take_moves(name, group, observation.time_ms)
            touched.add(name)
        return touched

    def _take_moves(self, name: str, group: list[Allocation], now_ms: int) -> None:
        held = {a.gpu for a in group}
        for lost in self.allocations.get(name, ()):
            if lost.gpu not in held:
                self.loop.evaluator.allocations.leave(name, lost.gpu, now_ms)
        self.allocations[name] = tuple(group)

    def _tell(self, name: str, now_ms: int) -> None:
        status, workload = self.statuses.get(name), self.workloads.get(name)
        if status is None or workload is None or name not in self.allocations:
            if status is not None and status.state.ended:
                self._end_workload(name, status, now_ms)
            return
        facts = facts_of(
            workload, status, self.failures.count(workload.user, workload.name, now_ms)
        )
        if status.state is WorkloadState.RUNNING:
            self.loop.admit(facts, self.list_held_gpus(name, facts.start_ms or now_ms))
        elif status.state.ended:
            end_ms = workload.end_ms if workload.end_ms is not None else now_ms
            if name in self.loop.evaluator.allocations.by_name:
                self.loop.admit(_set_end(facts, end_ms), ())
            self._end_workload(name, status, now_ms)

    def _end_workload(self, name: str, status: WorkloadStatus, now_ms: int) -> None:
        workload = self.workloads.pop(name, None)
        if workload and status.state in FAILURES:
            self.failures.add(workload.user, workload.name, now_ms)
        self.statuses.pop(name, None)
        self.allocations.pop(name, None)

    def list_held_gpus(self, name: str, start_ms: int) -> list[HeldGpu]:
        """Return the GPUs that a workload holds, with what is known of each."""
        return [find_held_gpu(a, self.gpus.get(a.gpu), start_ms) for a in self.allocations[name]]


def _group_by_workload(allocations: Iterable[Allocation]) -> dict[str, list[Allocation]]:
    groups: dict[str, list[Allocation]] = defaultdict(list)
    for allocation in allocations:
        groups[allocation.workload].append(allocation)
    return groups


def _set_end(facts: Facts, end_ms: int) -> Facts:
    return facts if facts.end_ms is not None else replace(facts, end_ms=end_ms)


def facts_of(workload: Workload, status: WorkloadStatus, failures: int = 0) -> Facts:
    """Return the facts of a workload for rules; a running one has no end yet."""
    ended = status.state.ended
    return Facts(
        workload=workload.workload,
        user=workload.user,
        project=workload.project,
        partition=workload.partition,
        qos=workload.qos,
        experiment=workload.experiment,
        name=workload.name,
        state=status.state.value,
        submit_ms=workload.submit_ms,
        start_ms=workload.start_ms,
        end_ms=workload.end_ms if ended else None,
        time_limit_s=workload.time_limit_s,
        failures=failures,
    )


def find_held_gpu(
    allocation: Allocation, gpu: Gpu | None, from_ms: int, to_ms: int | None = None
) -> HeldGpu:
    """Return one GPU in a workload, from when to when (None: not known yet)."""
    return HeldGpu(
        gpu=allocation.gpu,
        host=gpu.host if gpu else parse_gpu_id(allocation.gpu).host,
        from_ms=from_ms,
        to_ms=FOREVER if to_ms is None else to_ms,
        global_rank=allocation.global_rank,
        local_rank=allocation.local_rank,
        share=allocation.share,
        model=gpu.model if gpu else "",
        power_limit_w=gpu.power_limit_w if gpu else None,
        memory_mib=gpu.memory_mib if gpu else None,
    )
