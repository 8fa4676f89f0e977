"""When waiting workloads start, by simulating the line as it is: what a site without history begins
with.

Each of several futures lets what runs and what waits end after a share of its time limit, drawn
from the shares that ended workloads used (or a broad guess), and replays the line with EASY
backfill: within 0.1 of a decade of planning every job as Slurm does, at a sixth of the cost. The
spread of the futures is the interval; its coverage is not yet known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from marey.queue.policy.policy import Policy
from marey.queue.policy.policy_replay import replay_policy
from marey.queue.policy.recorded_jobs import RecordedJobs
from marey.queue.waiting.explanation import is_held
from marey.queue.waiting.forecast_record import GUESSED_SHARES, StartForecast
from marey.queue.waiting.line import Holder, HostRoom, Line, Waiter, list_fitting_hosts

FUTURES = 32
# Without a limit a workload is taken to run for a day at most.
_NO_LIMIT_S = 86400
# What stands on GPUs that nobody holds: gone at once, or never.
_FREE, _OUT, _OUT_MS = "\x00free", "\x00out", 365 * 86_400_000
# So many from the front of the line are simulated; those behind get no forecast.
LINE_LIMIT = 2000


def simulate_starts(
    line: Line, *, shares: Sequence[float] = GUESSED_SHARES, futures: int = FUTURES, seed: int = 0
) -> dict[str, StartForecast]:
    """Return a forecast per waiting workload of the front of the line, partition by partition."""
    found: dict[str, StartForecast] = {}
    # Who is held back by a limit or a dependency does not stand in line: nothing tells its start.
    front = [waiter for waiter in line.waiters if not is_held(waiter)][:LINE_LIMIT]
    for group in _split_by_hosts(line, front):
        found |= _simulate_group(
            line, *group, shares=np.asarray(shares), futures=futures, seed=seed
        )
    return found


def join_line(line: Line, request: Waiter) -> Line:
    """Return the line with a request in it, behind all that have its priority or a higher one."""
    behind = [w for w in line.waiters if w.priority < request.priority]
    ahead = [w for w in line.waiters if w.priority >= request.priority]
    return replace(line, waiters=[*ahead, request, *behind])


def _split_by_hosts(
    line: Line, front: Sequence[Waiter]
) -> list[tuple[list[Waiter], list[HostRoom]]]:
    """Return groups of waiters that compete for the same hosts."""
    groups: dict[tuple[str, ...], tuple[list[Waiter], list[HostRoom]]] = {}
    for waiter in front:
        hosts = [host for host in list_fitting_hosts(line, waiter) if host.usable]
        key = tuple(host.host for host in hosts)
        groups.setdefault(key, ([], hosts))[0].append(waiter)
    return [group for key, group in groups.items() if key]


def _simulate_group(
    line: Line,
    waiters: list[Waiter],
    hosts: list[HostRoom],
    *,
    shares: NDArray[np.float64],
    futures: int,
    seed: int,
) -> dict[str, StartForecast]:
    draws = np.random.default_rng(seed)
    # Of equal hosts the first takes a job, of others the smallest: so each gets its own holders.
    hosts = sorted(hosts, key=lambda host: host.gpus)
    holders = [holder for host in hosts for holder in _fill_host(host, line.time_ms)]
    running = [(h.gpus, h.ends_ms) for h in holders]
    base = _build_jobs(line, running, waiters, hosts)
    policy = Policy(backfill="easy", start_lag_s=(1.0, 5.0), depth=100)
    starts = np.full((futures, len(waiters)), np.nan)
    for i in range(futures):
        share = draws.choice(shares, len(base)) * draws.uniform(0.8, 1.0, len(base))
        share[: len(holders)] = _draw_rests(holders, line.time_ms, shares, draws)
        run_ms = np.maximum(1000, base.limit_ms * share).astype(np.int64)
        run_ms[: len(holders)] = np.where(
            [h.workload == _FREE for h in holders], 1, run_ms[: len(holders)]
        )
        jobs = replace(base, run_ms=run_ms)
        starts[i] = replay_policy(jobs, policy, replays=1, seed=seed + i).wait_s[len(running) :]
    return {w.workload: _summarise(w.workload, starts[:, i]) for i, w in enumerate(waiters)}


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
        larger = shares[shares > used]
        share = float(draws.choice(larger)) if len(larger) else 1.0
        part = (share - used) / max(1.0 - used, 1e-9)
        drawn[holder.workload] = part * float(draws.uniform(0.8, 1.0))
    return np.array([drawn[holder.workload] for holder in holders])


def _build_jobs(
    line: Line,
    running: Sequence[tuple[int, int | None]],
    waiters: Sequence[Waiter],
    hosts: Sequence[HostRoom],
) -> RecordedJobs:
    """Return running jobs (for the rest of their limits), then waiting ones, as one list."""
    rest = [
        max(1, ((line.time_ms + _NO_LIMIT_S * 1000) if end is None else end) - line.time_ms)
        for _, end in running
    ]
    limits = [(w.limit_s or _NO_LIMIT_S) * 1000 for w in waiters]
    many = len(running) + len(waiters)
    return RecordedJobs(
        ids=tuple(str(i) for i in range(many)),
        submit_ms=np.zeros(many, np.int64),
        start_ms=np.full(many, -1, np.int64),
        run_ms=np.zeros(many, np.int64),
        limit_ms=np.array([*rest, *limits], np.int64),
        gpus_per_host=np.array([*(g for g, _ in running), *(max(1, w.per_host) for w in waiters)]),
        hosts=np.array([*(1 for _ in running), *(w.hosts for w in waiters)], np.int64),
        owner=np.zeros(many, np.int64),
        owners=("all",),
        host_gpus=np.array([max(h.gpus, 1) for h in hosts], np.int64),
        priority=np.zeros(many),
    )


def _summarise(workload: str, starts: NDArray[np.float64]) -> StartForecast:
    known = starts[np.isfinite(starts)]
    share = len(known) / len(starts)
    if share < 0.5:
        return StartForecast(workload, None, None, None, share)
    low, middle, high = (float(q) for q in np.quantile(known, (0.1, 0.5, 0.9)))
    return StartForecast(workload, low, middle, high if share > 0.9 else None, share)
