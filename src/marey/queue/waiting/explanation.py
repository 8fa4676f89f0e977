"""Why a workload waits: its place, who is ahead, what blocks it, and what would free it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from marey.model.times import describe_span
from marey.queue.waiting.line import HostRoom, Line, Waiter, find_ready_ms, list_fitting_hosts

# A job's number after the kind of dependency, with the task of an array: afterok:41_7.
_JOB = re.compile(r"(?<![A-Za-z])(\d+(?:_\d+)?)")
_MOST_NAMED = 5

NEVER, BLOCKED, BEHIND, HELD, STARTS = "never", "blocked", "behind", "held", "starts"

# The scheduler's words for what the workload itself or its limits are waiting for.
_HELD_WORDS = {
    "Dependency": "It waits for another workload that it depends on.",
    "DependencyNeverSatisfied": "What it depends on failed: it will never start as requested.",
    "BeginTime": "Its own earliest start has not come yet.",
    "JobHeldUser": "Its owner holds it back; releasing it lets it join the line.",
    "JobHeldAdmin": "An administrator holds it back.",
    "Reservation": "It waits for its reservation to begin.",
    "PartitionConfig": "Its partition does not allow a request like this.",
    "PartitionNodeLimit": "It asks for more hosts than its partition allows.",
    "PartitionTimeLimit": "It asks for more time than its partition allows.",
    "PartitionDown": "Its partition is down.",
    "PartitionInactive": "Its partition takes no work now.",
    "BadConstraints": "No host has what it asks for.",
}
_NEVER_REASONS = frozenset(
    {"DependencyNeverSatisfied", "PartitionNodeLimit", "PartitionTimeLimit", "BadConstraints"}
)


@dataclass(frozen=True, slots=True)
class Ahead:
    """What stands before a workload in the line."""

    jobs: int
    gpus: int
    gpu_hours: float | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer to "why am I waiting"."""

    workload: str
    verdict: str
    position: int
    waiting: int
    position_partition: int
    reason: str
    sentences: tuple[str, ...]
    ahead: Ahead
    ahead_own: Ahead
    ahead_project: Ahead
    ahead_others: Ahead
    # Hosts that would be first to have room, and the workloads that hold them.
    blocking_hosts: tuple[str, ...]
    blocking_workloads: tuple[str, ...]
    free_at_ms: int | None


def explain_wait(line: Line, place: int) -> Explanation:
    """Return why the workload at a place of the line (from 0) waits."""
    waiter = line.waiters[place]
    before = line.waiters[:place]
    same = [w for w in before if w.partition == waiter.partition]
    room = _find_room(line, waiter)
    verdict, sentence = _judge(line, waiter, len(same), room)
    blockers = room.first[: waiter.hosts]
    return Explanation(
        workload=waiter.workload,
        verdict=verdict,
        position=place + 1,
        waiting=len(line.waiters),
        position_partition=len(same) + 1,
        reason=waiter.reason,
        sentences=(sentence, *_name_causes(line, waiter, verdict)),
        ahead=count_ahead(same),
        ahead_own=count_ahead([w for w in same if w.user == waiter.user]),
        ahead_project=count_ahead(
            [w for w in same if w.project == waiter.project and w.user != waiter.user]
        ),
        ahead_others=count_ahead(
            [w for w in same if w.project != waiter.project and w.user != waiter.user]
        ),
        blocking_hosts=tuple(host.host for host in blockers),
        blocking_workloads=tuple(
            dict.fromkeys(holder.workload for host in blockers for holder in host.holders)
        ),
        free_at_ms=room.free_at_ms,
    )


def explain_briefly(line: Line, places: Iterable[int]) -> Iterator[tuple[str, str]]:
    """Yield the verdict and the first sentence of those at some places of the line.

    Requests of one shape share the look at the hosts, so that a long line is cheap.
    """
    ahead = _count_before(line)
    rooms: dict[tuple[str, str, int, int], _Room] = {}
    for place in places:
        waiter = line.waiters[place]
        shape = (waiter.partition, waiter.model, waiter.per_host, waiter.gpus)
        if shape not in rooms:
            rooms[shape] = _find_room(line, waiter)
        yield _judge(line, waiter, ahead[place], rooms[shape])


