"""The event-driven replay of recorded jobs: a pass of the scheduler per moment of change.

The passes are the simulator's (``marey.sim.passes``); here stand the line in its order, the ends of
what runs and the moments at which a scheduler looks: its main pass at ends and submissions, its
backfill no sooner than its interval after the last one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from marey.sim.passes.compiling import njit
from marey.sim.passes.host_room import NEVER, WHOLE_GPU, Floats, Ints, Requests, Words, is_set
from marey.sim.passes.planned_starts import Rules, Site
from marey.sim.passes.scheduler_passes import (
    HeldResources,
    Outcome,
    end_job,
    run_backfill_pass,
    run_main_pass,
    start_job,
)

HEAD, TAIL, RUNNING = 0, 1, 2


class RecordedChanges(NamedTuple):
    """What happens beside submissions and ends, whatever the policy is, in order of time (ms)."""

    # Who leaves the line if it has not started by then, and how long jobs waited before they join.
    leave_at: Ints
    leave_job: Ints
    aged: Ints
    # Hosts that go out of service (−1) or come back (1), and the pools without outages.
    host_at: Ints
    host: Ints
    host_change: Ints
    outages: Ints
    whole_pools: Words
    # GPUs that owners take (or give back) where this replay does not see it.
    use_at: Ints
    use_owner: Ints
    use_gpus: Ints
    held_outside: Ints


class Moments(NamedTuple):
    """When jobs come and how long they hold their hosts (ms); when a scheduler looks."""

    submit: Ints
    run: Ints
    # Ends of reservations, at which somebody may start.
    wakes: Ints
    backfill_every: int
    # A submission is looked at no sooner than this after the last pass.
    submit_delay: int
    # A scheduler that looks only so often (0: at every change) sees all that happened since.
    tick: int
    keeps_progress: int
    # So many jobs run from the first moment on, on the hosts that stand in their rows.
    running_first: int
    changes: RecordedChanges


class Order(NamedTuple):
    """How priority is computed: the part that is fixed, and what ages or follows use."""

    fixed: Floats
    share: Floats
    recalculate: int
    age_weight: float
    max_age: float
    share_weight: float
    half_life: float
    dynamic: int


class WaitingLine(NamedTuple):
    """The waiting line, what runs (a heap of ends), and the answer."""

    waiting: Ints
    priority: Floats
    ends: Ints
    ending: Ints
    # End that counts for each job: an evicted one's older end is ignored.
    end_at: Ints
    joined: Ints
    start: Ints
    waited: Ints
    left: Ints
    evictions: Ints
    usage: Floats
    counts: Ints
    # GPU-ms: free, of them stranded, run in vain.
    sums: Floats


def build_line(run: Ints, owners: int) -> WaitingLine:
    """Return an empty line with room for all the jobs."""
    jobs = len(run)
    return WaitingLine(
        waiting=np.empty(jobs + 1, np.int64),
        priority=np.zeros(jobs),
        ends=np.empty(2 * jobs + 1, np.int64),
        ending=np.empty(2 * jobs + 1, np.int64),
        end_at=np.full(jobs, -1, np.int64),
        joined=np.zeros(jobs, np.int64),
        start=np.full(jobs, -1, np.int64),
        waited=np.zeros(jobs, np.int64),
        left=run.copy(),
        evictions=np.zeros(jobs, np.int64),
        usage=np.zeros(owners),
        counts=np.zeros(3, np.int64),
        sums=np.zeros(3),
    )


@njit()
def _drop_old_ends(line: WaitingLine) -> None:
    """Forget the ends that evictions have made void."""
    used = line.counts[RUNNING]
    line.counts[RUNNING] = 0
    for i in range(used):
        at, job = line.ends[i], line.ending[i]
        if line.end_at[job] == at:
            _sift_up(line, at, job)


@njit()
def _push_end(line: WaitingLine, at: int, job: int) -> None:
    if line.counts[RUNNING] == len(line.ends):
        _drop_old_ends(line)
    _sift_up(line, at, job)


@njit()
def _sift_up(line: WaitingLine, at: int, job: int) -> None:
    i = line.counts[RUNNING]
    while i > 0:
        up = (i - 1) >> 1
        if line.ends[up] <= at:
            break
        line.ends[i], line.ending[i] = line.ends[up], line.ending[up]
        i = up
    line.ends[i], line.ending[i] = at, job
    line.counts[RUNNING] += 1


@njit()
def _pop_end(line: WaitingLine) -> int:
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


@njit()
def _compute_priority(line: WaitingLine, order: Order, owner: int, job: int, waited: int) -> float:
    """Return a job's priority; Slurm's are whole numbers, so less than one apart is equal."""
    if not order.dynamic:
        return float(np.floor(order.fixed[job]))
    age = min(1.0, waited / order.max_age) if order.max_age > 0 else 0.0
    factor = 1.0
    total = 0.0
    if order.share_weight > 0:
        for used in line.usage:
            total += used
    if total > 0:
        part = line.usage[owner] / total
        factor = 2.0 ** (-part / max(order.share[owner], 1e-9))
    value = order.fixed[job] + order.age_weight * age + order.share_weight * factor
    return float(np.floor(value))


@njit()
def _join_line(line: WaitingLine, job: int) -> None:
    """Put a job behind those of its priority that came before it."""
    if line.counts[TAIL] == len(line.waiting):
        many = line.counts[TAIL] - line.counts[HEAD]
        for place in range(many):
            line.waiting[place] = line.waiting[line.counts[HEAD] + place]
        line.counts[HEAD], line.counts[TAIL] = 0, many
    i = line.counts[TAIL]
    while i > line.counts[HEAD]:
        other = line.waiting[i - 1]
        if _comes_before(line, other, job):
            break
        line.waiting[i] = other
        i -= 1
    line.waiting[i] = job
    line.counts[TAIL] += 1


@njit()
def _sort_line(line: WaitingLine, jobs: Requests, moments: Moments, order: Order, now: int) -> None:
    """Compute all priorities anew and put the line in their order (Shell's sort, in place)."""
    waiting = line.waiting[line.counts[HEAD] : line.counts[TAIL]]
    for job in waiting:
        waited = now - moments.submit[job] + moments.changes.aged[job]
        line.priority[job] = _compute_priority(line, order, jobs.owner[job], job, waited)
    gap = 1
    while gap < len(waiting) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for place in range(gap, len(waiting)):
            job, i = waiting[place], place
            while i >= gap and _comes_before(line, job, waiting[i - gap]):
                waiting[i] = waiting[i - gap]
                i -= gap
            waiting[i] = job
        gap //= 3


@njit()
def _comes_before(line: WaitingLine, job: int, other: int) -> bool:
    """Return whether a job stands before another: by priority, then by submission."""
    if line.priority[job] != line.priority[other]:
        return bool(line.priority[job] > line.priority[other])
    return job < other


@njit()
def _add_usage(
    line: WaitingLine, use: HeldResources, outside: Ints, order: Order, passed: int
) -> None:
    decay = 0.5 ** (passed / order.half_life) if order.half_life > 0 else 1.0
    for owner in range(len(line.usage)):
        held = use.gpus[owner] + outside[owner]
        line.usage[owner] = line.usage[owner] * decay + held * passed


@njit(inlined=True)
def _measure_room(line: WaitingLine, site: Site, passed: int) -> None:
    """Add to the sums what was free and what of it was stranded."""
    free, stranded = 0, 0.0
    for level in range(1, len(site.room.counts)):
        free += level * site.room.counts[level]
        stranded += site.stranded[level] * site.room.counts[level]
    line.sums[0] += free * passed
    line.sums[1] += stranded * passed


@njit(inlined=True)
def _end_jobs(
    line: WaitingLine, jobs: Requests, site: Site, use: HeldResources, rules: Rules, now: int
) -> bool:
    ended = False
    while line.counts[RUNNING] > 0 and line.ends[0] <= now:
        at = line.ends[0]
        job = _pop_end(line)
        if line.end_at[job] == at:
            line.end_at[job] = -1
            end_job(site, jobs, use, rules, job)
            ended = True
    return ended


@njit(inlined=True)
def _note_outcome(
    line: WaitingLine, jobs: Requests, moments: Moments, outcome: Outcome, now: int
) -> None:
    """Take who started out of the line, and put who was evicted back."""
    head = line.counts[HEAD]
    for k in range(outcome.counts[0]):
        at = head + outcome.started[k]
        job = line.waiting[at]
        if line.start[job] < 0:
            line.start[job] = now
        line.waited[job] += now - line.joined[job]
        line.joined[job] = now
        line.end_at[job] = now + line.left[job]
        _push_end(line, line.end_at[job], job)
    # Those before a started one move up by one; places are in ascending order.
    for k in range(outcome.counts[0]):
        for i in range(head + outcome.started[k], line.counts[HEAD], -1):
            line.waiting[i] = line.waiting[i - 1]
        line.counts[HEAD] += 1
    for k in range(outcome.counts[1]):
        job = outcome.evicted[k]
        ran = now - line.joined[job]
        if moments.keeps_progress:
            line.left[job] = max(1, line.left[job] - ran)
        else:
            gpus = jobs.gpus[job] * jobs.hosts[job] * (jobs.share[job] / WHOLE_GPU)
            line.sums[2] += ran * gpus
        line.evictions[job] += 1
        line.end_at[job], line.joined[job] = -1, now
        _join_line(line, job)


@njit()
def _start_first(
    line: WaitingLine,
    jobs: Requests,
    moments: Moments,
    site: Site,
    use: HeldResources,
    rules: Rules,
    job: int,
) -> None:
    """Let a job run from the first moment on, on the hosts of its row, if these have room."""
    if site.held[jobs.first[job]] < 0:
        return
    now = moments.submit[job]
    line.start[job], line.joined[job] = now, now
    line.end_at[job] = now + line.left[job]
    start_job(site, jobs, use, rules, job, now // 1000)
    _push_end(line, line.end_at[job], job)


@njit()
def _change_host(site: Site, changes: RecordedChanges, place: int) -> None:
    """Take a host out of every pool, or put it back where nothing else keeps it out."""
    host = changes.host[place]
    changes.outages[host] -= changes.host_change[place]
    bit = np.uint64(1) << np.uint64(host & 63)
    word = host >> 6
    for pool in range(len(site.pools)):
        if not is_set(changes.whole_pools[pool], host):
            continue
        there = is_set(site.pools[pool], host)
        if changes.outages[host] == 0 and not there:
            site.pools[pool, word] |= bit
            site.pool_hosts[pool] += 1
        elif changes.outages[host] > 0 and there:
            site.pools[pool, word] ^= bit
            site.pool_hosts[pool] -= 1


@njit()
def _leave_line(line: WaitingLine, job: int) -> None:
    """Take a job out of the line, if it still waits."""
    if line.start[job] >= 0:
        return
    for place in range(line.counts[HEAD], line.counts[TAIL]):
        if line.waiting[place] == job:
            for i in range(place, line.counts[TAIL] - 1):
                line.waiting[i] = line.waiting[i + 1]
            line.counts[TAIL] -= 1
            return


@njit()
def _find_tick(moments: Moments, phase: int, at: int) -> Any:
    """Return the first moment from another on at which the scheduler looks."""
    if moments.tick == 0:
        return at
    return phase - (phase - at) // moments.tick * moments.tick


@njit()
def replay_jobs(
    jobs: Requests,
    moments: Moments,
    site: Site,
    use: HeldResources,
    line: WaitingLine,
    order: Order,
    rules: Rules,
    outcome: Outcome,
    phase: int,
) -> None:
    """Replay the jobs into ``line.start`` (−1: never) and ``line.waited``."""
    next_job, many, next_wake = 0, len(moments.submit), 0
    changes = moments.changes
    next_leave, next_host, next_use = 0, 0, 0
    eventful = len(changes.leave_at) + len(changes.host_at) + len(changes.use_at) > 0
    before: Any = moments.submit[0]
    main_at, last_main = NEVER, before - moments.submit_delay
    fill_at, last_fill = NEVER, before - phase
    sorted_at = before
    for job in range(moments.running_first):
        _start_first(line, jobs, moments, site, use, rules, job)
    while True:
        now: Any = min(main_at, fill_at)
        if next_job < many:
            now = min(now, moments.submit[next_job])
        if line.counts[RUNNING] > 0:
            now = min(now, line.ends[0])
        if next_wake < len(moments.wakes) and line.counts[TAIL] > line.counts[HEAD]:
            now = min(now, moments.wakes[next_wake])
        if eventful and (line.counts[TAIL] > line.counts[HEAD] or next_job < many):
            if next_leave < len(changes.leave_at):
                now = min(now, changes.leave_at[next_leave])
            if next_host < len(changes.host_at):
                now = min(now, changes.host_at[next_host])
            if next_use < len(changes.use_at):
                now = min(now, changes.use_at[next_use])
        if now == NEVER:
            return
        if now > before:
            _measure_room(line, site, now - before)
            if order.share_weight > 0:
                _add_usage(line, use, changes.held_outside, order, now - before)
            before = now
        if _end_jobs(line, jobs, site, use, rules, now):
            main_at = min(main_at, _find_tick(moments, phase, now))
        while next_wake < len(moments.wakes) and moments.wakes[next_wake] <= now:
            next_wake += 1
            main_at = now
        if eventful:
            while next_use < len(changes.use_at) and changes.use_at[next_use] <= now:
                changes.held_outside[changes.use_owner[next_use]] += changes.use_gpus[next_use]
                next_use += 1
            while next_host < len(changes.host_at) and changes.host_at[next_host] <= now:
                _change_host(site, changes, next_host)
                next_host += 1
                main_at = min(main_at, _find_tick(moments, phase, now))
            while next_leave < len(changes.leave_at) and changes.leave_at[next_leave] <= now:
                _leave_line(line, changes.leave_job[next_leave])
                next_leave += 1
                main_at = min(main_at, _find_tick(moments, phase, now))
        while next_job < many and moments.submit[next_job] <= now:
            if line.start[next_job] >= 0:
                next_job += 1
                continue
            line.joined[next_job] = now
            line.priority[next_job] = _compute_priority(
                line, order, jobs.owner[next_job], next_job, changes.aged[next_job]
            )
            _join_line(line, next_job)
            next_job += 1
            sent = max(now, last_main + moments.submit_delay)
            main_at = min(main_at, _find_tick(moments, phase, sent))
        if line.counts[TAIL] == line.counts[HEAD]:
            main_at, fill_at = NEVER, NEVER
            continue
        if order.dynamic and now >= sorted_at + order.recalculate:
            _sort_line(line, jobs, moments, order, now)
            sorted_at = now
        if main_at <= now:
            waiting = line.waiting[line.counts[HEAD] : line.counts[TAIL]]
            run_main_pass(site, jobs, use, rules, waiting, now // 1000, outcome)
            _note_outcome(line, jobs, moments, outcome, now)
            # Who was evicted is looked at a second later.
            main_at = now + 1000 if outcome.counts[1] > 0 else NEVER
            last_main = now
            if rules.backfill:
                fill_at = max(now, last_fill + moments.backfill_every)
        if fill_at <= now:
            waiting = line.waiting[line.counts[HEAD] : line.counts[TAIL]]
            run_backfill_pass(site, jobs, use, rules, waiting, now // 1000, outcome)
            _note_outcome(line, jobs, moments, outcome, now)
            fill_at, last_fill = NEVER, now
