"""One pass over a partition as Slurm plans it: what the fast pass cannot do.

Planned (conservative) backfill, CPU and memory requests, shares of GPUs, reservations and
preemption, with the same kernels that replay a site's history (``sim/passes``). The partition's
state is laid out anew for each pass; what runs is listed host by host, so that uneven gangs give
back exactly what they hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from marey.model.workloads import WorkloadState
from marey.sim.passes.host_room import (
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    WHOLE_GPU,
    Requests,
    Room,
    build_mask,
    build_room,
)
from marey.sim.passes.planned_starts import (
    CONSERVATIVE,
    EASY,
    NO_BACKFILL,
    Rules,
    Site,
    add_running,
    build_plans,
    build_running,
)
from marey.sim.passes.scheduler_passes import (
    HeldResources,
    build_outcome,
    is_limited,
    run_backfill_pass,
    run_main_pass,
)
from marey.sim.scheduling.gpu_shares import share_gpus
from marey.sim.scheduling.jobs import Job
from marey.sim.scheduling.scheduler_pass import Reason

if TYPE_CHECKING:
    from marey.sim.cluster import Cluster

Ints = NDArray[np.int64]
# As Slurm words it.
PREEMPTED = "Preempted"
_DEPTH, _WINDOW_S = 400, 7 * 86_400
# A job without CPU or memory requests fits beside anybody; hosts that tell none have enough.
_PLENTY = np.int64(1) << 40


@dataclass(frozen=True, slots=True)
class Reservation:
    """Hosts kept from a moment to another, for one user or for nobody."""

    hosts: tuple[int, ...]
    begin_ms: int
    end_ms: int
    user: int = -1


@dataclass(frozen=True, slots=True)
class PassDecisions:
    """What a pass decided: who starts on which GPUs, who is evicted, why the others wait."""

    starts: list[tuple[Job, Ints]]
    evicted: list[Job]
    reasons: Ints


@dataclass(frozen=True, slots=True)
class _Held:
    """What a running job holds of one host of the partition."""

    job: Job
    host: int
    bits: int
    gpus: int


def run_planned(
    cluster: Cluster, partition: int, order: Ints, priority: NDArray[np.float64]
) -> None:
    """Run a pass over a partition's queue: evict, start, and say why the others wait."""
    queue = cluster.queues[partition]
    waiting = [cluster.jobs[seq] for seq in queue.view("seq").tolist()]
    planned = plan_pass(cluster, partition, waiting, order)
    places = {job.seq: place for place, job in enumerate(waiting)}
    cluster.tell_waiting(queue, planned.reasons, priority)
    for job in planned.evicted:
        job.end_reason = PREEMPTED
        cluster.end(job, WorkloadState.CANCELLED)
    for job, gpus in planned.starts:
        job.priority = float(priority[places[job.seq]])
        cluster.user_gpus[partition][job.user_number] += job.gpus
        cluster.until[gpus] = np.maximum(cluster.until[gpus], cluster.now_ms + job.limit_ms)
        share_gpus(cluster, job, gpus)
        cluster.start(job, gpus)
    if planned.starts:
        queue.drop(planned.reasons != 0)


def plan_pass(
    cluster: Cluster, partition: int, waiting: Sequence[Job], order: Ints
) -> PassDecisions:
    """Return the decisions of a pass over the waiting jobs (by place in the queue)."""
    part = cluster.hardware.parts[partition]
    held = _list_held(cluster, partition)
    up = cluster.host_up[part.first_host : part.first_host + part.host_count]
    jobs = _lay_out_requests(held, waiting)
    site = _build_site(cluster, partition, held, jobs)
    owners = len(cluster.users)
    use = HeldResources(
        gpus=cluster.user_gpus[partition].copy(),
        jobs=np.zeros(owners, np.int64),
        project_gpus=np.zeros(1, np.int64),
        group_gpus=np.zeros((owners, 1), np.int64),
        group_jobs=np.zeros((owners, 1), np.int64),
        group_total=np.zeros(1, np.int64),
        group_limits=np.zeros((1, 3), np.int64),
        closed=np.zeros(1, np.int64),
    )
    rules = _build_rules(cluster, partition)
    fits = np.array([jobs.hosts[len(held) + slot] <= up.sum() for slot in order], np.bool_)
    line = order[fits] + len(held)
    started, evicted = _run_passes(cluster, site, jobs, use, rules=rules, line=line)
    reasons = _explain_waits(jobs, use, rules, order=order, line=line, started=started)
    return PassDecisions(
        starts=_assign_gpus(cluster, partition, site, waiting, first=len(held), started=started),
        evicted=list({held[i].job.seq: held[i].job for i in evicted}.values()),
        reasons=reasons[len(held) :],
    )


