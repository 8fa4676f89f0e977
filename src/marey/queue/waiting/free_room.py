"""What is free, really: the largest gang that starts now, whole hosts, and GPUs nobody can use.

Stranded GPUs are counted as in Fragmentation Gradient Descent (Weng et al., ATC 2023): a free GPU
is
stranded to the share of waiting requests that do not fit the host it is on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from marey.queue.waiting.line import HostRoom, Line, Waiter


@dataclass(frozen=True, slots=True)
class FreeRoom:
    """The room of one GPU model in one partition."""

    partition: str
    model: str
    gpus: int
    free: int
    out_of_service: int
    hosts: int
    whole_hosts_free: int
    largest_on_one_host: int
    # By GPUs per host: the largest gang of such pieces that could start now.
    largest_gang: int
    stranded: float
    stranded_share: float
    # The host that empties next, who holds it, and when by their limits.
    next_host: str
    next_host_ms: int | None
    next_host_holders: tuple[str, ...]


def measure_free_room(line: Line) -> list[FreeRoom]:
    """Return the room per partition and GPU model."""
    groups: dict[tuple[str, str], list[HostRoom]] = {}
    for host in line.hosts:
        for partition in host.partitions or ("",):
            groups.setdefault((partition, host.model), []).append(host)
    return [
        _measure_group(line, partition, model, hosts)
        for (partition, model), hosts in sorted(groups.items())
    ]


def _measure_group(line: Line, partition: str, model: str, hosts: Sequence[HostRoom]) -> FreeRoom:
    usable = [host for host in hosts if host.usable]
    size = max((host.gpus for host in hosts), default=0)
    whole = [host for host in usable if host.free == host.gpus and host.gpus]
    asked = [
        waiter
        for waiter in line.waiters
        if waiter.partition in (partition, "")
        and (not waiter.model or waiter.model.lower() in model.lower())
    ]
    free = sum(host.free for host in usable)
    stranded = sum(measure_stranded(host.free, asked, size) for host in usable)
    empties = _find_next_to_empty(usable)
    return FreeRoom(
        partition=partition,
        model=model,
        gpus=sum(host.gpus for host in hosts),
        free=free,
        out_of_service=sum(host.gpus for host in hosts if not host.usable),
        hosts=len(hosts),
        whole_hosts_free=len(whole),
        largest_on_one_host=max((host.free for host in usable), default=0),
        largest_gang=max(
            len(whole) * size, *(n * sum(h.free >= n for h in usable) for n in (1, 2, 4, 8)), 0
        )
        if usable
        else 0,
        stranded=stranded,
        stranded_share=stranded / free if free else 0.0,
        next_host=empties[1].host if empties else "",
        next_host_ms=empties[0] if empties else None,
        next_host_holders=tuple(h.workload for h in empties[1].holders) if empties else (),
    )


def measure_stranded(free: int, asked: Sequence[Waiter], host_gpus: int) -> float:
    """Return how many of a host's free GPUs the waiting requests cannot use; whole hosts if nobody
    waits.
    """
    if not free:
        return 0.0
    if not asked:
        return float(free if free < host_gpus else 0)
    misfits = sum(1 for waiter in asked if waiter.per_host > free)
    return free * misfits / len(asked)


def _find_next_to_empty(hosts: Sequence[HostRoom]) -> tuple[int, HostRoom] | None:
    """Return the occupied host whose last workload ends first, by the time limits."""
    ends = []
    for host in hosts:
        limits = [holder.ends_ms for holder in host.holders]
        known = [end for end in limits if end is not None]
        if known and len(known) == len(limits):
            ends.append((max(known), host))
    return min(ends, key=lambda entry: (entry[0], entry[1].host)) if ends else None
