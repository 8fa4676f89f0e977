"""Slurm as a source: gentle to its controller, and honest while it is away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from marey.model.errors import MareyError, Unavailable
from marey.model.inventory import Gpu, Partition
from marey.model.names import DEFAULT_CLUSTER
from marey.model.observation import Observation
from marey.model.times import HOUR_MS, MINUTE_MS
from marey.sources.slurm.factors import Factors
from marey.sources.slurm.history import PastJob, list_ended_jobs
from marey.sources.slurm.jobs import SeenJob
from marey.sources.slurm.reservations import make_reservation
from marey.sources.slurm.slurm_json import Job, Node, SlurmReservation
from marey.sources.slurm.snapshot import Snapshot, SnapshotReader
from marey.sources.slurm.token import TokenExpired
from marey.sources.slurm.versions import About

SELDOM_MS = 10 * MINUTE_MS
OFTEN_MS = MINUTE_MS
MOST_BACKOFF_MS = 5 * MINUTE_MS
# Forgotten jobs that one question to accounting names.
MOST_VANISHED = 500


T = TypeVar("T")


@dataclass(slots=True)
class SideQuestion(Generic[T]):
    """Asked seldom; one that fails keeps its last answer, says why, and waits like the others."""

    put: Callable[[], T]
    every_ms: int
    answer: T
    error: str = ""
    _due_ms: int = 0

    def ask(self, now_ms: int) -> bool:
        """Ask if it is time; whether it was asked."""
        if now_ms < self._due_ms:
            return False
        self._due_ms = now_ms + self.every_ms
        try:
            self.answer = self.put()
            self.error = ""
        except TokenExpired:
            raise
        except MareyError as error:
            self.error = str(error)
        return True


class Controller(Protocol):
    """A way to ask Slurm: one query per call."""

    def nodes(self) -> list[Node]: ...
    def jobs(self) -> list[Job]: ...
    def partitions(self) -> list[Partition]: ...
    def reservations(self) -> list[SlurmReservation]: ...
    def factors(self) -> Mapping[int, Factors] | None: ...
    def shares(self) -> Mapping[str, float]: ...
    def about(self) -> About: ...
    def ended(self, jobs: Sequence[int], since_ms: int) -> list[PastJob]: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SlurmRules:
    """How often the controller may be asked; ``gpu_only`` leaves out what uses no GPU."""

    cluster: str = DEFAULT_CLUSTER
    least_interval_ms: int = 10_000
    gpu_only: bool = True


class SlurmSource:
    """One query per kind and poll, never more often than allowed, and less while Slurm is away.

    Nodes and jobs are asked at every poll, reservations and priority factors once a minute,
    partitions, shares and the controller's own facts every ten minutes.
    """

    def __init__(
        self,
        name: str,
        controller: Controller,
        rules: SlurmRules,
        measured: Callable[[], Iterable[Gpu]] = tuple,
    ) -> None:
        self._measured = measured
        self._name = name
        self._controller = controller
        self._rules = rules
        self._reader = SnapshotReader(rules.cluster, rules.gpu_only)
        self._partitions: tuple[Partition, ...] = ()
        self._partitions_due_ms = 0
        self._about = SideQuestion(controller.about, SELDOM_MS, About())
        self._reservations = SideQuestion[Sequence[SlurmReservation]](
            controller.reservations, OFTEN_MS, ()
        )
        self._factors = SideQuestion[Mapping[int, Factors] | None](controller.factors, OFTEN_MS, {})
        self._shares = SideQuestion[Mapping[str, float]](controller.shares, SELDOM_MS, {})
        self._ahead_ms = 0
        self._history_error = ""
        self._answered_ms: int | None = None
        self._due_ms = 0
        self._failures = 0
        self._error = Unavailable()

    @property
    def name(self) -> str:
        """What the sources page calls it."""
        return self._name

    def poll(self, now_ms: int) -> Sequence[Observation]:
        """Return the whole cluster.

        Nothing where it is too soon, ``Unavailable`` while Slurm is away.
        """
        if now_ms < self._due_ms:
            if self._failures:
                wait_s = (self._due_ms - now_ms) / 1000
                text = f"{self._error} Next attempt in {wait_s:.0f} s."
                raise Unavailable(text, code=self._error.code)
            return []
        try:
            observed = self._observe(now_ms)
        except TokenExpired:
            # Nobody was asked, so nobody needs a pause: a new token works at once.
            raise
        except MareyError as error:
            self._failures += 1
            wait_ms = self._rules.least_interval_ms * 2 ** min(self._failures - 1, 16)
            self._due_ms = now_ms + min(wait_ms, MOST_BACKOFF_MS)
            self._error = Unavailable(str(error), code=error.code)
            raise
        self._failures, self._due_ms = 0, now_ms + self._rules.least_interval_ms
        self._answered_ms = now_ms
        return [observed]

    def _observe(self, now_ms: int) -> Observation:
        began = time.monotonic()
        if now_ms >= self._partitions_due_ms:
            self._partitions = tuple(self._controller.partitions())
            self._partitions_due_ms = now_ms + SELDOM_MS
        # Nodes first: a job that starts in between then holds GPUs of nodes that are known.
        nodes = self._controller.nodes()
        jobs = self._controller.jobs()
        if self._about.ask(now_ms):
            self._compare_clocks(now_ms + round((time.monotonic() - began) * 1000))
        self._reservations.ask(now_ms)
        self._factors.ask(now_ms)
        self._shares.ask(now_ms)
        snapshot = Snapshot(
            nodes,
            jobs,
            self._partitions,
            reservations=tuple(
                make_reservation(reported, self._ahead_ms) for reported in self._reservations.answer
            ),
            factors=self._factors.answer or {},
            shares=self._shares.answer,
            ahead_ms=self._ahead_ms,
        )
        observed = self._reader.observe(snapshot, now_ms, self._measured())
        return self._add_ends(observed, now_ms)

    def _compare_clocks(self, now_ms: int) -> None:
        if not self._about.error:
            self._ahead_ms = self._about.answer.ahead_ms(now_ms, self._ahead_ms)

    def _add_ends(self, observed: Observation, now_ms: int) -> Observation:
        """Add accounting's records of jobs that the controller forgot before their end was seen."""
        vanished = self._reader.take_vanished()
        if not vanished:
            return observed
        ids = sorted({job for job, _ in vanished.values()})[:MOST_VANISHED]
        since_ms = (self._answered_ms or now_ms) - HOUR_MS + self._ahead_ms
        try:
            reported = self._controller.ended(ids, since_ms)
            past = list(list_ended_jobs(reported, gpu_only=False, ahead_ms=self._ahead_ms))
            self._history_error = ""
        except MareyError as error:
            self._history_error = str(error)
            return observed
        known = [job for job in past if job.workload.workload in vanished]
        ends = [_end_job(vanished[job.workload.workload][1], job) for job in known]
        return replace(
            observed,
            workloads=(*observed.workloads, *(job.workload for job in ends)),
            statuses=(*observed.statuses, *(job.status for job in ends)),
        )

    def details(self) -> Mapping[str, Any]:
        """Return the details that the sources page shows beside the state.

        Version, privacy, clock, what is missing.
        """
        about = self._about.answer
        reported: dict[str, Any] = {
            "version": about.version,
            "asked_again_ms": self._due_ms if self._failures else None,
            "most_questions_per_minute": self.most_per_minute(),
        }
        if about.private:
            reported["hidden"] = f"PrivateData keeps from others than operators: {about.hides()}."
        if self._ahead_ms:
            way = "ahead of" if self._ahead_ms > 0 else "behind"
            seconds = abs(self._ahead_ms) // 1000
            reported["clock"] = f"Slurm's clock is {seconds} s {way} ours; its times are put right."
        missing = {
            "about": self._about.error,
            "reservations": self._reservations.error,
            "priority_factors": self._factors.error
            or ("slurmrestd does not tell them" if self._factors.answer is None else ""),
            "shares": self._shares.error,
            "history": self._history_error,
        }
        return {**reported, "not_told": {what: why for what, why in missing.items() if why}}

    def most_per_minute(self) -> float:
        """Return the stated limit.

        How much Slurm is asked at most in a minute, all kinds together.
        """
        every_poll = 3 * MINUTE_MS / self._rules.least_interval_ms
        return round(every_poll + 2 * MINUTE_MS / OFTEN_MS + 3 * MINUTE_MS / SELDOM_MS, 1)

    def close(self) -> None:
        """Close the connection to the controller."""
        self._controller.close()


def _end_job(seen: SeenJob, past: SeenJob) -> SeenJob:
    """Return the job as it was last seen, with its end as accounting tells it."""
    workload = replace(
        seen.workload,
        start_ms=seen.workload.start_ms or past.workload.start_ms,
        end_ms=past.workload.end_ms,
        exit_code=past.workload.exit_code,
    )
    status = replace(past.status, priority=seen.status.priority)
    return SeenJob(workload, status)
