"""The passes of a scheduler: in order up to the first that does not fit, and backfill behind it.

The main pass goes by order; a job that does not fit closes its partition and that partition's hosts
to everybody behind it, as Slurm's does. Backfill is EASY (Lifka 1995: only the first that waits has
its hosts kept) or conservative as Slurm plans it (every tested job has). A job of a higher tier may
evict jobs of lower tiers, the lowest and youngest first, where the policy lets it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from marey.sim.passes.compiling import njit
from marey.sim.passes.host_room import (
    NEVER,
    WHOLE_GPU,
    Ints,
    Requests,
    copy_room,
    find_biggest,
    give_room,
    pick_hosts,
    take_room,
)
from marey.sim.passes.planned_starts import (
    EASY,
    Rules,
    Running,
    Site,
    add_running,
    covers_any,
    keep_hosts,
    list_open_hosts,
    plan_start,
    remove_running,
)


class HeldResources(NamedTuple):
    """What owners and projects hold now, and the limits of partitions (0: none)."""

    gpus: Ints
    jobs: Ints
    project_gpus: Ints
    # Of each partition and then each quality of service: GPUs and jobs of a user, GPUs of all ...
    group_gpus: Ints
    group_jobs: Ints
    group_total: Ints
    # ... and how many are allowed there: [GPUs of a user, jobs of a user, GPUs of all].
    group_limits: Ints
    # Partitions that the main pass has closed to those behind (1).
    closed: Ints


class Outcome(NamedTuple):
    """Places in the line that started, jobs that were evicted; [how many of each]."""

    started: Ints
    evicted: Ints
    counts: Ints


def build_outcome(jobs: int) -> Outcome:
    """Return room for what one pass does."""
    return Outcome(np.empty(jobs, np.int64), np.empty(jobs, np.int64), np.zeros(2, np.int64))


@njit()
def is_limited(use: HeldResources, jobs: Requests, rules: Rules, job: int) -> bool:
    """Return whether a limit keeps a job back now."""
    owner, gpus = jobs.owner[job], jobs.gpus[job] * jobs.hosts[job]
    if rules.max_gpus_per_user > 0 and use.gpus[owner] + gpus > rules.max_gpus_per_user:
        return True
    if rules.max_jobs_per_user > 0 and use.jobs[owner] >= rules.max_jobs_per_user:
        return True
    held = use.project_gpus[jobs.project[job]]
    if rules.max_gpus_per_project > 0 and held + gpus > rules.max_gpus_per_project:
        return True
    if _is_over(use, owner, gpus, jobs.partition[job]):
        return True
    return bool(jobs.qos[job] >= 0 and _is_over(use, owner, gpus, jobs.qos[job]))


@njit(inlined=True)
def _is_over(use: HeldResources, owner: int, gpus: int, group: int) -> bool:
    """Return whether so many more GPUs are over a limit of a partition or quality of service."""
    most = use.group_limits[group]
    return bool(
        (most[0] > 0 and use.group_gpus[owner, group] + gpus > most[0])
        or (most[1] > 0 and use.group_jobs[owner, group] >= most[1])
        or (most[2] > 0 and use.group_total[group] + gpus > most[2])
    )


@njit()
def _has_limit(limits: Ints) -> bool:
    for group in range(limits.shape[0]):
        for kind in range(limits.shape[1]):
            if limits[group, kind] > 0:
                return True
    return False


@njit(inlined=True)
def _count_use(use: HeldResources, jobs: Requests, job: int, sign: int) -> None:
    owner, gpus = jobs.owner[job], sign * jobs.gpus[job] * jobs.hosts[job]
    use.gpus[owner] += gpus
    use.jobs[owner] += sign
    use.project_gpus[jobs.project[job]] += gpus
    _count_group(use, owner, gpus, sign, jobs.partition[job])
    if jobs.qos[job] >= 0:
        _count_group(use, owner, gpus, sign, jobs.qos[job])


@njit(inlined=True)
def _count_group(use: HeldResources, owner: int, gpus: int, sign: int, group: int) -> None:
    use.group_gpus[owner, group] += gpus
    use.group_jobs[owner, group] += sign
    use.group_total[group] += gpus


@njit(inlined=True)
def start_job(
    site: Site, jobs: Requests, use: HeldResources, rules: Rules, job: int, now_s: int
) -> None:
    """Start a job on the hosts that stand in its row."""
    first = jobs.first[job]
    last = first + jobs.hosts[job]
    take_room(site.room, jobs, job, site.held[first:last], site.taken[first:last])
    _count_use(use, jobs, job, 1)
    if rules.backfill or rules.preempts:
        add_running(site.running, job, now_s + jobs.limit[job])


@njit(inlined=True)
def end_job(site: Site, jobs: Requests, use: HeldResources, rules: Rules, job: int) -> None:
    """Take back what a job held."""
    first = jobs.first[job]
    last = first + jobs.hosts[job]
    give_room(site.room, jobs, job, site.held[first:last], site.taken[first:last])
    _count_use(use, jobs, job, -1)
    if rules.backfill or rules.preempts:
        remove_running(site.running, job)


@njit(inlined=True)
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


@njit(inlined=True)
def run_main_pass(
    site: Site,
    jobs: Requests,
    use: HeldResources,
    rules: Rules,
    order: Ints,
    now_s: int,
    outcome: Outcome,
) -> None:
    """Start jobs in order; who does not fit closes its partition's hosts to those behind."""
    outcome.counts[0] = 0
    outcome.counts[1] = 0
    limits = rules.max_gpus_per_user + rules.max_jobs_per_user + rules.max_gpus_per_project
    limited = limits > 0 or _has_limit(use.group_limits)
    left = len(use.closed)
    for partition in range(left):
        use.closed[partition] = 0
    for word in range(len(site.unblocked)):
        site.unblocked[word] = ~np.uint64(0)
    for i in range(len(order)):
        job = order[i]
        if use.closed[jobs.partition[job]] or (limited and is_limited(use, jobs, rules, job)):
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
        # Who asks for more hosts than are in service waits, but not at the head of the line.
        if jobs.hosts[job] > site.pool_hosts[jobs.pool[job]]:
            continue
        use.closed[jobs.partition[job]] = 1
        left -= 1
        if left == 0:
            return
        for word in range(len(site.unblocked)):
            site.unblocked[word] &= ~site.partitions[jobs.partition[job], word]


