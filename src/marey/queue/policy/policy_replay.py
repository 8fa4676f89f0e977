"""Replay recorded jobs under a policy: waits, use and stranded GPUs; several times, where small
delays decide.

A backfilled schedule is chaotic: one second more between an end and the next start changes who fits
a gap. Each replay draws the scheduler's own delays anew, and the answer is their middle.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.model.errors import InvalidInput
from marey.queue.policy.policy import BACKFILLS, PLACEMENTS, Policy
from marey.queue.policy.recorded_jobs import WHOLE_GPU, Floats, Ints, RecordedJobs
from marey.queue.policy.replay_kernels import (
    Moments,
    Order,
    RecordedChanges,
    WaitingLine,
    build_line,
    replay_jobs,
)
from marey.queue.policy.replay_layout import (
    STARTABLE,
    ReplayLayout,
    find_reserved_hosts,
    lay_out_jobs,
)
from marey.sim.passes.host_room import Requests, build_mask, build_room
from marey.sim.passes.planned_starts import Plans, Rules, Site, build_plans, build_running
from marey.sim.passes.scheduler_passes import HeldResources, build_outcome

REPLAYS = 25
# A history longer than this is replayed once: the many jobs average the small delays out.
_LONG_HISTORY = 5000
# Where no lag is recorded: what schedulers need between an end and a start.
_USUAL_LAG_S = (1.0, 2.0)


@dataclass(frozen=True)
class ReplayedSchedule:
    """The schedule under a policy: seconds of wait per job (NaN: never starts), in the order of the
    recorded jobs.

    ``wait_s`` is the middle of the replays for each job, ``mean_wait_s`` the mean over all of them.
    """

    wait_s: Floats
    spread_s: Floats
    mean_wait_s: float
    utilization: float
    # Part of the free GPUs' time in which the typical job could not have used them.
    stranded: float
    replays: int
    verdict: Ints
    # Mean wait of each job over the replays.
    average_s: Floats
    evictions: float = 0.0
    lost_gpu_hours: float = 0.0


def replay_policy(
    jobs: RecordedJobs, policy: Policy, *, replays: int | None = None, seed: int = 0
) -> ReplayedSchedule:
    """Return the waits that the recorded jobs would have had under a policy."""
    if not len(jobs):
        raise InvalidInput("There are no recorded jobs to replay.", code="no_history")
    many = replays or (1 if len(jobs) > _LONG_HISTORY else REPLAYS)
    draws = np.random.default_rng(seed)
    layout = lay_out_jobs(jobs, policy)
    rows = np.flatnonzero(layout.verdict == STARTABLE)
    waits = np.full((many, len(jobs)), np.nan)
    sums = np.zeros((many, 4))
    low, high = find_lag(jobs, policy)
    cut_ms = jobs.resolution_s * 1000.0
    for i in range(many if len(rows) else 0):
        run_ms = jobs.run_ms[rows] + draws.uniform(low * 1000.0, high * 1000.0, len(rows))
        submit_ms = jobs.submit_ms[rows]
        if cut_ms:
            run_ms = np.maximum(1.0, run_ms + draws.uniform(-cut_ms / 2, cut_ms / 2, len(rows)))
            lost = draws.uniform(0.0, cut_ms, len(rows))
            submit_ms = np.maximum.accumulate(submit_ms + lost.astype(np.int64))
        phase = draws.uniform(0.0, max(policy.interval_s, policy.tick_s) * 1000.0)
        times = (submit_ms, run_ms.astype(np.int64), int(phase))
        line = _replay_once(jobs, policy, layout, rows=rows, times=times)
        ran = line.start >= 0
        waits[i, rows[ran]] = line.waited[ran] / 1000.0
        sums[i] = *line.sums, line.evictions.sum()
    return _summarise(jobs, layout, waits, sums)


def find_lag(jobs: RecordedJobs, policy: Policy) -> tuple[float, float]:
    """Return the shortest and longest lag of starts: the policy's, the recorded, or the usual.

    Half a tick of the recorded lag is the scheduler's own, which the replay makes itself.
    """
    if policy.start_lag_s is not None:
        return policy.start_lag_s
    if not np.isfinite(jobs.lag_s):
        return _USUAL_LAG_S
    return 0.0, 2.0 * max(0.0, jobs.lag_s - policy.tick_s / 2.0)


def _summarise(
    jobs: RecordedJobs, layout: ReplayLayout, waits: Floats, sums: Floats
) -> ReplayedSchedule:
    never = np.asarray(np.isnan(waits).all(axis=0), np.bool_)
    if len(waits) == 1:
        middle, spread = waits[0], np.where(never, np.nan, 0.0)
    else:
        safe = np.where(never, 0.0, waits)
        middle = np.where(never, np.nan, np.nanmedian(safe, axis=0))
        spread = np.where(never, np.nan, np.nanstd(safe, axis=0))
    known = waits[np.isfinite(waits)]
    free, stranded, lost, evictions = sums.mean(axis=0)
    return ReplayedSchedule(
        wait_s=middle,
        spread_s=spread,
        mean_wait_s=float(known.mean()) if len(known) else float("nan"),
        utilization=_compute_use(jobs, layout, middle),
        stranded=float(stranded / free) if free > 0 else 0.0,
        replays=len(waits),
        verdict=layout.verdict,
        average_s=_average(waits, never),
        evictions=float(evictions),
        lost_gpu_hours=float(lost / 3_600_000.0),
    )


def _average(waits: Floats, never: NDArray[np.bool_]) -> Floats:
    return np.where(never, np.nan, np.nanmean(np.where(never, 0.0, waits), axis=0))


def select_schedule(replayed: ReplayedSchedule, chosen: NDArray[np.bool_]) -> ReplayedSchedule:
    """Return the part of a schedule that is about some of the jobs."""
    average = replayed.average_s[chosen]
    known = average[np.isfinite(average)]
    return dataclasses.replace(
        replayed,
        wait_s=replayed.wait_s[chosen],
        spread_s=replayed.spread_s[chosen],
        average_s=average,
        verdict=replayed.verdict[chosen],
        mean_wait_s=float(known.mean()) if len(known) else float("nan"),
    )


def _replay_once(
    jobs: RecordedJobs,
    policy: Policy,
    layout: ReplayLayout,
    *,
    rows: Ints,
    times: tuple[Ints, Ints, int],
) -> WaitingLine:
    """Return one replay of submissions, run times and a scheduler's phase; jobs that can never
    start as asked stay out of the line.
    """
    submit, run, phase_ms = times
    requests = layout.requests
    if len(rows) < len(jobs):
        kept = Requests(*(column[rows] for column in requests))
        requests = kept._replace(first=np.cumsum(kept.hosts) - kept.hosts)
    line = build_line(run, len(jobs.owners))
    site = _build_site(layout, policy, requests, first_ms=int(submit[0]), owners=jobs.owners)
    use = HeldResources(
        gpus=np.zeros(len(jobs.owners), np.int64),
        jobs=np.zeros(len(jobs.owners), np.int64),
        project_gpus=np.zeros(max(1, len(jobs.projects)), np.int64),
        group_gpus=np.zeros((len(jobs.owners), len(layout.group_limits)), np.int64),
        group_jobs=np.zeros((len(jobs.owners), len(layout.group_limits)), np.int64),
        group_total=np.zeros(len(layout.group_limits), np.int64),
        group_limits=layout.group_limits,
        closed=np.zeros(len(layout.partitions), np.int64),
    )
    reserved = site.plans.counts[1]
    moments = Moments(
        submit=submit,
        run=run,
        wakes=np.sort(site.plans.end[:reserved]) * 1000,
        backfill_every=int(policy.interval_s * 1000.0),
        submit_delay=int(policy.submit_delay_s * 1000.0),
        tick=int(policy.tick_s * 1000.0),
        keeps_progress=int(policy.preemption.mode == "resume"),
        running_first=_place_first(layout, site, rows, requests),
        changes=_list_changes(jobs, layout, rows, submit),
    )
    if len(jobs.other_use.before):
        line.usage[:] = jobs.other_use.before
    order = _build_order(jobs, policy, layout.fixed[rows])
    rules = _build_rules(policy)
    outcome = build_outcome(len(rows))
    replay_jobs(requests, moments, site, use, line, order, rules, outcome, phase_ms)
    return line


def _place_first(layout: ReplayLayout, site: Site, rows: Ints, requests: Requests) -> int:
    """Note the hosts of what runs from the first moment on; return how many jobs to look at."""
    if not (layout.first_hosts >= 0).any():
        return 0
    hosts = layout.requests.hosts
    taken = np.repeat(np.isin(np.arange(len(hosts)), rows), hosts)
    site.held[:] = layout.first_hosts[taken]
    first = np.flatnonzero(site.held[requests.first] >= 0)
    return int(first[-1]) + 1 if len(first) else 0


def _list_changes(
    jobs: RecordedJobs, layout: ReplayLayout, rows: Ints, submit: Ints
) -> RecordedChanges:
    """Return what happens beside submissions and ends, whatever the policy is."""
    leave = jobs.fill("leave_ms", -1)[rows]
    leaving = np.flatnonzero(leave >= 0)
    # Nobody leaves before it came, however the delays were drawn.
    leave_at = np.maximum(leave[leaving], submit[leaving])
    order = np.argsort(leave_at, kind="stable")
    moments, hosts, changes = layout.outages
    other = jobs.other_use
    return RecordedChanges(
        leave_at=leave_at[order],
        leave_job=leaving[order],
        aged=jobs.fill("aged_ms", 0)[rows],
        host_at=moments,
        host=hosts,
        host_change=changes,
        outages=np.zeros(len(layout.hosts.gpus), np.int64),
        whole_pools=layout.pools,
        use_at=other.at_ms,
        use_owner=other.owner,
        use_gpus=other.gpus,
        held_outside=np.zeros(len(jobs.owners), np.int64),
    )


def _build_site(
    layout: ReplayLayout,
    policy: Policy,
    requests: Requests,
    *,
    first_ms: int,
    owners: tuple[str, ...],
) -> Site:
    table = layout.hosts
    shared = bool((requests.share < WHOLE_GPU).any())
    words = layout.pools.shape[1]
    held = int(requests.hosts.sum())
    plans = build_plans(policy.depth + len(policy.reservations) + 1, words)
    _reserve(plans, policy, layout, first_s=first_ms // 1000, owners=owners)

    rooms = [build_room(table.gpus, table.cpus, table.memory_mb, shared=shared) for _ in range(2)]
    return Site(
        room=rooms[0],
        future=rooms[1],
        running=build_running(len(requests.gpus)),
        plans=plans,
        held=np.zeros(held, np.int64),
        taken=np.zeros(held, np.uint64),
        pools=layout.pools.copy(),
        pool_hosts=np.bitwise_count(layout.pools).sum(axis=1).astype(np.int64),
        partitions=layout.partitions,
        stranded=layout.stranded,
        allowed=np.zeros(words, np.uint64),
        before=np.zeros(words, np.uint64),
        unblocked=np.zeros(words, np.uint64),
    )


def _reserve(
    plans: Plans, policy: Policy, layout: ReplayLayout, *, first_s: int, owners: tuple[str, ...]
) -> None:
    for i, reservation in enumerate(policy.reservations):
        plans.begin[i] = first_s + int(reservation.begin_s)
        plans.end[i] = first_s + int(reservation.end_s)
        plans.hosts[i] = build_mask(find_reserved_hosts(reservation, layout.hosts))
        plans.owner[i] = owners.index(reservation.user) if reservation.user in owners else -1
    plans.counts[:] = len(policy.reservations)


def _build_order(jobs: RecordedJobs, policy: Policy, fixed: Floats) -> Order:
    weights = policy.weights
    return Order(
        fixed=fixed,
        share=np.full(len(jobs.owners), max(policy.dampening, 1e-9) / len(jobs.owners)),
        recalculate=int(policy.recalculate_s * 1000.0),
        age_weight=float(weights.get("age", 0.0)),
        max_age=float(policy.max_age_s * 1000.0),
        share_weight=float(weights.get("fairshare", 0.0)) if policy.is_dynamic else 0.0,
        half_life=float(policy.half_life_s * 1000.0),
        dynamic=int(policy.is_dynamic),
    )


def _build_rules(policy: Policy) -> Rules:
    limits = policy.limits
    return Rules(
        backfill=BACKFILLS.index(policy.backfill),
        placement=PLACEMENTS.index(policy.placement),
        depth=policy.depth,
        window_s=int(policy.window_s),
        resolution_s=int(policy.resolution_s),
        preempts=int(policy.preemption.mode != "off"),
        max_gpus_per_user=int(limits.get("max_gpus_per_user", 0)),
        max_jobs_per_user=int(limits.get("max_jobs_per_user", 0)),
        max_gpus_per_project=int(limits.get("max_gpus_per_project", 0)),
    )


def _compute_use(jobs: RecordedJobs, layout: ReplayLayout, wait_s: Floats) -> float:
    """Return the part of the GPUs' time that was held between the first submission and the last
    end.
    """
    ran = np.isfinite(wait_s)
    if not ran.any():
        return 0.0
    end = jobs.submit_ms[ran] + wait_s[ran] * 1000.0 + jobs.run_ms[ran]
    gpus = jobs.gpus[ran] * (layout.requests.share[ran] / WHOLE_GPU)
    span = float(end.max() - jobs.submit_ms.min())
    return float((jobs.run_ms[ran] * gpus).sum() / max(span * layout.hosts.gpus.sum(), 1.0))