def _run_passes(
    cluster: Cluster, site: Site, jobs: Requests, use: HeldResources, *, rules: Rules, line: Ints
) -> tuple[list[int], list[int]]:
    now_s, outcome = cluster.now_ms // 1000, build_outcome(len(jobs.gpus))
    run_main_pass(site, jobs, use, rules, line, now_s, outcome)
    places = outcome.started[: outcome.counts[0]].copy()
    evicted = outcome.evicted[: outcome.counts[1]].tolist()
    started = line[places].tolist()
    if rules.backfill:
        rest = np.delete(line, places)
        run_backfill_pass(site, jobs, use, rules, rest, now_s, outcome)
        started += rest[outcome.started[: outcome.counts[0]]].tolist()
    return started, evicted


def _list_held(cluster: Cluster, partition: int) -> list[_Held]:
    """Return the GPUs held in a partition, job by job and host by host."""
    part, hardware = cluster.hardware.parts[partition], cluster.hardware
    held = []
    for job in cluster.list_running(partition):
        hosts = hardware.gpu_host[job.gpu_numbers]
        for host in np.unique(hosts).tolist():
            mine = job.gpu_numbers[hosts == host] - hardware.host_first[host]
            bits = sum(1 << int(gpu) for gpu in mine)
            held.append(_Held(job, host - part.first_host, bits, len(mine)))
    return held


