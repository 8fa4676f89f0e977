"""When a waiting job is planned to start, as Slurm's backfill plans it.

Slurm (``sched/backfill`` with ``select/cons_tres``) lets running jobs end by their time limits, a
window of them at a time, until the waiting job fits; the windows begin at 30 s, are aligned to
whole half minutes of the clock and double while the job does not fit. A planned job keeps its hosts
whole from its planned start to its end. Times in here are whole seconds, as Slurm's are. The plans
of a recorded run of Slurm 22.05 are met one by one (tests/sim/passes).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from marey.sim.passes.compiling import njit
from marey.sim.passes.host_room import (
    NEVER,
    Floats,
    Ints,
    Requests,
    Room,
    Words,
    copy_room,
    find_place,
    fits_on_host,
    give_room,
    is_set,
    pick_hosts,
)

_FIRST_WINDOW_S = 30
# More steps than this through the edges of other plans are not tried for one job.
_MOST_STEPS = 2000


NO_BACKFILL, EASY, CONSERVATIVE = 0, 1, 2


class Rules(NamedTuple):
    """A policy as numbers; 0 is "no limit"."""

    backfill: int
    placement: int
    # How many jobs a backfill pass tests, how far ahead it plans, and in which steps.
    depth: int
    window_s: int
    resolution_s: int
    # Whether higher tiers evict lower ones.
    preempts: int
    max_gpus_per_user: int
    max_jobs_per_user: int
    max_gpus_per_project: int


class Plans(NamedTuple):
    """Hosts that are kept from a moment to another: reservations first, then planned jobs."""

    begin: Ints
    end: Ints
    hosts: Words
    # Who may use a reservation's hosts: a user's number, −1 nobody.
    owner: Ints
    # [how many there are, how many of them are reservations of the site].
    counts: Ints


class Running(NamedTuple):
    """What runs, in the order in which time limits end it."""

    job: Ints
    end: Ints
    counts: Ints


class Site(NamedTuple):
    """Hosts, what runs on them, what is planned, and scratch room for planning."""

    room: Room
    future: Room
    running: Running
    plans: Plans
    # Hosts in use, and the GPUs of each as bits where GPUs are shared; a job's begin at ``first``.
    held: Ints
    taken: Words
    # Hosts that each pool may use now, how many they are, and hosts of each partition.
    pools: Words
    pool_hosts: Ints
    partitions: Words
    # GPUs that the typical job could not use, by whole free GPUs of a host.
    stranded: Floats
    allowed: Words
    before: Words
    unblocked: Words


def build_plans(most: int, words: int) -> Plans:
    """Return an empty list with room for so many plans."""
    return Plans(
        begin=np.zeros(most, np.int64),
        end=np.zeros(most, np.int64),
        hosts=np.zeros((most, words), np.uint64),
        owner=np.full(most, -1, np.int64),
        counts=np.zeros(2, np.int64),
    )


def build_running(most: int) -> Running:
    """Return an empty list with room for so many jobs."""
    return Running(np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(1, np.int64))


@njit()
def add_running(running: Running, job: int, end_s: int) -> None:
    """Put a job where its time limit ends it; equal ones in the order of their start."""
    i = running.counts[0]
    while i > 0 and running.end[i - 1] > end_s:
        running.end[i], running.job[i] = running.end[i - 1], running.job[i - 1]
        i -= 1
    running.end[i], running.job[i] = end_s, job
    running.counts[0] += 1


@njit()
def remove_running(running: Running, job: int) -> None:
    """Forget a job that has ended."""
    many = running.counts[0]
    for i in range(many):
        if running.job[i] == job:
            for k in range(i, many - 1):
                running.end[k], running.job[k] = running.end[k + 1], running.job[k + 1]
            running.counts[0] = many - 1
            return


@njit()
def list_open_hosts(
    plans: Plans, pool: Words, owner: int, begin_s: int, end_s: int, allowed: Words
) -> None:
    """Fill ``allowed`` with the hosts of a pool that no plan keeps within a span."""
    for word in range(len(allowed)):
        allowed[word] = pool[word]
    for p in range(plans.counts[0]):
        if plans.begin[p] <= end_s and plans.end[p] > begin_s and plans.owner[p] != owner:
            for word in range(len(allowed)):
                allowed[word] &= ~plans.hosts[p, word]


@njit()
def _find_next_edge(plans: Plans, after_s: int) -> Any:
    """Return the first moment after another at which a plan begins or ends."""
    edge = NEVER
    for p in range(plans.counts[0]):
        if after_s < plans.begin[p] < edge:
            edge = plans.begin[p]
        if after_s < plans.end[p] < edge:
            edge = plans.end[p]
    return edge


@njit()
def _overlaps(plans: Plans, owner: int, begin_s: int, end_s: int, chosen: Ints) -> bool:
    for p in range(plans.counts[0]):
        if plans.begin[p] < end_s and plans.end[p] > begin_s and plans.owner[p] != owner:
            for host in chosen:
                if is_set(plans.hosts[p], host):
                    return True
    return False


@njit()
def covers_any(hosts: Ints, allowed: Words) -> bool:
    """Return whether one of the hosts is in a mask."""
    for host in hosts:  # noqa: SIM110 (numba compiles the loop)
        if is_set(allowed, host):
            return True
    return False


@njit()
def _list_ready(site: Site, jobs: Requests, job: int, chosen: Ints) -> int:
    """Fill ``chosen`` with the allowed hosts that have room now; return how many they are."""
    ready = 0
    for word in range(len(site.allowed)):
        bits = site.allowed[word]
        while bits and ready < len(chosen):
            host = word * 64 + find_place(bits)
            bits &= bits - np.uint64(1)
            if fits_on_host(site.room, jobs, job, host):
                chosen[ready] = host
                ready += 1
    return ready


@njit()
def _add_ready(site: Site, jobs: Requests, job: int, held: Ints, ready: int, chosen: Ints) -> int:
    """Add those of the hosts that a job gives back which now have room; return how many are."""
    for host in held:
        if ready == len(chosen):
            break
        if not is_set(site.allowed, host) or not fits_on_host(site.future, jobs, job, host):
            continue
        known = False
        for k in range(ready):
            known = known or chosen[k] == host
        if not known:
            chosen[ready] = host
            ready += 1
    return ready


@njit()
def find_start(site: Site, jobs: Requests, rules: Rules, job: int, now_s: int, chosen: Ints) -> Any:
    """Return when a job fits on ``site.allowed`` if limits end what runs; fill ``chosen``.

    EASY keeps the hosts that are ready first, those with room now before all others, as the
    simulator's own pass does; Slurm takes those that its placement prefers when enough are ready.
    """
    exact = rules.backfill == EASY
    if pick_hosts(site.room, jobs, job, site.allowed, rules.placement, site.stranded, chosen):
        return now_s
    copy_room(site.room, site.future)
    running, many = site.running, site.running.counts[0]
    i, window, base = 0, _FIRST_WINDOW_S, np.int64(-1)
    ready = _list_ready(site, jobs, job, chosen) if exact else 0
    while i < many:
        last = np.int64(-1)
        while i < many:
            other, end = running.job[i], running.end[i]
            begin = jobs.first[other]
            held = site.held[begin : begin + jobs.hosts[other]]
            i += 1
            if not covers_any(held, site.allowed):
                continue
            if base < 0:
                base = end + _FIRST_WINDOW_S - end % _FIRST_WINDOW_S
            last = end
            give_room(site.future, jobs, other, held, site.taken[begin : begin + len(held)])
            if exact:
                ready = _add_ready(site, jobs, job, held, ready, chosen)
            if i < many and running.end[i] > (end if exact else base + window):
                break
        if last < 0:
            return NEVER
        if exact and ready < len(chosen):
            continue
        if exact or pick_hosts(
            site.future, jobs, job, site.allowed, rules.placement, site.stranded, chosen
        ):
            return max(last, now_s + 1)
        window *= 2
        while not exact and i < many and running.end[i] > base + window:
            window *= 2
    return NEVER


@njit()
def plan_start(site: Site, jobs: Requests, rules: Rules, job: int, now_s: int, chosen: Ints) -> Any:
    """Return the planned start of a job between the plans there are; fill ``chosen``."""
    plans, pool = site.plans, site.pools[jobs.pool[job]]
    begin, limit, owner = now_s, jobs.limit[job], jobs.owner[job]
    # Slurm counts the last second as kept, EASY as it was published does not.
    span = limit - 1 if rules.backfill == EASY else limit
    known, found = False, NEVER
    for _ in range(_MOST_STEPS):
        later = _find_next_edge(plans, begin)
        list_open_hosts(plans, pool, owner, begin, begin + span, site.allowed)
        # The same hosts give the same start: an edge of somebody else's plan changes nothing.
        if not known or not _equal(site.before, site.allowed):
            found = find_start(site, jobs, rules, job, now_s, chosen)
            for word in range(len(site.before)):
                site.before[word] = site.allowed[word]
            known = True
        at = max(found, begin)
        if found < NEVER and at <= now_s:
            return now_s
        if found == NEVER or at > later:
            if later == NEVER:
                return NEVER
            begin = later
            continue
        # Slurm looks no further than its window; EASY always keeps hosts for the first.
        if rules.backfill != EASY and at > now_s + rules.window_s:
            return NEVER
        if _overlaps(plans, owner, at, at + limit, chosen):
            begin = at if at > begin else min(later, at + 1)
            continue
        return at
    return NEVER


@njit()
def _equal(one: Words, other: Words) -> bool:
    for i in range(len(one)):  # noqa: SIM110 (numba compiles the loop)
        if one[i] != other[i]:
            return False
    return True


@njit()
def keep_hosts(plans: Plans, begin_s: int, end_s: int, chosen: Ints) -> None:
    """Keep hosts whole for a planned job."""
    p = plans.counts[0]
    if p >= len(plans.begin):
        return
    plans.begin[p], plans.end[p], plans.owner[p] = begin_s, end_s, -1
    for word in range(plans.hosts.shape[1]):
        plans.hosts[p, word] = np.uint64(0)
    for host in chosen:
        plans.hosts[p, host >> 6] |= np.uint64(1) << np.uint64(host & 63)
    plans.counts[0] += 1
