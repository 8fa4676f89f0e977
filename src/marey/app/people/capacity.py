"""Room for work over time, waits by size, and what a change of policy did to both."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow.compute as pc

from marey.app.queries.table_queries import query_of, within
from marey.app.queries.workspace import Workspace
from marey.app.queue.live_line import read_line
from marey.live.summary import SummaryLog
from marey.model.documents import Document
from marey.model.errors import InvalidInput
from marey.model.events import ClusterEventKind
from marey.model.names import DEFAULT_CLUSTER
from marey.model.protocols import WorkloadQuery
from marey.model.times import DAY_MS, HOUR_MS
from marey.queue.waiting.free_room import FreeRoom, measure_free_room

POINT_BOUNDS = (2, 96)
# A moment costs the reading of the whole cluster: so many of one cluster are remembered.
REMEMBERED = 1000
JOBS_LIMIT = 200_000
EVENTS_READ = 200_000
CHANGES_LISTED = 20
# What a policy change is compared over, at most, on either side.
COMPARED_MS = 6 * HOUR_MS
SIZES = ("1", "2-8", "9-64", "65+")


class RoomOfType(Document):
    """What is free of one GPU type in one partition."""

    partition: str
    model: str
    gpus: int
    free: int
    whole_hosts_free: int
    largest_gang: int
    # Share (0-1) of free GPUs that the waiting requests cannot use where they are.
    stranded_share: float


class CapacityStep(Document):
    """The room at one moment."""

    time_ms: int
    gpus: int
    free: int
    whole_hosts_free: int
    largest_gang: int
    stranded_share: float
    waiting: int
    waiting_gpus: int
    rooms: list[RoomOfType]


class WaitStep(Document):
    """Waits of the jobs that started in one step of time; null where none did."""

    time_ms: int
    median_wait_s: list[float | None]


class WaitOfKind(Document):
    """How long jobs of one resource type or size wait."""

    kind: str
    started: int
    waiting: int
    # Of those that started, and of those that still wait as long as they have.
    median_wait_s: float | None
    longest_waiting_s: float | None


class PolicyFigures(Document):
    """The cluster before or after a change."""

    from_ms: int
    to_ms: int
    whole_hosts_free: float | None
    largest_gang: float | None
    stranded_share: float | None
    waits: list[WaitOfKind]


class PolicyChange(Document):
    """A change of the scheduler's policy, with equal spans before and after it."""

    time_ms: int
    text: str
    before: PolicyFigures
    after: PolicyFigures


class CapacityPage(Document):
    """Room, waits and policy changes over a span."""

    from_ms: int
    to_ms: int
    steps: list[CapacityStep]
    # Waits by resource type, and over time by size; the order of `sizes` is that of the steps.
    types: list[WaitOfKind]
    sizes: list[WaitOfKind]
    waits: list[WaitStep]
    changes: list[PolicyChange]


_remembered: MutableMapping[SummaryLog, dict[tuple[str, int], CapacityStep]] = WeakKeyDictionary()


