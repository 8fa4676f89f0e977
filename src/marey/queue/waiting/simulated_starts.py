"""When waiting workloads start, by simulating the line as it is: what a site without history begins
with.

Each of several futures lets what runs and what waits end after a share of its time limit, drawn
from the shares that ended workloads used (or a broad guess), lets the like of the last day's
submissions come again, and replays the line with EASY backfill: within 0.1 of a decade of planning
every job as Slurm does, at a sixth of the cost. The spread of the futures is the interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marey.queue.policy.policy import Policy
from marey.queue.policy.policy_replay import replay_policy
from marey.queue.policy.recorded_jobs import RecordedJobs
from marey.queue.waiting.arrivals import Arrival, RecentArrivals, draw_arrivals
from marey.queue.waiting.explanation import is_held
from marey.queue.waiting.forecast_record import StartForecast
from marey.queue.waiting.line import Holder, HostRoom, Line, Waiter, list_fitting_hosts
from marey.queue.waiting.run_shares import GUESSED, RunShares, find_class

FUTURES = 32
# Without a limit a workload is taken to run for a day at most.
_NO_LIMIT_S = 86400
# What stands on GPUs that nobody holds: gone at once, or never.
_FREE, _OUT, _OUT_MS = "\x00free", "\x00out", 365 * 86_400_000
# So many from the fronts of the lines are simulated; those behind get no forecast.
LINE_LIMIT = 2000
# So many come later in a simulated future: as many as wait, or a few.
_FEW_ARRIVALS = 1000

# Futures differ in how much is submitted (log) and, where priorities move, in the order of the line
# (a part of it). Without, a third of simulated sites' waits fell inside the 80 % interval, with it
# two thirds.
_DEMAND_SPREAD, _RANK_SPREAD = 0.35, 0.2

HostNames = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """Who competes for the same hosts: those who wait, and the like of those who came lately."""

    waiters: list[Waiter]
    hosts: list[HostRoom]
    arrivals: list[Arrival]


def simulate_starts(
    line: Line,
    *,
    shares: RunShares = GUESSED,
    recent: RecentArrivals | None = None,
    only: str | None = None,
    futures: int = FUTURES,
    seed: int = 0,
) -> dict[str, StartForecast]:
    """Return a forecast per waiting workload of the fronts of the lines, hosts by hosts; of those
    that compete with one workload where ``only`` names it.
    """
    recent = recent or RecentArrivals()
    found: dict[str, StartForecast] = {}
    # Who is held back by a limit or a dependency does not stand in line: nothing tells its start.
    asking = [waiter for waiter in line.waiters if not is_held(waiter)]
    for group in _cut_lines(_split_by_hosts(line, asking, recent)):
        if only is not None and all(waiter.workload != only for waiter in group.waiters):
            continue
        found |= _simulate_group(
            line, group, recent, shares=np.asarray(shares), futures=futures, seed=seed
        )
    return found


def join_line(line: Line, request: Waiter) -> Line:
    """Return the line with a request in it, behind all that have its priority or a higher one."""
    behind = [w for w in line.waiters if w.priority < request.priority]
    ahead = [w for w in line.waiters if w.priority >= request.priority]
    return replace(line, waiters=[*ahead, request, *behind])


def _cut_lines(groups: Sequence[_Group]) -> list[_Group]:
    """Return the groups with the fronts of their lines, so that a short one is whole."""
    left, cut = LINE_LIMIT, []
    for i, group in enumerate(sorted(groups, key=lambda group: len(group.waiters))):
        front = group.waiters[: left // (len(groups) - i)]
        left -= len(front)
        cut.append(replace(group, waiters=front))
    return cut


def _split_by_hosts(line: Line, asking: Sequence[Waiter], recent: RecentArrivals) -> list[_Group]:
    """Return groups of waiters that compete for the same hosts."""
    known: dict[tuple[str, str], tuple[HostNames, list[HostRoom]]] = {}

    def find_hosts(waiter: Waiter) -> tuple[HostNames, list[HostRoom]]:
        asked = (waiter.partition, waiter.model)
        if asked not in known:
            hosts = [host for host in list_fitting_hosts(line, waiter) if host.usable]
            known[asked] = tuple(host.host for host in hosts), hosts
        return known[asked]

    groups: dict[HostNames, _Group] = {}
    for waiter in asking:
        names, hosts = find_hosts(waiter)
        groups.setdefault(names, _Group([], hosts, [])).waiters.append(waiter)
    for arrival in recent.rows:
        names, _ = find_hosts(arrival.as_waiter())
        if names in groups:
            groups[names].arrivals.append(arrival)
    return [group for names, group in groups.items() if names]


def _simulate_group(
    line: Line,
    group: _Group,
    recent: RecentArrivals,
    *,
    shares: NDArray[np.float64],
    futures: int,
    seed: int,
) -> dict[str, StartForecast]:
    draws = np.random.default_rng(seed)
    waiters = group.waiters
    # Of equal hosts the first takes a job, of others the smallest: so each gets its own holders.
    hosts = sorted(group.hosts, key=lambda host: host.gpus)
    holders = [holder for host in hosts for holder in _fill_host(host, line.time_ms)]
    free = np.array([holder.workload == _FREE for holder in holders], np.bool_)
    base = _build_jobs(line, holders, group, hosts)
    present = len(holders) + len(waiters)
    policy = Policy(
        order="multifactor",
        weights={"recorded": 1.0},
        backfill="easy",
        start_lag_s=(1.0, 5.0),
        depth=100,
    )
    # In the order of submission nobody is overtaken, and nothing moves.
    moving = sum(arrival.overtakes > 0 for arrival in group.arrivals)
    spread = _RANK_SPREAD * 2.0 * len(waiters) * moving / max(len(group.arrivals), 1)
    starts = np.full((futures, len(waiters)), np.nan)
    for i in range(futures):
        came, after_ms = draw_arrivals(
            recent,
            group.arrivals,
            demand=float(np.exp(draws.normal(0.0, _DEMAND_SPREAD))),
            now_ms=line.time_ms,
            limit=max(_FEW_ARRIVALS, len(waiters)),
            draws=draws,
        )
        jobs = _let_come(base, present, came, after_ms)
        jobs.priority[len(holders) : present] += draws.normal(0.0, spread, len(waiters))
        share = _draw_shares(shares, jobs.limit_ms, draws)
        share[: len(holders)] = _draw_rests(holders, line.time_ms, shares, draws)
        run_ms = np.maximum(1000, jobs.limit_ms * share).astype(np.int64)
        run_ms[: len(holders)][free] = 1
        replayed = replay_policy(replace(jobs, run_ms=run_ms), policy, replays=1, seed=seed + i)
        starts[i] = replayed.wait_s[len(holders) : present]
    return {w.workload: _summarise(w.workload, starts[:, i]) for i, w in enumerate(waiters)}


def _let_come(
    base: RecordedJobs, present: int, came: NDArray[np.int64], after_ms: NDArray[np.int64]
) -> RecordedJobs:
    """Return who is there, and behind them the chosen of those who may come."""
    rows = np.concatenate([np.arange(present), present + came])
    return replace(
        base,
        ids=tuple(str(i) for i in range(len(rows))),
        submit_ms=np.concatenate([np.zeros(present, np.int64), after_ms]),
        start_ms=base.start_ms[rows],
        run_ms=base.run_ms[rows],
        limit_ms=base.limit_ms[rows],
        gpus_per_host=base.gpus_per_host[rows],
        hosts=base.hosts[rows],
        owner=base.owner[rows],
        priority=base.priority[rows],
    )


def _fill_host(host: HostRoom, now_ms: int) -> Iterator[Holder]:
    """Yield who holds each GPU of a host, those that are free or out of service included.

    The replay places what runs by itself; hosts that are full to the last GPU leave it no choice,
    so that free GPUs stay scattered as they are.
    """
    left = host.gpus
    for holder in host.holders:
        # Workloads that share a GPU hold it once.
        if gpus := min(holder.gpus, left):
            yield replace(holder, gpus=gpus)
        left -= gpus
    free = min(host.free, left)
    if free:
        yield Holder(_FREE, free, now_ms + 1, 1)
    if left - free:
        yield Holder(_OUT, left - free, now_ms + _OUT_MS, _OUT_MS)


def _draw_shares(
    shares: NDArray[np.float64], limit_ms: NDArray[np.int64], draws: np.random.Generator
) -> NDArray[np.float64]:
    """Return which share of its limit each runs, as others of its class of limits did."""
    drawn = shares[find_class(limit_ms), draws.integers(0, shares.shape[1], len(limit_ms))]
    return np.asarray(drawn * draws.uniform(0.8, 1.0, len(limit_ms)))


def _draw_rests(
    holders: Sequence[Holder],
    now_ms: int,
    shares: NDArray[np.float64],
    draws: np.random.Generator,
) -> NDArray[np.float64]:
    """Return which part of the rest of its limit each running workload still takes.

    A workload that has used half of its limit is none of those that end after a tenth: its share is
    drawn from the larger ones only. All hosts of a workload end together.
    """
    drawn: dict[str, float] = {}
    for holder in holders:
        if holder.workload in drawn:
            continue
        if holder.workload in (_FREE, _OUT):
            drawn[holder.workload] = 1.0
            continue
        limit = holder.limit_ms or _NO_LIMIT_S * 1000
        rest = max(1, (holder.ends_ms or now_ms + limit) - now_ms)
        used = min(1.0, max(0.0, 1.0 - rest / limit))
        known = shares[int(find_class(np.array([limit]))[0])]
        larger = known[known > used]
        share = float(draws.choice(larger)) if len(larger) else 1.0
        part = (share - used) / max(1.0 - used, 1e-9)
        drawn[holder.workload] = part * float(draws.uniform(0.8, 1.0))
    return np.array([drawn[holder.workload] for holder in holders])


def _build_jobs(
    line: Line, holders: Sequence[Holder], group: _Group, hosts: Sequence[HostRoom]
) -> RecordedJobs:
    """Return running jobs (for the rest of their limits), waiting ones and those to come."""
    ends = [line.time_ms + _NO_LIMIT_S * 1000 if h.ends_ms is None else h.ends_ms for h in holders]
    coming = [arrival.as_waiter() for arrival in group.arrivals]
    asking = [*group.waiters, *coming]
    limits = [(w.limit_s or _NO_LIMIT_S) * 1000 for w in asking]
    many = len(holders) + len(asking)
    return RecordedJobs(
        ids=tuple(str(i) for i in range(many)),
        submit_ms=np.zeros(many, np.int64),
        start_ms=np.full(many, -1, np.int64),
        run_ms=np.zeros(many, np.int64),
        limit_ms=np.array([*(max(1, end - line.time_ms) for end in ends), *limits], np.int64),
        gpus_per_host=np.array([*(h.gpus for h in holders), *(max(1, w.per_host) for w in asking)]),
        hosts=np.array([*(1 for _ in holders), *(w.hosts for w in asking)], np.int64),
        owner=np.zeros(many, np.int64),
        owners=("all",),
        host_gpus=np.array([max(h.gpus, 1) for h in hosts], np.int64),
        priority=_rank(len(holders), len(group.waiters), group.arrivals),
    )


def _rank(holders: int, waiters: int, arrivals: Sequence[Arrival]) -> NDArray[np.float64]:
    """Return priorities: what runs first, who waits in their order, who comes in between.

    Who comes goes ahead of the share of the line that it overtook when it came.
    """
    waiting = 2.0 * np.arange(waiters, 0, -1)
    overtakes = np.array([arrival.overtakes for arrival in arrivals], np.float64)
    coming = 2.0 * np.floor(overtakes * waiters) + 1.0
    return np.concatenate([np.full(holders, 2.0 * waiters + 2.0), waiting, coming])


def _summarise(workload: str, starts: NDArray[np.float64]) -> StartForecast:
    known = starts[np.isfinite(starts)]
    share = len(known) / len(starts)
    if share < 0.5:
        return StartForecast(workload, None, None, None, share)
    # Of so few draws the usual quantiles lie too near to the middle: these cover what they say.
    ends = np.quantile(known, (0.1, 0.5, 0.9), method="weibull")
    low, middle, high = (float(q) for q in ends)
    return StartForecast(workload, low, middle, high if share > 0.9 else None, share)