def _count_before(line: Line) -> list[int]:
    """Return for each place how many stand before it in its partition."""
    seen: dict[str, int] = defaultdict(int)
    before = []
    for waiter in line.waiters:
        before.append(seen[waiter.partition])
        seen[waiter.partition] += 1
    return before


def is_held(waiter: Waiter) -> bool:
    """Return whether a dependency, a hold or a limit keeps a workload back, not the line."""
    reason = waiter.reason
    return reason in _HELD_WORDS or is_limit(reason)


def is_eligible(waiter: Waiter) -> bool:
    """Return whether a workload would start if there were room and no limit."""
    return not is_out_of_line(waiter.reason)


def is_out_of_line(reason: str) -> bool:
    """Return whether a reason says that a dependency or a hold keeps a workload out of the line."""
    return reason in _HELD_WORDS


def is_limit(reason: str) -> bool:
    """Return whether a reason says that a limit keeps a workload back."""
    return "Limit" in reason or reason.startswith(("QOSMax", "Assoc", "QOSGrp"))


def count_ahead(waiters: Sequence[Waiter]) -> Ahead:
    """Return jobs, GPUs and GPU-hours by their limits (None where one has no limit)."""
    limited = all(w.limit_s is not None for w in waiters)
    hours = sum(w.gpus * (w.limit_s or 0) for w in waiters) / 3600.0
    return Ahead(len(waiters), sum(w.gpus for w in waiters), hours if limited else None)


@dataclass(frozen=True, slots=True)
class _Room:
    fitting: list[HostRoom]
    usable: list[HostRoom]
    large: list[HostRoom]
    ready: list[HostRoom]
    # Usable hosts by when they have room, those that never tell last.
    first: list[HostRoom]
    free_at_ms: int | None


def _find_room(line: Line, waiter: Waiter) -> _Room:
    fitting = list_fitting_hosts(line, waiter)
    large = [host for host in fitting if host.gpus >= waiter.per_host]
    usable = [host for host in large if host.usable]
    ready = [host for host in usable if host.free >= waiter.per_host]
    timed = [(find_ready_ms(host, waiter.per_host, line.time_ms), host) for host in usable]
    known = sorted(((at, h) for at, h in timed if at is not None), key=lambda e: (e[0], e[1].host))
    first = [host for _, host in known] + [host for at, host in timed if at is None]
    enough = len(known) >= waiter.hosts
    free_at = known[waiter.hosts - 1][0] if enough else None
    return _Room(
        fitting=fitting,
        usable=usable,
        large=large,
        ready=ready,
        first=first,
        free_at_ms=free_at,
    )


def _judge(line: Line, waiter: Waiter, ahead: int, room: _Room) -> tuple[str, str]:
    wish = describe_request(waiter)
    if waiter.reason in _NEVER_REASONS:
        return NEVER, _HELD_WORDS[waiter.reason]
    if len(room.large) < waiter.hosts:
        return NEVER, (
            f"It can never start as requested: it needs {wish}; {_describe_largest(room)}."
        )
    if waiter.reason in _HELD_WORDS:
        return HELD, _HELD_WORDS[waiter.reason]
    if is_limit(waiter.reason):
        text = waiter.reason_text or waiter.reason
        return HELD, (
            f"Held back by a limit ({text}), not by the queue; it starts when usage drops."
        )
    if len(room.usable) < waiter.hosts:
        return BLOCKED, _describe_outage(room, wish)
    if len(room.ready) < waiter.hosts:
        return BLOCKED, _describe_block(line, waiter, room, wish)
    if ahead:
        return BEHIND, (
            f"It would fit now, but {ahead} {'job is' if ahead == 1 else 'jobs are'} ahead in "
            f"{waiter.partition or 'the queue'}; the free GPUs are reserved for them."
        )
    return STARTS, (
        "First in the queue, and there is room: it should start at the next scheduling pass."
    )


