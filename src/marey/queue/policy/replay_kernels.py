"""The event-driven replay of recorded jobs: one pass of the scheduler per moment of change.

Three ways to pass over the waiting jobs: in strict order up to the first that does not fit; EASY
(Lifka 1995), which reserves for that first one only; and conservative as Slurm's backfill plans it,
where every tested job that does not start now gets a reservation of whole hosts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from marey.queue.policy.host_kernels import (
    NEVER,
    Floats,
    HostState,
    Ints,
    find_ready,
    give_back,
    pick_hosts,
    plan_start,
    reserve_hosts,
    take_gpus,
)

NO_BACKFILL, EASY, CONSERVATIVE = 0, 1, 2


class JobArrays(NamedTuple):
    """What was asked for and how long it holds its GPUs, in the order of submission."""

    submit: Ints
    run: Ints
    limit: Ints
    need: Ints
    gang: Ints
    # The fixed order where nothing ages: lower first.
    rank: Ints
    owner: Ints
    # The part of the priority that does not change.
    fixed: Floats
    share: Floats


class Rules(NamedTuple):
    """The policy as numbers; 0 is "no limit"."""

    backfill: int
    placement: int
    depth: int
    max_gpus: int
    max_jobs: int
    dynamic: int
    age_weight: float
    max_age: int
    share_weight: float
    half_life: float


class LineState(NamedTuple):
    """The waiting line and what runs: a heap of ends, use by owner, the answer."""

    waiting: Ints
    ends: Ints
    ending: Ints
    owner_gpus: Ints
    owner_jobs: Ints
    usage: Floats
    start: Ints
    hosts: Ints
    # Waiting, running, free GPUs, moment of the last usage update.
    counts: Ints


WAITING, RUNNING, FREE, USAGE_AT = 0, 1, 2, 3


def build_line(jobs: int, owners: int, widest: int, gpus: int) -> LineState:
    """Return an empty line with room for all the jobs."""
    return LineState(
        waiting=np.empty(jobs, np.int64),
        ends=np.empty(jobs + 1, np.int64),
        ending=np.empty(jobs + 1, np.int64),
        owner_gpus=np.zeros(owners, np.int64),
        owner_jobs=np.zeros(owners, np.int64),
        usage=np.zeros(owners),
        start=np.full(jobs, -1, np.int64),
        hosts=np.zeros((jobs, widest), np.int64),
        counts=np.array([0, 0, gpus, 0], np.int64),
    )


@njit(cache=True, nogil=True)
def _push_end(line: LineState, at: int, job: int) -> None:
    i = line.counts[RUNNING]
    while i > 0:
        up = (i - 1) >> 1
        if line.ends[up] <= at:
            break
        line.ends[i], line.ending[i] = line.ends[up], line.ending[up]
        i = up
    line.ends[i], line.ending[i] = at, job
    line.counts[RUNNING] += 1


@njit(cache=True, nogil=True)
def _pop_end(line: LineState) -> int:
    first = line.ending[0]
    used = line.counts[RUNNING] - 1
    at, job = line.ends[used], line.ending[used]
    i = 0
    while True:
        low = 2 * i + 1
        if low >= used:
            break
        if low + 1 < used and line.ends[low + 1] < line.ends[low]:
            low += 1
        if line.ends[low] >= at:
            break
        line.ends[i], line.ending[i] = line.ends[low], line.ending[low]
        i = low
    line.ends[i], line.ending[i] = at, job
    line.counts[RUNNING] = used
    return int(first)


@njit(cache=True, nogil=True)
def _sort_waiting(line: LineState, jobs: JobArrays, rules: Rules, now: int) -> None:
    """Put the waiting jobs in the order of their priority now; equal ones by submission."""
    queued = line.counts[WAITING]
    priority = np.empty(queued)
    total = line.usage.sum()
    line.waiting[:queued] = np.sort(line.waiting[:queued])
    for i in range(queued):
        job = line.waiting[i]
        age = min(1.0, (now - jobs.submit[job]) / rules.max_age) if rules.max_age > 0 else 0.0
        factor = 1.0
        if rules.share_weight > 0 and total > 0:
            used = line.usage[jobs.owner[job]] / total
            factor = 2.0 ** (-used / max(jobs.share[jobs.owner[job]], 1e-9))
        # Slurm's priorities are whole numbers: what is less than one apart is equal.
        value = jobs.fixed[job] + rules.age_weight * age + rules.share_weight * factor
        priority[i] = -np.floor(value)
    order = np.argsort(priority, kind="mergesort")
    line.waiting[:queued] = line.waiting[:queued][order]


@njit(cache=True, nogil=True)
def _join_line(line: LineState, jobs: JobArrays, job: int, dynamic: int) -> None:
    i = line.counts[WAITING]
    while not dynamic and i > 0 and jobs.rank[line.waiting[i - 1]] > jobs.rank[job]:
        line.waiting[i] = line.waiting[i - 1]
        i -= 1
    line.waiting[i] = job
    line.counts[WAITING] += 1


@njit(cache=True, nogil=True)
def _add_usage(line: LineState, now: int, half_life: float) -> None:
    passed = now - line.counts[USAGE_AT]
    decay = 0.5 ** (passed / half_life) if half_life > 0 else 1.0
    for o in range(len(line.usage)):
        line.usage[o] = line.usage[o] * decay + line.owner_gpus[o] * passed
    line.counts[USAGE_AT] = now


@njit(cache=True, nogil=True)
def _end_jobs(line: LineState, jobs: JobArrays, state: HostState, now: int) -> None:
    while line.counts[RUNNING] > 0 and line.ends[0] <= now:
        job = _pop_end(line)
        give_back(state, job, line.hosts[job, : jobs.gang[job]])
        gpus = jobs.need[job] * jobs.gang[job]
        line.counts[FREE] += gpus
        line.owner_gpus[jobs.owner[job]] -= gpus
        line.owner_jobs[jobs.owner[job]] -= 1


@njit(cache=True, nogil=True)
def _start_job(line: LineState, jobs: JobArrays, state: HostState, job: int, now: int) -> None:
    """Start a job on the hosts that stand in its row."""
    hosts = line.hosts[job, : jobs.gang[job]]
    take_gpus(state, job, jobs.need[job], hosts, now + jobs.limit[job])
    gpus = jobs.need[job] * jobs.gang[job]
    line.counts[FREE] -= gpus
    line.owner_gpus[jobs.owner[job]] += gpus
    line.owner_jobs[jobs.owner[job]] += 1
    line.start[job] = now
    _push_end(line, now + jobs.run[job], job)


@njit(cache=True, nogil=True)
def _is_limited(line: LineState, jobs: JobArrays, rules: Rules, job: int) -> bool:
    mine = jobs.owner[job]
    gpus = jobs.need[job] * jobs.gang[job]
    if rules.max_gpus > 0 and line.owner_gpus[mine] + gpus > rules.max_gpus:
        return True
    return rules.max_jobs > 0 and line.owner_jobs[mine] >= rules.max_jobs


@njit(cache=True, nogil=True)
def _pass_over_line(
    line: LineState, jobs: JobArrays, state: HostState, rules: Rules, now: int
) -> None:
    """Start whom the policy lets start now; the others keep their order."""
    queued, kept, i, tested = line.counts[WAITING], 0, 0, 0
    blocked, stop, shadow = False, False, NEVER
    state.held[:] = 0
    biggest = state.free.max()
    while i < queued:
        job = line.waiting[i]
        i += 1
        need, count = jobs.need[job], jobs.gang[job]
        chosen = line.hosts[job, :count]
        started = False
        fits = need <= biggest and need * count <= line.counts[FREE]
        if stop or (rules.max_gpus + rules.max_jobs > 0 and _is_limited(line, jobs, rules, job)):
            pass
        elif not blocked:
            state.usable[:] = True
            started = fits and pick_hosts(state, need, chosen, rules.placement)
            if not started:
                blocked = True
                stop = rules.backfill == NO_BACKFILL
                if not stop:
                    find_ready(state, need, now)
                    shadow = plan_start(state, count, jobs.limit[job])
                    if shadow < NEVER:
                        reserve_hosts(state, count, shadow, jobs.limit[job])
        elif rules.backfill == EASY:
            if fits:
                in_time = now + jobs.limit[job] <= shadow
                for h in range(len(state.free)):
                    state.usable[h] = in_time or state.held[h] == 0
                started = pick_hosts(state, need, chosen, rules.placement)
        elif tested < rules.depth:
            tested += 1
            find_ready(state, need, now)
            at = plan_start(state, count, jobs.limit[job])
            if at == now:
                started = pick_hosts(state, need, chosen, rules.placement)
            if not started and at < NEVER:
                reserve_hosts(state, count, at, jobs.limit[job])
        else:
            stop = True
        if started:
            _start_job(line, jobs, state, job, now)
            biggest = state.free.max()
        else:
            line.waiting[kept] = job
            kept += 1
        if (stop or line.counts[FREE] == 0) and kept == i:
            # Nobody before has started: everybody behind stands where they stood.
            kept, i = queued, queued
        elif line.counts[FREE] == 0:
            stop = True
    line.counts[WAITING] = kept


@njit(cache=True, nogil=True)
def replay_jobs(jobs: JobArrays, state: HostState, line: LineState, rules: Rules) -> None:
    """Replay the jobs into ``line.start`` (−1: never) and ``line.hosts``."""
    next_job, many = 0, len(jobs.submit)
    while next_job < many or line.counts[RUNNING] > 0:
        now: Any = jobs.submit[next_job] if next_job < many else NEVER
        if line.counts[RUNNING] > 0 and line.ends[0] < now:
            now = line.ends[0]
        if rules.share_weight > 0 and now > line.counts[USAGE_AT]:
            _add_usage(line, now, rules.half_life)
        _end_jobs(line, jobs, state, now)
        while next_job < many and jobs.submit[next_job] <= now:
            _join_line(line, jobs, next_job, rules.dynamic)
            next_job += 1
        if line.counts[WAITING] == 0 or line.counts[FREE] == 0:
            continue
        if rules.dynamic and line.counts[WAITING] > 1:
            _sort_waiting(line, jobs, rules, now)
        _pass_over_line(line, jobs, state, rules, now)
