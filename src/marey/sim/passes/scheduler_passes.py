"""The passes of a scheduler: in order up to the first that does not fit, and backfill behind it.

The main pass goes by order; a job that does not fit closes its partition and that partition's hosts
to everybody behind it, as Slurm's does. Backfill is EASY (Lifka 1995: only the first that waits has
its hosts kept) or conservative as Slurm plans it (every tested job has). A job of a higher tier may
evict jobs of lower tiers, the lowest and youngest first, where the policy lets it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from marey.sim.passes.host_room import (
    NEVER,
    WHOLE_GPU,
    Floats,
    Ints,
    Requests,
    copy_room,
    find_biggest,
    give_room,
    is_set,
    pick_hosts,
    take_room,
)
from marey.sim.passes.planned_starts import (
    EASY,
    Rules,
    Site,
    add_running,
    keep_hosts,
    list_open_hosts,
    plan_start,
    remove_running,
)


class Use(NamedTuple):
    """What owners and projects hold now, and the limits of partitions (0: none)."""

    gpus: Ints
    jobs: Ints
    project_gpus: Ints
    # GPUs of a user within a partition, and how many are allowed there.
    partition_gpus: Ints
    partition_limit: Ints


class Outcome(NamedTuple):
    """Places in the line that started, jobs that were evicted; [how many of each]."""

    started: Ints
    evicted: Ints
    counts: Ints


def build_outcome(jobs: int) -> Outcome:
    """Return room for what one pass does."""
    return Outcome(np.empty(jobs, np.int64), np.empty(jobs, np.int64), np.zeros(2, np.int64))


@njit(cache=True, nogil=True)
def is_limited(use: Use, jobs: Requests, rules: Rules, job: int) -> bool:
    """Return whether a limit keeps a job back now."""
    owner, gpus = jobs.owner[job], jobs.gpus[job] * jobs.hosts[job]
    if rules.max_gpus_per_user > 0 and use.gpus[owner] + gpus > rules.max_gpus_per_user:
        return True
    if rules.max_jobs_per_user > 0 and use.jobs[owner] >= rules.max_jobs_per_user:
        return True
    held = use.project_gpus[jobs.project[job]]
    if rules.max_gpus_per_project > 0 and held + gpus > rules.max_gpus_per_project:
        return True
    limit = use.partition_limit[jobs.partition[job]]
    return bool(limit > 0 and use.partition_gpus[owner, jobs.partition[job]] + gpus > limit)


@njit(cache=True, nogil=True)
def _count_use(use: Use, jobs: Requests, job: int, sign: int) -> None:
    owner, gpus = jobs.owner[job], sign * jobs.gpus[job] * jobs.hosts[job]
    use.gpus[owner] += gpus
    use.jobs[owner] += sign
    use.project_gpus[jobs.project[job]] += gpus
    use.partition_gpus[owner, jobs.partition[job]] += gpus


@njit(cache=True, nogil=True)
def start_job(site: Site, jobs: Requests, use: Use, rules: Rules, job: int, now_s: int) -> None:
    """Start a job on the hosts that stand in its row."""
    first = jobs.first[job]
    last = first + jobs.hosts[job]
    take_room(site.room, jobs, job, site.held[first:last], site.taken[first:last])
    _count_use(use, jobs, job, 1)
    if rules.backfill or rules.preempts:
        add_running(site.running, job, now_s + jobs.limit[job])


@njit(cache=True, nogil=True)
def end_job(site: Site, jobs: Requests, use: Use, rules: Rules, job: int) -> None:
    """Take back what a job held."""
    first = jobs.first[job]
    last = first + jobs.hosts[job]
    give_room(site.room, jobs, job, site.held[first:last], site.taken[first:last])
    _count_use(use, jobs, job, -1)
    if rules.backfill or rules.preempts:
        remove_running(site.running, job)


@njit(cache=True, nogil=True)
def _open_pool(site: Site, jobs: Requests, job: int, now_s: int) -> None:
    """Fill ``site.allowed`` with the hosts that a job may start on in the main pass."""
    pool = site.pools[jobs.pool[job]]
    if site.plans.counts[1] > 0:
        site.plans.counts[0] = site.plans.counts[1]
        list_open_hosts(
            site.plans, pool, jobs.owner[job], now_s, now_s + jobs.limit[job], site.allowed
        )
        for word in range(len(pool)):
            site.allowed[word] &= site.unblocked[word]
        return
    for word in range(len(pool)):
        site.allowed[word] = pool[word] & site.unblocked[word]


@njit(cache=True, nogil=True)
def run_main_pass(
    site: Site, jobs: Requests, use: Use, rules: Rules, order: Ints, now_s: int, outcome: Outcome
) -> None:
    """Start jobs in order; who does not fit closes its partition's hosts to those behind."""
    outcome.counts[:] = 0
    limits = rules.max_gpus_per_user + rules.max_jobs_per_user + rules.max_gpus_per_project
    limited = limits > 0 or use.partition_limit.any()
    closed = np.zeros(len(site.partitions), np.bool_)
    left = len(closed)
    site.unblocked[:] = ~np.uint64(0)
    for i in range(len(order)):
        job = order[i]
        if closed[jobs.partition[job]] or (limited and is_limited(use, jobs, rules, job)):
            continue
        first = jobs.first[job]
        chosen = site.held[first : first + jobs.hosts[job]]
        fits = False
        if jobs.share[job] < WHOLE_GPU or jobs.gpus[job] <= find_biggest(site.room):
            _open_pool(site, jobs, job, now_s)
            fits = pick_hosts(
                site.room, jobs, job, site.allowed, rules.placement, site.stranded, chosen
            )
        if not fits and rules.preempts and jobs.tier[job] > 0:
            _open_pool(site, jobs, job, now_s)
            fits = _evict_for(site, jobs, use, rules, job, chosen, outcome)
        if fits:
            start_job(site, jobs, use, rules, job, now_s)
            outcome.started[outcome.counts[0]] = i
            outcome.counts[0] += 1
            continue
        closed[jobs.partition[job]] = True
        left -= 1
        if left == 0:
            return
        for word in range(len(site.unblocked)):
            site.unblocked[word] &= ~site.partitions[jobs.partition[job], word]


