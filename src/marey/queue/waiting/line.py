"""The line and the hosts at one moment, as plain records that every question about waiting starts
from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from marey.model.names import pad_numbers


@dataclass(frozen=True, slots=True)
class Waiter:
    """A workload that waits; ``per_host`` GPUs on each of ``hosts`` hosts."""

    workload: str
    user: str
    project: str
    partition: str
    gpus: int
    per_host: int
    model: str
    limit_s: int | None
    submit_ms: int
    priority: float
    reason: str
    factors: Mapping[str, float] = field(default_factory=dict)
    # The scheduler's own estimate, where it gives one.
    estimate_ms: int | None = None
    reason_text: str = ""
    # What age is worth at most, and the age from which it counts fully; None where not known.
    age_weight: float | None = None
    max_age_s: float | None = None
    # What the scheduler says it depends on ("afterok:41:43"), and the reservation it asks for.
    dependency: str = ""
    reservation: str = ""

    @property
    def hosts(self) -> int:
        """Return how many hosts it needs."""
        return max(1, -(-self.gpus // max(self.per_host, 1)))


@dataclass(frozen=True, slots=True)
class Holder:
    """A running workload on one host: so many GPUs until its time limit (None: no limit)."""

    workload: str
    gpus: int
    ends_ms: int | None
    # The whole time limit, of which some has passed.
    limit_ms: int | None = None


@dataclass(frozen=True, slots=True)
class HostRoom:
    """A host: its GPUs, those free, whether it takes work, and who holds the rest."""

    host: str
    model: str
    partitions: tuple[str, ...]
    gpus: int
    free: int
    usable: bool
    reason: str = ""
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A workload that runs: whose share it uses, how large it is and since when."""

    workload: str
    account: str
    partition: str
    gpus: int
    start_ms: int
    limit_s: int | None
    user: str = ""

    @property
    def ends_ms(self) -> int | None:
        """Return when it ends at the latest; None without a time limit."""
        return None if self.limit_s is None else self.start_ms + self.limit_s * 1000


@dataclass(frozen=True, slots=True)
class Line:
    """Everybody who waits, in the scheduler's order, the hosts they wait for and what runs."""

    time_ms: int
    waiters: Sequence[Waiter]
    hosts: Sequence[HostRoom]
    running: Sequence[RunningJob] = ()

    def find(self, workload: str) -> tuple[int, Waiter] | None:
        """Return a workload's place (from 0) and itself, if it waits."""
        for place, waiter in enumerate(self.waiters):
            if waiter.workload == workload:
                return place, waiter
        return None


def sort_line(waiters: Sequence[Waiter]) -> list[Waiter]:
    """Return the waiters in the scheduler's order: priority, who came first, the lower number."""
    return sorted(waiters, key=lambda w: (-w.priority, w.submit_ms, pad_numbers(w.workload)))


def list_fitting_hosts(line: Line, waiter: Waiter) -> list[HostRoom]:
    """Return the hosts that a workload's partition and GPU model allow, full ones included."""
    return [
        host
        for host in line.hosts
        if (not waiter.partition or not host.partitions or waiter.partition in host.partitions)
        and (not waiter.model or waiter.model.lower() in host.model.lower())
    ]


def find_ready_ms(host: HostRoom, per_host: int, now_ms: int) -> int | None:
    """Return when a host has so many GPUs free by the time limits; None where no limit tells."""
    free = host.free
    if free >= per_host:
        return now_ms
    bounded = sorted(
        (h for h in host.holders if h.ends_ms is not None), key=lambda h: h.ends_ms or 0
    )
    for holder in bounded:
        free += holder.gpus
        if free >= per_host:
            return max(holder.ends_ms or 0, now_ms)
    return None
