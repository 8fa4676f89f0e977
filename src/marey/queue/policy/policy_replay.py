"""Replay recorded jobs under a policy: waits, use and stranded GPUs; several times, where small
delays decide.

A backfilled schedule is chaotic: one second more between an end and the next start changes who fits
a gap. Each replay
draws the scheduler's own delay anew for every job, and the answer is the mean over the replays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.model.errors import InvalidInput
from marey.queue.policy.host_kernels import build_hosts
from marey.queue.policy.policy import BACKFILLS, PLACEMENTS, Policy
from marey.queue.policy.recorded_jobs import Floats, Ints, RecordedJobs
from marey.queue.policy.replay_kernels import JobArrays, Rules, build_line, replay_jobs

REPLAYS = 24
# A history longer than this is replayed once: the many jobs average the small delays out.
_LONG_HISTORY = 5000


@dataclass(frozen=True)
class Replayed:
    """The schedule under a policy: seconds of wait per job (NaN: never starts), in the order of the
    recorded jobs.
    """

    wait_s: Floats
    spread_s: Floats
    utilization: float
    replays: int


def replay_policy(
    jobs: RecordedJobs, policy: Policy, *, replays: int | None = None, seed: int = 0
) -> Replayed:
    """Return the waits that the recorded jobs would have had under a policy."""
    if not len(jobs):
        raise InvalidInput("There are no recorded jobs to replay.", code="no_history")
    many = replays or (1 if len(jobs) > _LONG_HISTORY else REPLAYS)
    draws = np.random.default_rng(seed)
    sizes = _find_host_sizes(jobs, policy)
    waits = np.full((many, len(jobs)), np.nan)
    used = np.zeros(many)
    for i in range(many):
        lag_ms = draws.uniform(policy.start_lag_s[0], policy.start_lag_s[1], len(jobs)) * 1000.0
        start = _replay_once(jobs, policy, sizes, lag_ms.astype(np.int64))
        ran = start >= 0
        waits[i, ran] = (start[ran] - jobs.submit_ms[ran]) / 1000.0
        used[i] = _compute_use(jobs, start, int(sizes.sum()))
    never = np.isnan(waits).all(axis=0)
    safe = np.where(never, 0.0, waits)
    mean = np.where(never, np.nan, np.nanmean(safe, axis=0))
    return Replayed(
        mean, np.where(never, np.nan, np.nanstd(safe, axis=0)), float(used.mean()), many
    )


def _find_host_sizes(jobs: RecordedJobs, policy: Policy) -> Ints:
    sizes = np.asarray(policy.hosts, np.int64) if policy.hosts else jobs.host_gpus
    if not len(sizes) or sizes.sum() <= 0:
        raise InvalidInput("There are no hosts with GPUs to replay the jobs on.")
    if sizes.max() > 64:
        raise InvalidInput(f"A host of {int(sizes.max())} GPUs; at most 64 are allowed.")
    return np.ascontiguousarray(sizes)


def _replay_once(jobs: RecordedJobs, policy: Policy, sizes: Ints, lag_ms: Ints) -> Ints:
    """Return the starts of one replay; jobs that can never start as asked stay out of the line."""
    able = find_startable(jobs, policy, sizes)
    starts = np.full(len(jobs), -1, np.int64)
    if not able.any():
        return starts
    rows = np.flatnonzero(able)
    fixed = compute_fixed_priority(jobs, policy, int(sizes.sum()))[rows]
    rank = np.empty(len(rows), np.int64)
    rank[np.argsort(-np.floor(fixed), kind="stable")] = np.arange(len(rows))
    arrays = JobArrays(
        submit=jobs.submit_ms[rows],
        run=jobs.run_ms[rows] + lag_ms[rows],
        limit=jobs.limit_ms[rows],
        need=jobs.gpus_per_host[rows],
        gang=jobs.hosts[rows],
        rank=rank,
        owner=jobs.owner[rows],
        fixed=fixed,
        share=np.full(len(jobs.owners), 1.0 / len(jobs.owners)),
    )
    widest = int(jobs.hosts[rows].max())
    line = build_line(len(rows), len(jobs.owners), widest, int(sizes.sum()))
    state = build_hosts(sizes, _weigh_stranded(jobs, rows, sizes))
    replay_jobs(arrays, state, line, _build_rules(policy))
    starts[rows] = line.start
    return starts


def find_startable(jobs: RecordedJobs, policy: Policy, sizes: Ints) -> NDArray[np.bool_]:
    """Return which jobs the hosts and the limits could ever start."""
    biggest_first = np.sort(sizes)[::-1]
    at = np.minimum(jobs.hosts, len(sizes)) - 1
    able = (jobs.hosts <= len(sizes)) & (biggest_first[at] >= jobs.gpus_per_host)
    most = min(
        policy.limits.get("max_gpus_per_job", np.inf),
        policy.limits.get("max_gpus_per_user", np.inf),
    )
    able &= jobs.gpus <= most
    able &= jobs.limit_ms <= policy.limits.get("max_time_s", np.inf) * 1000.0
    return np.asarray(able)


def compute_fixed_priority(jobs: RecordedJobs, policy: Policy, gpus: int) -> Floats:
    """Return the part of each job's priority that does not change while it waits."""
    if policy.order == "fifo":
        return np.zeros(len(jobs))
    share = jobs.gpus / max(gpus, 1)
    size = 1.0 - share if policy.favor_small else share
    return (
        policy.weights.get("size", 0.0) * size + policy.weights.get("recorded", 0.0) * jobs.priority
    )


def _weigh_stranded(jobs: RecordedJobs, rows: Ints, sizes: Ints) -> Floats:
    """Return, per number of free GPUs on a host, how many of them the typical job could not use
    (FGD).
    """
    needs, counts = np.unique(jobs.gpus_per_host[rows], return_counts=True)
    free = np.arange(int(sizes.max()) + 1, dtype=np.float64)
    shares = counts / counts.sum()
    return np.asarray((shares[None, :] * (free[:, None] < needs[None, :])).sum(axis=1) * free)


def _build_rules(policy: Policy) -> Rules:
    weights, limits = policy.weights, policy.limits
    return Rules(
        backfill=BACKFILLS.index(policy.backfill),
        placement=PLACEMENTS.index(policy.placement),
        depth=policy.depth,
        max_gpus=int(limits.get("max_gpus_per_user", 0)),
        max_jobs=int(limits.get("max_jobs_per_user", 0)),
        dynamic=int(policy.is_dynamic),
        age_weight=float(weights.get("age", 0.0)),
        max_age=int(policy.max_age_s * 1000.0),
        share_weight=float(weights.get("fairshare", 0.0)),
        half_life=float(policy.half_life_s * 1000.0),
    )


def _compute_use(jobs: RecordedJobs, start: Ints, gpus: int) -> float:
    """Return the part of the GPUs' time that was held between the first submission and the last
    end.
    """
    ran = start >= 0
    if not ran.any():
        return 0.0
    span = int((start[ran] + jobs.run_ms[ran]).max() - jobs.submit_ms.min())
    return float((jobs.run_ms[ran] * jobs.gpus[ran]).sum() / max(span * gpus, 1))