@dataclass(frozen=True)
class AskCapacity:
    """How much room there was, how long work waited, and what policy changes did."""

    cluster: str = DEFAULT_CLUSTER
    from_ms: int | None = None
    to_ms: int | None = None
    points: int = 24

    def ask(self, workspace: Workspace) -> CapacityPage:
        """Return the page; the last day unless a span is given."""
        within("points", self.points, *POINT_BOUNDS)
        workspace.check_cluster(self.cluster)
        to_ms = workspace.now_ms() if self.to_ms is None else self.to_ms
        from_ms = to_ms - DAY_MS if self.from_ms is None else self.from_ms
        if from_ms >= to_ms:
            raise InvalidInput("The span of time is empty: 'from' must be before 'to'.")
        moments = self._choose_moments(workspace, from_ms, to_ms)
        steps = [self._read_step(workspace, at_ms) for at_ms in moments]
        steps.append(self._measure(workspace, None if self.to_ms is None else to_ms))
        query = WorkloadQuery(
            cluster=self.cluster, from_ms=from_ms, to_ms=to_ms + 1, limit=JOBS_LIMIT
        )
        jobs = workspace.workloads_for_sums(query).to_pylist()
        return CapacityPage(
            from_ms=from_ms,
            to_ms=to_ms,
            steps=steps,
            types=measure_waits(jobs, "resource_type", from_ms, to_ms),
            sizes=measure_waits(jobs, "size", from_ms, to_ms),
            waits=_make_wait_steps(jobs, moments, to_ms),
            changes=self._read_changes(workspace, steps, jobs, (from_ms, to_ms)),
        )

    def _choose_moments(self, workspace: Workspace, from_ms: int, to_ms: int) -> list[int]:
        """Return evenly spaced moments, on marks that stay the same as time goes on."""
        span = workspace.store.span(self.cluster)
        first_ms = max(from_ms, span[0] if span else to_ms)
        every = max(1, (to_ms - from_ms) // self.points)
        every = max(60_000, every // 60_000 * 60_000)
        return list(range(-(-first_ms // every) * every, to_ms, every))

    def _read_step(self, workspace: Workspace, at_ms: int) -> CapacityStep:
        kept = _remembered.setdefault(workspace.summaries, {})
        if (self.cluster, at_ms) not in kept:
            step = self._measure(workspace, at_ms)
            while len(kept) >= REMEMBERED:
                kept.pop(next(iter(kept)), None)
            kept[self.cluster, at_ms] = step
        return kept[self.cluster, at_ms]

    def _measure(self, workspace: Workspace, at_ms: int | None) -> CapacityStep:
        line = read_line(workspace, self.cluster, at_ms)
        rooms = measure_free_room(line)
        # A host in two partitions is one host.
        alone = {(room.model, room.partition): room for room in rooms}
        free = sum(host.free for host in line.hosts if host.usable)
        stranded = sum(room.stranded for room in alone.values())
        counted = sum(room.free for room in alone.values())
        return CapacityStep(
            time_ms=line.time_ms if at_ms is None else at_ms,
            gpus=sum(host.gpus for host in line.hosts),
            free=free,
            whole_hosts_free=sum(h.usable and 0 < h.gpus == h.free for h in line.hosts),
            largest_gang=max((room.largest_gang for room in rooms), default=0),
            stranded_share=round(stranded / counted, 4) if counted else 0.0,
            waiting=len(line.waiters),
            waiting_gpus=sum(waiter.gpus for waiter in line.waiters),
            rooms=[_make_room(room) for room in rooms],
        )

    def _read_changes(
        self,
        workspace: Workspace,
        steps: Sequence[CapacityStep],
        jobs: Sequence[Mapping[str, Any]],
        span: tuple[int, int],
    ) -> list[PolicyChange]:
        table = workspace.store.events(self.cluster, *span, limit=EVENTS_READ)
        changed = pc.equal(table["kind"], ClusterEventKind.POLICY_CHANGE.value)
        rows = table.filter(changed).to_pylist()
        rows.sort(key=lambda row: -row["time_ms"])
        return [_compare_around(row, steps, jobs, span) for row in rows[:CHANGES_LISTED]]

    def path(self) -> str:
        """Return the API path that answers it."""
        return "/capacity"

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        return query_of(self)


def name_size(gpus: int) -> str:
    """Return the class of sizes that a request belongs to."""
    return SIZES[(gpus > 1) + (gpus > 8) + (gpus > 64)]


def measure_waits(
    jobs: Iterable[Mapping[str, Any]], by: str, from_ms: int, to_ms: int
) -> list[WaitOfKind]:
    """Return waits by resource type or size, of jobs that started or still waited in the span."""
    started: dict[str, list[float]] = defaultdict(list)
    waiting: dict[str, list[float]] = defaultdict(list)
    for job in jobs:
        if job["submit_ms"] is None or job["submit_ms"] > to_ms:
            continue
        kind = _name_kind(job, by)
        start_ms = job["start_ms"]
        if start_ms is not None and from_ms <= start_ms <= to_ms:
            started[kind].append((start_ms - job["submit_ms"]) / 1000)
        elif (start_ms is None or start_ms > to_ms) and not _has_ended(job, to_ms):
            waiting[kind].append((to_ms - job["submit_ms"]) / 1000)
    kinds = set(started) | set(waiting)
    order = SIZES if by == "size" else sorted(kinds)
    return [_sum_waits(kind, started[kind], waiting[kind]) for kind in order if kind in kinds]


def _name_kind(job: Mapping[str, Any], by: str) -> str:
    if by == "size":
        return name_size(job["gpus_requested"] or 0)
    return str(job["resource_type"] or "any")


def _has_ended(job: Mapping[str, Any], at_ms: int) -> bool:
    return job["end_ms"] is not None and job["end_ms"] <= at_ms


def _sum_waits(kind: str, started: Sequence[float], waiting: Sequence[float]) -> WaitOfKind:
    both = [*started, *waiting]
    return WaitOfKind(
        kind=kind,
        started=len(started),
        waiting=len(waiting),
        median_wait_s=round(statistics.median(both), 1) if both else None,
        longest_waiting_s=round(max(waiting), 1) if waiting else None,
    )


def _make_wait_steps(
    jobs: Sequence[Mapping[str, Any]], moments: Sequence[int], to_ms: int
) -> list[WaitStep]:
    """Return the median wait by size of the jobs that started from one moment to the next."""
    steps = []
    # A new site has no moments yet.
    for begin, end in pairwise([*moments, to_ms]):
        waits: dict[str, list[float]] = defaultdict(list)
        for job in jobs:
            if job["start_ms"] is None or job["submit_ms"] is None:
                continue
            if begin <= job["start_ms"] < end:
                waits[_name_kind(job, "size")].append((job["start_ms"] - job["submit_ms"]) / 1000)
        medians = [statistics.median(waits[size]) if waits[size] else None for size in SIZES]
        steps.append(WaitStep(time_ms=begin, median_wait_s=medians))
    return steps


def _compare_around(
    event: Mapping[str, Any],
    steps: Sequence[CapacityStep],
    jobs: Sequence[Mapping[str, Any]],
    span: tuple[int, int],
) -> PolicyChange:
    """Return the figures before and after a change, over equal spans."""
    at_ms = event["time_ms"]
    reach = max(1, min(at_ms - span[0], span[1] - at_ms, COMPARED_MS))
    before, after = (at_ms - reach, at_ms), (at_ms, at_ms + reach)
    return PolicyChange(
        time_ms=at_ms,
        text=event["text"] or "",
        before=_sum_figures(steps, jobs, *before),
        after=_sum_figures(steps, jobs, *after),
    )


def _sum_figures(
    steps: Sequence[CapacityStep],
    jobs: Sequence[Mapping[str, Any]],
    from_ms: int,
    to_ms: int,
) -> PolicyFigures:
    within_it = [step for step in steps if from_ms < step.time_ms <= to_ms]
    return PolicyFigures(
        from_ms=from_ms,
        to_ms=to_ms,
        whole_hosts_free=_average(step.whole_hosts_free for step in within_it),
        largest_gang=_average(step.largest_gang for step in within_it),
        stranded_share=_average(step.stranded_share for step in within_it),
        waits=measure_waits(jobs, "size", from_ms, to_ms),
    )


def _average(values: Iterable[float]) -> float | None:
    listed = list(values)
    return round(statistics.fmean(listed), 4) if listed else None


def _make_room(room: FreeRoom) -> RoomOfType:
    return RoomOfType(
        partition=room.partition,
        model=room.model,
        gpus=room.gpus,
        free=room.free,
        whole_hosts_free=room.whole_hosts_free,
        largest_gang=room.largest_gang,
        stranded_share=round(room.stranded_share, 4),
    )