def _describe_outage(room: _Room, wish: str) -> str:
    out = [host for host in room.large if not host.usable]
    why = f" ({out[0].reason})" if out[0].reason else ""
    return (
        f"Needs {wish}; {len(out)} of the {len(room.large)} hosts that could take it are "
        f"out of service, first {out[0].host}{why}."
    )


def _name_causes(line: Line, waiter: Waiter, verdict: str) -> list[str]:
    """Return other known causes that hold a workload back: other workloads, a reservation."""
    if waiter.reason in _NEVER_REASONS or (verdict == HELD and waiter.reason in _HELD_WORDS):
        return _name_holder(line, waiter)
    return _name_users_of_limit(line, waiter) if verdict == HELD else []


def _name_holder(line: Line, waiter: Waiter) -> list[str]:
    """Return which workloads or which reservation it waits for, where the scheduler names them."""
    if waiter.reason.startswith("Dependency") and waiter.dependency:
        running = {job.workload for job in line.running}
        waiting = {other.workload for other in line.waiters}
        named = list(dict.fromkeys(_JOB.findall(waiter.dependency)))[:_MOST_NAMED]
        states = [
            f"{job} ({'running' if job in running else 'waiting'})"
            if job in running or job in waiting
            else job
            for job in named
        ]
        reported = ", ".join(states) or waiter.dependency
        return [f"It depends on {reported}."]
    if waiter.reason == "Reservation" and waiter.reservation:
        return [f"The reservation is {waiter.reservation}."]
    return []


def _name_users_of_limit(line: Line, waiter: Waiter) -> list[str]:
    """Return the workloads that run under the same limit, and which of them ends first."""
    # Slurm's words: QOSGrp… and AssocGrp… count an account's use, the others a user's.
    group = "Grp" in waiter.reason
    if group:
        same = [job for job in line.running if job.account == (waiter.project or waiter.user)]
    else:
        same = [job for job in line.running if job.user and job.user == waiter.user]
    if not same:
        return []
    whose = f"project {waiter.project}" if group and waiter.project else f"user {waiter.user}"
    gpus = sum(job.gpus for job in same)
    held = f"{len(same)} running {'job' if len(same) == 1 else 'jobs'} with {gpus} GPUs"
    ends = sorted((job.ends_ms, job.workload) for job in same if job.ends_ms is not None)
    if not ends:
        return [f"Under it: {held} of {whose}."]
    at, first = ends[0]
    span = describe_span(max(0, at - line.time_ms) / 1000)
    return [f"Under it: {held} of {whose}; the first to end is {first}, by its limit in {span}."]


def describe_request(waiter: Waiter) -> str:
    """Return the request of a workload in words."""
    kind = f" {waiter.model}" if waiter.model else ""
    if waiter.hosts == 1:
        return f"{waiter.gpus}{kind} GPU{'s' if waiter.gpus != 1 else ''} on one host"
    return f"{waiter.per_host}{kind} GPUs on each of {waiter.hosts} hosts"


def _describe_largest(room: _Room) -> str:
    if not room.fitting:
        return "no host of its partition and GPU type exists"
    if not room.large:
        return f"the largest host there has {max(h.gpus for h in room.fitting)} GPUs"
    return f"only {len(room.large)} such hosts exist"


def _describe_block(line: Line, waiter: Waiter, room: _Room, wish: str) -> str:
    partly = [host for host in room.usable if 0 < host.free < waiter.per_host]
    parts = [f"Needs {wish}; {len(room.ready)} of {len(room.usable)} hosts have enough free"]
    if partly:
        low, high = min(h.free for h in partly), max(h.free for h in partly)
        some = f"{low} to {high}" if low != high else str(low)
        parts.append(f"{len(partly)} {'has' if len(partly) == 1 else 'have'} {some} free")
    waiting_for = [host for host in room.first if host.free < waiter.per_host]
    if waiting_for:
        at = find_ready_ms(waiting_for[0], waiter.per_host, line.time_ms)
        when = (
            f"by its time limit in {describe_span((at - line.time_ms) / 1000)}"
            if at
            else "no time limit"
        )
        parts.append(f"the next to have enough is {waiting_for[0].host}, {when}")
    return "; ".join(parts) + "."
