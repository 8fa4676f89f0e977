"""A site's own workloads as polls: who waited at past moments, what was ahead and what ran.

Each snapshot is made from what was known at its moment: who had been submitted and had not started,
who had started and not ended, limits instead of later ends. When the waiting then started is kept
apart, as the truth to learn from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.queue.forecast.forecaster import Forecaster, forecast_polls
from marey.queue.forecast.poll_groups import group_rows, sum_before, sum_group
from marey.queue.forecast.poll_table import SHARES, Floats, Ints, PollTable, join_tables
from marey.queue.waiting.explanation import is_held
from marey.queue.waiting.forecast_record import StartForecast
from marey.queue.waiting.line import Line, Waiter

HISTORY_DAYS, STEP_S = 14, 3 * 3600
# So many waiting rows are enough to learn from; with more, fewer moments are taken.
MOST_ROWS = 100_000
# Without a limit a workload is taken to run for a day.
_NO_LIMIT_S = 86400.0
_DAY_S = 86400


@dataclass(frozen=True)
class SiteJobs:
    """Workloads as columns; times in seconds, NaN where something has not happened.

    ``job`` numbers them in the order of the line; partitions and accounts are numbers too.
    """

    job: Ints
    submit_s: Floats
    start_s: Floats
    end_s: Floats
    partition: Ints
    account: Ints
    gpus: Floats
    hosts: Floats
    limit_s: Floats

    def __len__(self) -> int:
        """Return the number of workloads."""
        return len(self.job)


def make_jobs(
    names: Sequence[str],
    *,
    times_s: Sequence[tuple[float, float, float]],
    partitions: Sequence[str],
    accounts: Sequence[str],
    sizes: Sequence[tuple[float, float, float | None]],
) -> SiteJobs:
    """Return workloads as columns from times (submit, start, end) and sizes (GPUs, hosts, limit).

    Clocks change: a start before its submission counts as one at once, an end before its start
    too.
    """
    times = np.asarray(times_s, np.float64).reshape(len(names), 3)
    submit, start = times[:, 0], np.fmax(times[:, 1], times[:, 0])
    start = np.where(np.isnan(times[:, 1]), np.nan, start)
    end = np.where(np.isnan(times[:, 2]), np.nan, np.fmax(times[:, 2], np.fmax(start, submit)))
    known = np.array([s[:2] for s in sizes], np.float64).reshape(len(names), 2)
    limits = np.array([s[2] or _NO_LIMIT_S for s in sizes], np.float64)
    order = np.lexsort((np.arange(len(names)), submit))
    job = np.empty(len(names), np.int64)
    job[order] = np.arange(len(names))
    return SiteJobs(
        job=job,
        submit_s=submit,
        start_s=start,
        end_s=end,
        partition=group_rows(np.asarray(partitions, dtype=str)),
        account=group_rows(np.asarray(accounts, dtype=str)),
        gpus=np.maximum(known[:, 0], 0.0),
        hosts=np.maximum(known[:, 1], 1.0),
        limit_s=limits,
    )


def choose_moments(jobs: SiteJobs, now_s: float, days: int = HISTORY_DAYS) -> Floats:
    """Return past moments at which somebody waited, fewer of them where many did."""
    first = max(now_s - days * _DAY_S, float(np.min(jobs.submit_s, initial=now_s)))
    grid = np.arange(np.ceil(first / STEP_S), np.floor(now_s / STEP_S) + 1) * STEP_S
    grid = grid[grid < now_s]
    waiting = np.array([_find_waiting(jobs, moment).sum() for moment in grid], np.int64)
    grid, waiting = grid[waiting > 0], waiting[waiting > 0]
    # One moment a day at least: days are what a forecast is calibrated on.
    every = min(max(1, int(np.ceil(waiting.sum() / MOST_ROWS))), _DAY_S // STEP_S)
    return grid[::-1][::every][::-1]


def take_snapshots(jobs: SiteJobs, moments: Floats) -> PollTable:
    """Return who waited at each moment; a start after the last moment is kept as the truth."""
    tables = [_take_snapshot(jobs, float(moment)) for moment in moments]
    return join_tables(tables or [_take_snapshot(jobs, -np.inf)])


def find_cancelled(jobs: SiteJobs, table: PollTable) -> NDArray[np.bool_]:
    """Return which rows of snapshots left the line without a start: nothing is learned of them."""
    left = np.isnan(jobs.start_s) & np.isfinite(jobs.end_s)
    return np.isin(table.job, jobs.job[left])


def forecast_waiting(forecaster: Forecaster, line: Line) -> dict[str, StartForecast]:
    """Return a learned forecast for everybody in line who is not held back."""
    table = take_snapshots(read_line_jobs(line), np.array([line.time_ms / 1000.0]))
    forecasts = forecast_polls(forecaster, table)
    found = {}
    for job, (low, middle, high) in zip(table.job.tolist(), forecasts.tolist(), strict=True):
        waiter = line.waiters[job]
        if not is_held(waiter):
            found[waiter.workload] = StartForecast(waiter.workload, low, middle, high, 1.0)
    return found


def read_line_jobs(line: Line) -> SiteJobs:
    """Return the line as it is and what runs; nobody in it has an end."""
    now_s, waiters, running = line.time_ms / 1000.0, line.waiters, line.running
    times = [(min(w.submit_ms / 1000.0, now_s), np.nan, np.nan) for w in waiters]
    times += [(r.start_ms / 1000.0, r.start_ms / 1000.0, np.nan) for r in running]
    jobs = make_jobs(
        [*(w.workload for w in waiters), *(r.workload for r in running)],
        times_s=times,
        partitions=[*(w.partition for w in waiters), *(r.partition for r in running)],
        accounts=[*(name_account(w) for w in waiters), *(r.account for r in running)],
        sizes=[
            *((w.gpus, w.hosts, w.limit_s) for w in waiters),
            *((r.gpus, 1.0, r.limit_s) for r in running),
        ],
    )
    # The line's own order is known: nobody has to be sorted by the time of submission.
    return SiteJobs(**{**vars(jobs), "job": np.arange(len(jobs))})


def name_account(waiter: Waiter) -> str:
    """Return whose share a workload uses: its project's, or else its user's."""
    return waiter.project or waiter.user


def _find_waiting(jobs: SiteJobs, moment_s: float) -> Ints:
    gone = (jobs.start_s <= moment_s) | (jobs.end_s <= moment_s)
    return np.asarray((jobs.submit_s <= moment_s) & ~gone)


def _take_snapshot(jobs: SiteJobs, moment_s: float) -> PollTable:
    waits = np.flatnonzero(_find_waiting(jobs, moment_s))
    runs = np.flatnonzero((jobs.start_s <= moment_s) & ~(jobs.end_s <= moment_s))
    many, poll = len(waits), int(moment_s) if np.isfinite(moment_s) else 0
    submit = jobs.submit_s[waits].astype(np.int64)
    return PollTable(
        job=jobs.job[waits],
        poll_s=np.full(many, poll, np.int64),
        submit_s=submit,
        eligible_s=submit,
        ineligible=np.zeros(many, np.bool_),
        partition=jobs.partition[waits],
        account=jobs.account[waits],
        cpus=jobs.gpus[waits],
        memory_mb=np.zeros(many),
        gpus=jobs.gpus[waits],
        nodes=jobs.hosts[waits],
        limit_s=jobs.limit_s[waits],
        # Places in the order of the line: what the scheduler's own number was is not always kept.
        priority=-jobs.job[waits].astype(np.float64),
        ahead=_count_ahead(jobs, waits),
        running=_count_running(jobs, waits, runs, moment_s=moment_s),
        shares=np.zeros((many, len(SHARES))),
        wait_s=jobs.start_s[waits] - poll,
    )


def _list_scopes(jobs: SiteJobs, rows: Ints) -> tuple[Ints, ...]:
    """Return the groups that are counted: everybody, the partition, the account, both."""
    partition, account = jobs.partition[rows], jobs.account[rows]
    return (
        np.zeros(len(rows), np.int64),
        group_rows(partition),
        group_rows(account),
        group_rows(partition, account),
    )


def _count_ahead(jobs: SiteJobs, waits: Ints) -> Floats:
    """Return jobs, GPUs, GPU-hours and GPUs before each waiting one, scope by scope."""
    gpus, order = jobs.gpus[waits], jobs.job[waits]
    hours = gpus * jobs.limit_s[waits] / 3600.0
    columns = []
    for group in _list_scopes(jobs, waits):
        before = [sum_before(group, order, v) for v in (np.ones(len(waits)), gpus, hours)]
        columns += [*before, before[1]]
    return np.column_stack(columns)


def _count_running(jobs: SiteJobs, waits: Ints, runs: Ints, *, moment_s: float) -> Floats:
    """Return jobs, GPUs, GPU-hours left by their limits and GPUs that run, scope by scope."""
    gpus = jobs.gpus[runs]
    left_s = np.clip(jobs.start_s[runs] + jobs.limit_s[runs] - moment_s, 0.0, None)
    both = np.r_[waits, runs]
    unseen = np.zeros(len(waits))
    columns = []
    for group in _list_scopes(jobs, both):
        sums = [
            sum_group(group, np.r_[unseen, v])[: len(waits)]
            for v in (np.ones(len(runs)), gpus, gpus * left_s / 3600.0)
        ]
        columns += [*sums, sums[1]]
    return np.column_stack(columns)