@njit()
def _find_next_victim(running: Running, jobs: Requests, job: int, last: int) -> int:
    """Return the place of whom to evict after another (−1: first): the lowest, the youngest."""
    best = -1
    for i in range(running.counts[0]):
        if jobs.tier[running.job[i]] >= jobs.tier[job]:
            continue
        if last >= 0 and not _goes_before(running, jobs, last, i):
            continue
        if best < 0 or _goes_before(running, jobs, i, best):
            best = i
    return best


@njit()
def _goes_before(running: Running, jobs: Requests, one: int, other: int) -> bool:
    """Return whether one that runs is evicted before another."""
    tier, other_tier = jobs.tier[running.job[one]], jobs.tier[running.job[other]]
    if tier != other_tier:
        return bool(tier < other_tier)
    began = running.end[one] - jobs.limit[running.job[one]]
    other_began = running.end[other] - jobs.limit[running.job[other]]
    return bool(began > other_began or (began == other_began and one < other))


@njit()
def _fits_without_lower_tiers(
    site: Site, jobs: Requests, rules: Rules, job: int, chosen: Ints
) -> bool:
    """Return whether a job would fit if nobody of a lower tier ran."""
    copy_room(site.room, site.future)
    for i in range(site.running.counts[0]):
        other = site.running.job[i]
        if jobs.tier[other] < jobs.tier[job]:
            first, last = jobs.first[other], jobs.first[other] + jobs.hosts[other]
            give_room(site.future, jobs, other, site.held[first:last], site.taken[first:last])
    return bool(
        pick_hosts(site.future, jobs, job, site.allowed, rules.placement, site.stranded, chosen)
    )


@njit()
def _evict_for(
    site: Site,
    jobs: Requests,
    use: HeldResources,
    rules: Rules,
    job: int,
    chosen: Ints,
    outcome: Outcome,
) -> bool:
    """Evict as few jobs of lower tiers as make room, the lowest and youngest first."""
    if not _fits_without_lower_tiers(site, jobs, rules, job, chosen):
        return False
    copy_room(site.room, site.future)
    victim = _find_next_victim(site.running, jobs, job, -1)
    while victim >= 0:
        other = site.running.job[victim]
        first, last = jobs.first[other], jobs.first[other] + jobs.hosts[other]
        give_room(site.future, jobs, other, site.held[first:last], site.taken[first:last])
        if pick_hosts(site.future, jobs, job, site.allowed, rules.placement, site.stranded, chosen):
            _evict_from(site, jobs, use, rules, job, chosen, outcome)
            return True
        victim = _find_next_victim(site.running, jobs, job, victim)
    return False