@njit(cache=True, nogil=True)
def _evict_for(
    site: Site,
    jobs: Requests,
    use: Use,
    rules: Rules,
    job: int,
    chosen: Ints,
    outcome: Outcome,
) -> bool:
    """Evict as few jobs of lower tiers as make room, the lowest and youngest first."""
    victims = np.empty(site.running.counts[0], np.int64)
    ranks = np.empty(len(victims))
    many = 0
    for i in range(len(victims)):
        other = site.running.job[i]
        if jobs.tier[other] < jobs.tier[job]:
            began = site.running.end[i] - jobs.limit[other]
            victims[many] = other
            ranks[many] = jobs.tier[other] * 1e12 - began
            many += 1
    copy_room(site.room, site.future)
    for i in np.argsort(ranks[:many], kind="mergesort"):
        other = victims[i]
        first, last = jobs.first[other], jobs.first[other] + jobs.hosts[other]
        give_room(site.future, jobs, other, site.held[first:last], site.taken[first:last])
        if pick_hosts(site.future, jobs, job, site.allowed, rules.placement, site.stranded, chosen):
            _evict_from(site, jobs, use, rules, job, chosen, outcome, victims[:many], ranks[:many])
            return True
    return False


@njit(cache=True, nogil=True)
def _evict_from(
    site: Site,
    jobs: Requests,
    use: Use,
    rules: Rules,
    job: int,
    chosen: Ints,
    outcome: Outcome,
    victims: Ints,
    ranks: Floats,
) -> None:
    """End victims on the chosen hosts until the job fits there."""
    site.before[:] = np.uint64(0)
    for host in chosen:
        site.before[host >> 6] |= np.uint64(1) << np.uint64(host & 63)
    for i in np.argsort(ranks, kind="mergesort"):
        if pick_hosts(site.room, jobs, job, site.before, rules.placement, site.stranded, chosen):
            return
        other = victims[i]
        for h in range(jobs.first[other], jobs.first[other] + jobs.hosts[other]):
            if is_set(site.before, site.held[h]):
                end_job(site, jobs, use, rules, other)
                outcome.evicted[outcome.counts[1]] = other
                outcome.counts[1] += 1
                break
    pick_hosts(site.room, jobs, job, site.before, rules.placement, site.stranded, chosen)


@njit(cache=True, nogil=True)
def run_backfill_pass(
    site: Site, jobs: Requests, use: Use, rules: Rules, order: Ints, now_s: int, outcome: Outcome
) -> None:
    """Start jobs that delay nobody whose hosts are kept; keep hosts for those that wait."""
    outcome.counts[:] = 0
    site.plans.counts[0] = site.plans.counts[1]
    limits = rules.max_gpus_per_user + rules.max_jobs_per_user + rules.max_gpus_per_project
    limited = limits > 0 or use.partition_limit.any()
    tested, kept = 0, False
    reach = len(order) if limited else min(len(order), rules.depth)
    for i in range(_find_last_candidate(site, jobs, order[:reach]) + 1):
        job = order[i]
        if limited and is_limited(use, jobs, rules, job):
            continue
        tested += 1
        if tested > rules.depth:
            return
        first = jobs.first[job]
        chosen = site.held[first : first + jobs.hosts[job]]
        at = NEVER
        if kept and rules.backfill == EASY:
            if _starts_beside(site, jobs, rules, job, now_s, chosen):
                at = now_s
        else:
            at = plan_start(site, jobs, rules, job, now_s, chosen)
        if at == now_s:
            start_job(site, jobs, use, rules, job, now_s)
            outcome.started[outcome.counts[0]] = i
            outcome.counts[0] += 1
        elif at < NEVER:
            step = rules.resolution_s
            end = at + jobs.limit[job]
            keep_hosts(site.plans, at // step * step, end // step * step, chosen)
            kept = True


@njit(cache=True, nogil=True)
def _find_last_candidate(site: Site, jobs: Requests, order: Ints) -> int:
    """Return the last place whose job could fit now: plans of those behind it change nothing."""
    biggest = find_biggest(site.room)
    for i in range(len(order) - 1, -1, -1):
        job = order[i]
        if jobs.share[job] < WHOLE_GPU or jobs.gpus[job] <= biggest:
            return i
    return -1


@njit(cache=True, nogil=True)
def _starts_beside(
    site: Site, jobs: Requests, rules: Rules, job: int, now_s: int, chosen: Ints
) -> bool:
    """Return whether a job fits now without touching hosts that are kept before it ends."""
    if jobs.share[job] == WHOLE_GPU and jobs.gpus[job] > find_biggest(site.room):
        return False
    end = now_s + jobs.limit[job] - 1
    list_open_hosts(
        site.plans, site.pools[jobs.pool[job]], jobs.owner[job], now_s, end, site.allowed
    )
    return bool(
        pick_hosts(site.room, jobs, job, site.allowed, rules.placement, site.stranded, chosen)
    )
