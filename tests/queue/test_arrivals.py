"""Who came lately, which share of their limits workloads run, and what futures make of it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, cast

import numpy as np
import pytest

from marey.model.tables import WorkloadRow
from marey.queue.waiting.arrivals import (
    RecentArrivals,
    draw_arrivals,
    read_arrivals,
    sample_arrivals,
)
from marey.queue.waiting.line import Holder, HostRoom, Line, Waiter
from marey.queue.waiting.run_shares import CLASSES_S, GUESSED, compute_shares
from marey.queue.waiting.simulated_starts import simulate_starts

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NOW_MS = 10 * DAY_MS


def make_row(**given: Any) -> WorkloadRow:
    """Return a stored workload of one GPU."""
    usual = {
        "submit_ms": None, "start_ms": None, "end_ms": None, "time_limit_s": 3600,
        "partition": "gpu", "gpu_model": "", "gpus_requested": 1, "gpus_per_host": 1,
        "priority": None,
    }  # fmt: skip
    return cast(WorkloadRow, {**usual, **given})


def make_day(priorities: list[float | None]) -> list[WorkloadRow]:
    """Return a workload that ended a day and more ago, and one an hour that still waits."""
    ended = make_row(submit_ms=0, start_ms=0, end_ms=NOW_MS - 2 * DAY_MS)
    return [ended] + [
        make_row(submit_ms=NOW_MS - (20 - i) * HOUR_MS, priority=priority)
        for i, priority in enumerate(priorities)
    ]


def test_where_somebody_joined_the_line_is_known_by_the_priorities() -> None:
    recent = sample_arrivals(make_day([5.0, 1.0, 3.0, 9.0]), NOW_MS)
    assert [row.overtakes for row in recent.rows] == pytest.approx([0.0, 0.0, 0.5, 1.0])


def test_in_a_line_by_submission_nobody_is_overtaken() -> None:
    recent = sample_arrivals(make_day([100.0 - i for i in range(10)]), NOW_MS)
    assert {row.overtakes for row in recent.rows} == {0.0}


def test_what_came_after_now_or_ended_after_now_is_not_known() -> None:
    day = make_day([5.0, 1.0, 3.0])
    later = make_row(submit_ms=NOW_MS + 1, priority=9.0)
    assert sample_arrivals([*day, later], NOW_MS) == sample_arrivals(day, NOW_MS)
    gone = [cast(WorkloadRow, {**row, "start_ms": NOW_MS + 5, "end_ms": NOW_MS + 9}) for row in day]
    assert sample_arrivals([day[0], *gone[1:]], NOW_MS) == sample_arrivals(day, NOW_MS)


def test_with_an_hour_of_history_nobody_is_expected() -> None:
    rows = [make_row(submit_ms=NOW_MS - 1000, end_ms=NOW_MS - 500) for _ in range(9)]
    assert sample_arrivals(rows, NOW_MS).rows == ()
    assert sample_arrivals([], NOW_MS).rows == ()


def test_as_many_come_as_came_yesterday_at_their_time_of_day() -> None:
    recent = sample_arrivals(make_day([1.0] * 10), NOW_MS)
    draws = np.random.default_rng(0)
    many = [
        draw_arrivals(recent, recent.rows, demand=1.0, now_ms=NOW_MS, limit=10_000, draws=draws)[1]
        for _ in range(200)
    ]
    first_day = [int((times <= DAY_MS).sum()) for times in many]
    assert np.mean(first_day) == pytest.approx(10.0, abs=1.0)
    for times in many:
        assert (np.diff(times) >= 0).all()
        assert (times > 0).all()
        today = times[times <= DAY_MS]
        assert ((today > 3 * HOUR_MS) & (today < 15 * HOUR_MS)).all()


def test_the_sample_survives_a_restart() -> None:
    recent = sample_arrivals(make_day([5.0, 1.0]), NOW_MS)
    assert read_arrivals(asdict(recent)) == recent
    assert read_arrivals(None) == RecentArrivals()


def make_line() -> Line:
    """Return a host of 8 GPUs, full for half an hour more, and one who waits for all of it."""
    host = HostRoom(
        "h1", "", ("gpu",), 8, 0, True,
        holders=(Holder("a", 8, NOW_MS + HOUR_MS // 2, HOUR_MS),),
    )  # fmt: skip
    waiter = Waiter(
        workload="w", user="u", project="p", partition="gpu", gpus=8, per_host=8, model="",
        limit_s=3600, submit_ms=NOW_MS, priority=1.0, reason="Resources",
    )  # fmt: skip
    return Line(NOW_MS, [waiter], [host])


def make_stream(priority: float) -> list[WorkloadRow]:
    """Return workloads of the whole host, one every 15 min, beside one that waits all the day."""
    poor = make_row(submit_ms=NOW_MS - DAY_MS, priority=1.0, gpus_requested=8, gpus_per_host=8)
    ended = make_row(submit_ms=0, start_ms=0, end_ms=NOW_MS - 2 * DAY_MS)
    return [ended, poor] + [
        make_row(
            submit_ms=(at := NOW_MS - DAY_MS + (i + 1) * HOUR_MS // 4),
            start_ms=at + 1000,
            end_ms=at + HOUR_MS // 4,
            priority=priority,
            gpus_requested=8,
            gpus_per_host=8,
        )
        for i in range(90)
    ]


def test_who_will_come_with_a_higher_priority_is_expected() -> None:
    alone = simulate_starts(make_line())["w"]
    ahead = simulate_starts(make_line(), recent=sample_arrivals(make_stream(9.0), NOW_MS))["w"]
    behind = simulate_starts(make_line(), recent=sample_arrivals(make_stream(0.5), NOW_MS))["w"]
    assert alone.p50_s is not None
    assert ahead.p50_s is not None
    assert behind.p50_s is not None
    assert ahead.p50_s > 1.2 * alone.p50_s
    assert (ahead.p90_s or 1e9) > 10.0 * (alone.p90_s or 0.0)
    assert behind.p50_s < 1.2 * alone.p50_s


def make_waiters(partition: str, many: int) -> list[Waiter]:
    """Return so many who wait for one GPU of a partition."""
    [one] = make_line().waiters
    return [
        replace(one, workload=f"{partition}-{i}", partition=partition, gpus=1, per_host=1)
        for i in range(many)
    ]


def test_of_a_long_line_the_front_is_forecast_and_short_lines_are_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("marey.queue.waiting.simulated_starts.LINE_LIMIT", 30)
    hosts = [HostRoom(name, "", (name,), 8, 0, True) for name in ("long", "short")]
    line = Line(NOW_MS, [*make_waiters("long", 90), *make_waiters("short", 9)], hosts)
    found = simulate_starts(line, futures=2)
    assert set(found) == {w.workload for w in [*line.waiters[:21], *line.waiters[90:]]}
    alone = simulate_starts(line, only="short-3", futures=2)
    assert alone == {name: found[name] for name in alone}
    assert set(alone) == {w.workload for w in line.waiters[90:]}


def make_runs(used: float, limit_s: int, many: int, *, ended: bool) -> list[WorkloadRow]:
    """Return runs that have used a share of their limits by now."""
    start = NOW_MS - round(used * limit_s * 1000)
    end = NOW_MS if ended else None
    return [
        make_row(submit_ms=start, start_ms=start, end_ms=end, time_limit_s=limit_s)
        for _ in range(many)
    ]


def test_what_still_runs_is_a_lower_bound_of_its_share() -> None:
    short = make_runs(0.1, 3600, 60, ended=True)
    running = make_runs(0.5, 3600, 60, ended=False)
    [hour, *_] = compute_shares([*short, *running], NOW_MS)
    assert min(hour) == 0.1
    assert np.mean(np.array(hour) > 0.5) == pytest.approx(0.5, abs=0.05)
    # Of what has ended alone one would learn that all end after a tenth.
    assert set(compute_shares(short, NOW_MS)[0]) == {0.1}


def test_what_ends_after_now_has_not_ended() -> None:
    known = make_runs(0.5, 3600, 60, ended=True) + make_runs(0.4, 3600, 60, ended=False)
    later = [
        row if row["end_ms"] else cast(WorkloadRow, {**row, "end_ms": NOW_MS + DAY_MS})
        for row in known
    ]
    assert compute_shares(later, NOW_MS) == compute_shares(known, NOW_MS)


def test_classes_of_limits_are_learned_from_apart() -> None:
    rows = make_runs(0.05, 3600, 60, ended=True) + make_runs(0.8, 6 * 3600, 60, ended=True)
    hour, half_day, two_days, longer = compute_shares(rows, NOW_MS)
    assert set(hour) == {0.05}
    assert set(half_day) == {0.8}
    # Of those without runs enough all that is known is taken.
    assert two_days == longer
    assert set(two_days) == {0.05, 0.8}
    assert len(CLASSES_S) == 3


def test_with_few_runs_the_shares_are_a_guess() -> None:
    assert compute_shares(make_runs(0.5, 3600, 49, ended=True), NOW_MS) == GUESSED