@njit()
def _evict_from(
    site: Site,
    jobs: Requests,
    use: HeldResources,
    rules: Rules,
    job: int,
    chosen: Ints,
    outcome: Outcome,
) -> None:
    """End victims on the chosen hosts until the job fits there."""
    for word in range(len(site.before)):
        site.before[word] = np.uint64(0)
    for host in chosen:
        site.before[host >> 6] |= np.uint64(1) << np.uint64(host & 63)
    while not pick_hosts(site.room, jobs, job, site.before, rules.placement, site.stranded, chosen):
        victim = _find_victim_on_hosts(site, jobs, job)
        if victim < 0:
            return
        other = site.running.job[victim]
        end_job(site, jobs, use, rules, other)
        outcome.evicted[outcome.counts[1]] = other
        outcome.counts[1] += 1


@njit()
def _find_victim_on_hosts(site: Site, jobs: Requests, job: int) -> int:
    """Return the place of whom to evict first of those on the hosts of ``site.before``; or −1."""
    running, best = site.running, -1
    for i in range(running.counts[0]):
        other = running.job[i]
        if jobs.tier[other] >= jobs.tier[job]:
            continue
        first = jobs.first[other]
        touches = covers_any(site.held[first : first + jobs.hosts[other]], site.before)
        if touches and (best < 0 or _goes_before(running, jobs, i, best)):
            best = i
    return best


@njit()
def run_backfill_pass(
    site: Site,
    jobs: Requests,
    use: HeldResources,
    rules: Rules,
    order: Ints,
    now_s: int,
    outcome: Outcome,
) -> None:
    """Start jobs that delay nobody whose hosts are kept; keep hosts for those that wait."""
    outcome.counts[0] = 0
    outcome.counts[1] = 0
    site.plans.counts[0] = site.plans.counts[1]
    limits = rules.max_gpus_per_user + rules.max_jobs_per_user + rules.max_gpus_per_project
    limited = limits > 0 or _has_limit(use.group_limits)
    tested, kept = 0, False
    reach = len(order) if limited else min(len(order), rules.depth)
    i = -1
    last = _find_last_candidate(site, jobs, rules, order[:reach], i + 1, now_s)
    while i < last:
        i += 1
        job = order[i]
        if limited and is_limited(use, jobs, rules, job):
            continue
        if jobs.hosts[job] > site.pool_hosts[jobs.pool[job]]:
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
        if at < NEVER:
            last = _find_last_candidate(site, jobs, rules, order[: last + 1], i + 1, now_s)


@njit()
def _find_last_candidate(
    site: Site, jobs: Requests, rules: Rules, order: Ints, begin: int, now_s: int
) -> int:
    """Return the last place whose job could start now, −1 if nobody can.

    Within a pass room and open hosts only get fewer, and plans of those behind change nothing.
    """
    failed = -1
    for i in range(len(order) - 1, begin - 1, -1):
        job = order[i]
        if failed >= 0 and _asks_as_much(jobs, job, failed):
            continue
        first = jobs.first[job]
        chosen = site.held[first : first + jobs.hosts[job]]
        if _starts_beside(site, jobs, rules, job, now_s, chosen):
            return i
        pool = site.pools[jobs.pool[job]]
        if not pick_hosts(site.room, jobs, job, pool, rules.placement, site.stranded, chosen):
            failed = job
    return -1


@njit()
def _asks_as_much(jobs: Requests, job: int, other: int) -> bool:
    """Return whether a job cannot fit where another does not."""
    return bool(
        jobs.pool[job] == jobs.pool[other]
        and jobs.share[job] == jobs.share[other]
        and jobs.gpus[job] >= jobs.gpus[other]
        and jobs.hosts[job] >= jobs.hosts[other]
        and jobs.cpus[job] >= jobs.cpus[other]
        and jobs.memory[job] >= jobs.memory[other]
    )


@njit()
def _starts_beside(
    site: Site, jobs: Requests, rules: Rules, job: int, now_s: int, chosen: Ints
) -> bool:
    """Return whether a job fits now without touching hosts that are kept before it ends."""
    if jobs.share[job] == WHOLE_GPU and jobs.gpus[job] > find_biggest(site.room):
        return False
    # Slurm counts the last second as kept, EASY as it was published does not.
    end = now_s + jobs.limit[job] - (1 if rules.backfill == EASY else 0)
    list_open_hosts(
        site.plans, site.pools[jobs.pool[job]], jobs.owner[job], now_s, end, site.allowed
    )
    return bool(
        pick_hosts(site.room, jobs, job, site.allowed, rules.placement, site.stranded, chosen)
    )