def _lay_out_requests(held: list[_Held], waiting: Sequence[Job]) -> Requests:
    """Return running jobs (a row per host), then waiting ones, as the kernels' columns."""
    rows = [(one.job, one.gpus, 1) for one in held]
    for job in waiting:
        hosts = -(-job.gpus // job.per_host)
        rows.append((job, -(-job.gpus // hosts), hosts))
    count = len(rows)
    hosts_of = np.array([row[2] for row in rows], np.int64)

    def column(values: list[int]) -> Ints:
        return np.array(values, np.int64)

    return Requests(
        gpus=column([row[1] for row in rows]),
        share=column([row[0].gpu_share for row in rows]),
        cpus=column([row[0].cpus_per_host for row in rows]),
        memory=column([row[0].memory_mib_per_host for row in rows]),
        hosts=hosts_of,
        pool=np.zeros(count, np.int64),
        limit=column([-(-row[0].limit_ms // 1000) for row in rows]),
        owner=column([row[0].user_number for row in rows]),
        project=np.zeros(count, np.int64),
        partition=np.zeros(count, np.int64),
        qos=np.full(count, -1, np.int64),
        tier=column([row[0].tier for row in rows]),
        first=np.cumsum(hosts_of) - hosts_of,
    )


def _build_site(cluster: Cluster, partition: int, held: list[_Held], jobs: Requests) -> Site:
    part = cluster.hardware.parts[partition]
    up = cluster.host_up[part.first_host : part.first_host + part.host_count]
    room, future = (_build_room(cluster, partition, held) for _ in range(2))
    words = (part.host_count + 63) // 64
    running, mask = build_running(len(jobs.gpus)), build_mask(up)[None, :]
    places = np.zeros(int(jobs.hosts.sum()), np.int64)
    taken = np.zeros(len(places), np.uint64)
    for i, one in enumerate(held):
        places[i], taken[i] = one.host, one.bits
        add_running(running, i, -(-(one.job.start_ms or 0) // 1000) + int(jobs.limit[i]))
    plans = build_plans(_DEPTH + len(cluster.reserved) + 1, words)
    for i, kept in enumerate(cluster.reserved):
        chosen = np.zeros(part.host_count, np.bool_)
        mine = [host - part.first_host for host in kept.hosts]
        chosen[[host for host in mine if 0 <= host < part.host_count]] = True
        plans.begin[i], plans.end[i] = kept.begin_ms // 1000, kept.end_ms // 1000
        plans.hosts[i], plans.owner[i] = build_mask(chosen), kept.user
    plans.counts[:] = len(cluster.reserved)
    return Site(
        room=room,
        future=future,
        running=running,
        plans=plans,
        held=places,
        taken=taken,
        pools=mask,
        pool_hosts=np.array([up.sum()], np.int64),
        partitions=mask,
        stranded=np.zeros(int(room.level.shape[0])),
        allowed=np.zeros(words, np.uint64),
        before=np.zeros(words, np.uint64),
        unblocked=np.zeros(words, np.uint64),
    )


def _build_room(cluster: Cluster, partition: int, held: list[_Held]) -> Room:
    """Return the room of the hosts beside running jobs and broken GPUs."""
    part, hardware = cluster.hardware.parts[partition], cluster.hardware
    hosts = slice(part.first_host, part.first_host + part.host_count)
    size, first = hardware.host_size[hosts], hardware.host_first[hosts]
    cpus = hardware.host_cpus[hosts].astype(np.int64)
    memory = hardware.host_memory_mib[hosts].astype(np.int64)
    cpus, memory = (np.where(has > 0, has, _PLENTY) for has in (cpus, memory))
    for one in held:
        cpus[one.host] -= one.job.cpus_per_host
        memory[one.host] -= one.job.memory_mib_per_host
    whole = [int((cluster.until[f : f + n] == 0).sum()) for f, n in zip(first, size, strict=True)]
    empty = build_room(size, cpus, memory, shared=True)
    free = build_room(np.array(whole, np.int64), cpus, memory, shared=False)
    level = np.zeros_like(empty.level)
    level[: len(free.level)] = free.level
    counts = np.bincount(free.free, minlength=len(empty.counts)).astype(np.int64)
    room = empty._replace(free=free.free, level=level, counts=counts)
    for h, (f, n) in enumerate(zip(first.tolist(), size.tolist(), strict=True)):
        room.left[h, :n] = np.where(cluster.until[f : f + n] == 0, WHOLE_GPU, 0)
        left = cluster.gpu_left[f : f + n]
        part_taken = (left > 0) & (left < WHOLE_GPU)
        room.left[h, :n][part_taken] = left[part_taken]
    return room


def _build_rules(cluster: Cluster, partition: int) -> Rules:
    planned = CONSERVATIVE if cluster.config.planned else EASY
    spread = cluster.placement.value == "least_allocated"
    return Rules(
        backfill=planned if cluster.backfill else NO_BACKFILL,
        placement=LEAST_ALLOCATED if spread else MOST_ALLOCATED,
        depth=_DEPTH,
        window_s=_WINDOW_S,
        resolution_s=1,
        preempts=int(cluster.config.preemption),
        max_gpus_per_user=cluster.user_cap(partition),
        max_jobs_per_user=0,
        max_gpus_per_project=0,
    )


def _explain_waits(
    jobs: Requests, use: HeldResources, rules: Rules, *, order: Ints, line: Ints, started: list[int]
) -> Ints:
    """Return why each row waits (0: it started, or runs)."""
    reasons = np.zeros(len(jobs.gpus), np.int64)
    offset = len(jobs.gpus) - len(order)
    reasons[order + offset] = int(Reason.NODES_UNAVAILABLE)
    first = True
    begun = set(started)
    for row in line.tolist():
        if row in begun:
            reasons[row] = int(Reason.NONE)
        elif is_limited(use, jobs, rules, row):
            reasons[row] = int(Reason.QOS_LIMIT)
        else:
            reasons[row] = int(Reason.RESOURCES if first else Reason.PRIORITY)
            first = False
    return reasons


def _assign_gpus(
    cluster: Cluster,
    partition: int,
    site: Site,
    waiting: Sequence[Job],
    *,
    first: int,
    started: list[int],
) -> list[tuple[Job, Ints]]:
    """Return the GPUs of each job that starts: those whose bits the kernels noted."""
    part, hardware = cluster.hardware.parts[partition], cluster.hardware
    begins = {}
    at = first
    for row, job in enumerate(waiting, first):
        begins[row] = at
        at += -(-job.gpus // job.per_host)
    starts = []
    for row in started:
        job, gpus = waiting[row - first], list[int]()
        for i in range(begins[row], begins[row] + -(-job.gpus // job.per_host)):
            base = int(hardware.host_first[part.first_host + int(site.held[i])])
            bits = int(site.taken[i])
            gpus += [base + gpu for gpu in range(64) if bits >> gpu & 1]
        starts.append((job, np.array(gpus[: job.gpus], np.int64)))
    return starts
