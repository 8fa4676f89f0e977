"""A site's own workloads as polls: nothing later is used, odd records are taken as they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marey.queue.forecast.forecaster import NotEnoughHistory, fit_forecaster, forecast_polls
from marey.queue.forecast.poll_table import PollTable
from marey.queue.forecast.site_polls import (
    SiteJobs,
    choose_moments,
    find_cancelled,
    forecast_waiting,
    make_jobs,
    take_snapshots,
)
from marey.queue.waiting.line import Line, RunningJob, Waiter

pytestmark = pytest.mark.slow

DAY_S, HOUR_S = 86400, 3600


def build_site(days: int = 6, per_day: int = 150, seed: int = 0) -> SiteJobs:
    """Return workloads of two partitions; one of them has long waits, some jobs are cancelled."""
    draws = np.random.default_rng(seed)
    many = days * per_day
    submit = np.sort(draws.uniform(0, days * DAY_S, many))
    slow = draws.random(many) < 0.5
    wait = np.where(slow, 8 * HOUR_S, HOUR_S) * draws.lognormal(0, 0.5, many)
    cancelled = draws.random(many) < 0.05
    start = np.where(cancelled, np.nan, submit + wait)
    end = np.where(cancelled, submit + wait / 2, start + draws.uniform(600, 20000, many))
    return make_jobs(
        [f"job-{i}" for i in range(many)],
        times_s=list(zip(submit, start, end, strict=True)),
        partitions=["slow" if one else "fast" for one in slow],
        accounts=[f"project-{i % 7}" for i in range(many)],
        sizes=[(float(1 + i % 8), 1.0, None if i % 9 == 0 else 36000.0) for i in range(many)],
    )


def hide_later(jobs: SiteJobs, moment_s: float) -> SiteJobs:
    """Return the records as they stood at a moment."""
    seen = np.flatnonzero(jobs.submit_s <= moment_s)
    kept = SiteJobs(**{name: column[seen] for name, column in vars(jobs).items()})
    return replace(
        kept,
        start_s=np.where(kept.start_s > moment_s, np.nan, kept.start_s),
        end_s=np.where(kept.end_s > moment_s, np.nan, kept.end_s),
    )


def forecast_at(jobs: SiteJobs, moment_s: float) -> tuple[PollTable, np.ndarray]:
    """Return the line at a moment and its forecasts, learned from what the records say."""
    history = take_snapshots(jobs, choose_moments(jobs, moment_s)).hide_starts_after(int(moment_s))
    forecaster = fit_forecaster(
        history, int(moment_s), left_out=find_cancelled(hide_later(jobs, moment_s), history)
    )
    line = take_snapshots(jobs, np.array([moment_s]))
    return line, forecast_polls(forecaster, line)


def test_no_forecast_uses_anything_known_later() -> None:
    """Replays the log: learning and forecasting with all later facts hidden changes nothing."""
    jobs = build_site()
    for moment_s in (4.3 * DAY_S, 5.6 * DAY_S):
        line, whole = forecast_at(jobs, moment_s)
        alone_line, alone = forecast_at(hide_later(jobs, moment_s), moment_s)
        assert len(line) > 10
        assert np.array_equal(line.job, alone_line.job)
        assert np.array_equal(whole, alone)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.2, 5.9), st.integers(0, 3))
def test_snapshots_are_equal_when_everything_later_is_hidden(day: float, seed: int) -> None:
    jobs = build_site(per_day=30, seed=seed)
    moment_s = day * DAY_S
    whole = take_snapshots(jobs, np.array([moment_s]))
    alone = take_snapshots(hide_later(jobs, moment_s), np.array([moment_s]))
    for name, column in vars(whole).items():
        if name not in ("wait_s", "partition", "account"):
            assert np.array_equal(column, getattr(alone, name)), name
    assert np.isnan(alone.wait_s).all()


def test_the_learned_model_tells_the_slow_partition_from_the_fast_one() -> None:
    line, told = forecast_at(build_site(days=8), 7.5 * DAY_S)
    slow = line.partition == line.partition[np.nanargmax(line.wait_s)]
    assert np.median(told[slow, 1]) > 2 * np.median(told[~slow, 1])


def test_counts_of_the_line_and_of_what_runs() -> None:
    jobs = make_jobs(
        ["runs", "first", "second", "other"],
        times_s=[(0, 10, np.nan), (20, np.nan, np.nan), (30, np.nan, np.nan), (40, np.nan, np.nan)],
        partitions=["a", "a", "a", "b"],
        accounts=["x", "x", "y", "x"],
        sizes=[(4, 1, 3600), (2, 1, 7200), (8, 1, None), (1, 1, 3600)],
    )
    table = take_snapshots(jobs, np.array([100.0]))
    assert table.job.tolist() == [1, 2, 3]
    # Jobs ahead: of all, in the partition, of the account, of both.
    assert table.ahead[:, [0, 4, 8, 12]].tolist() == [[0, 0, 0, 0], [1, 1, 0, 0], [2, 0, 1, 0]]
    assert table.ahead[1, 2] == pytest.approx(4.0)
    assert table.running[:, [0, 4, 8, 12]].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 1, 0]]
    assert table.running[0, 2] == pytest.approx(4 * (3600 - 90) / 3600)


def test_clock_changes_and_missing_limits_are_taken_as_they_are() -> None:
    jobs = make_jobs(
        ["back", "lost"],
        times_s=[(1000, 400, 300), (1000, np.nan, 200)],
        partitions=["", ""],
        accounts=["", ""],
        sizes=[(1, 0, None), (-3, 1, 0)],
    )
    assert jobs.start_s[0] == 1000
    assert jobs.end_s.tolist() == [1000, 1000]
    assert (jobs.limit_s > 0).all()
    assert (jobs.gpus >= 0).all()
    assert not len(take_snapshots(jobs, np.array([5000.0])))


def test_an_array_of_a_hundred_thousand_tasks_is_learned_from_in_bounded_rows() -> None:
    many = 100_000
    start = np.linspace(HOUR_S, 5 * DAY_S, many)
    jobs = make_jobs(
        [f"7_{i}" for i in range(many)],
        times_s=list(zip(np.zeros(many), start, start + 60, strict=True)),
        partitions=["gpu"] * many,
        accounts=["lab"] * many,
        sizes=[(1.0, 1.0, 600.0)] * many,
    )
    moments = choose_moments(jobs, 5.0 * DAY_S)
    rows = sum(int(((jobs.start_s > m) & (jobs.submit_s <= m)).sum()) for m in moments)
    assert len(moments) == 5
    assert rows < 5 * many / 2 + many


def test_no_history_is_said_to_be_none() -> None:
    jobs = make_jobs([], times_s=[], partitions=[], accounts=[], sizes=[])
    with pytest.raises(NotEnoughHistory, match="Not enough history: 0 waits"):
        fit_forecaster(take_snapshots(jobs, choose_moments(jobs, 5.0 * DAY_S)), 5 * DAY_S)


def make_waiter(name: str, reason: str = "Priority") -> Waiter:
    return Waiter(
        workload=name, user="u", project="p", partition="slow", gpus=2, per_host=2, model="",
        limit_s=None, submit_ms=int(5.5 * DAY_S * 1000), priority=1.0, reason=reason,
    )  # fmt: skip


def test_the_line_as_it_is_gets_learned_forecasts_but_not_those_held_back() -> None:
    jobs = build_site()
    now_s = 5.7 * DAY_S
    history = take_snapshots(jobs, choose_moments(jobs, now_s)).hide_starts_after(int(now_s))
    forecaster = fit_forecaster(history, int(now_s))
    line = Line(
        time_ms=int(now_s * 1000),
        waiters=[make_waiter("a"), make_waiter("held", "Dependency"), make_waiter("b")],
        hosts=[],
        running=[RunningJob("r", "p", "slow", 4, int(5.6 * DAY_S * 1000), None)],
    )
    told = forecast_waiting(forecaster, line)
    assert set(told) == {"a", "b"}
    for start in told.values():
        assert start.p10_s is not None
        assert start.p50_s is not None
        assert start.p90_s is not None
        assert 0 < start.p10_s <= start.p50_s <= start.p90_s
