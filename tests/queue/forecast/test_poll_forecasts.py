"""Forecasts from poll snapshots: nothing known later is used, and short histories say so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from marey.queue.forecast.evaluation import evaluate_forecasts, score_forecasts, separate_jobs
from marey.queue.forecast.forecaster import (
    NotEnoughHistory,
    complete_waits,
    fit_forecaster,
    forecast_polls,
)
from marey.queue.forecast.poll_features import compute_features
from marey.queue.forecast.poll_groups import rank_in_group
from marey.queue.forecast.poll_table import AHEAD, RUNNING, SHARES, PollTable

DAY_S = 86400


def build_polls(first_day: int, days: int, rows: int = 80, seed: int = 0) -> PollTable:
    """Return made-up polls in which the wait follows the line ahead and the limit."""
    draws = np.random.default_rng(seed + first_day)
    many = days * rows
    poll = np.repeat((first_day + np.arange(days)) * DAY_S + DAY_S // 2, rows).astype(np.int64)
    ahead = draws.integers(0, 1000, (many, len(AHEAD))).astype(float)
    limit = draws.choice([3600.0, 36000.0, 360000.0], many)
    noise = draws.normal(0.0, 0.2, many)
    wait = 10 ** (2.0 + ahead[:, 4] / 500 + (limit > 10000) * 0.7 + noise)
    submit = poll - draws.integers(1, DAY_S // 2, many)
    return PollTable(
        job=np.arange(many, dtype=np.int64) + first_day * 1_000_000,
        poll_s=poll,
        submit_s=submit,
        eligible_s=submit,
        ineligible=np.zeros(many, bool),
        partition=draws.integers(0, 4, many),
        account=draws.integers(0, 30, many),
        cpus=draws.choice([1.0, 8.0, 32.0], many),
        memory_mb=draws.choice([1e3, 1e4], many),
        gpus=draws.choice([0.0, 1.0], many),
        nodes=np.ones(many),
        limit_s=limit,
        priority=draws.random(many),
        ahead=ahead,
        running=draws.integers(1, 1000, (many, len(RUNNING))).astype(float),
        shares=draws.random((many, len(SHARES))),
        wait_s=wait,
    )


@pytest.mark.slow
def test_forecasts_of_a_poll_do_not_change_when_everything_later_is_hidden() -> None:
    """Replays the log: each poll forecast alone, with later starts blanked, equals the whole."""
    table = build_polls(0, 6)
    forecaster = fit_forecaster(table)
    whole = forecast_polls(forecaster, table)
    for poll in np.unique(table.poll_s):
        known = table.select(np.flatnonzero(table.poll_s <= poll)).hide_starts_after(int(poll))
        alone = forecast_polls(forecaster, known)
        assert np.array_equal(alone[known.poll_s == poll], whole[table.poll_s == poll])


def test_forecasts_do_not_change_when_the_tested_waits_are_shuffled_within_the_last_poll() -> None:
    table = build_polls(0, 5)
    last = table.poll_s == table.poll_s.max()
    shuffled = table.wait_s.copy()
    shuffled[last] = np.random.default_rng(1).permutation(shuffled[last])
    features, _ = compute_features(table)
    other, _ = compute_features(replace(table, wait_s=shuffled))
    assert np.array_equal(features[last], other[last], equal_nan=True)


@pytest.mark.slow
def test_a_learnable_line_is_forecast_within_its_stated_interval() -> None:
    document = evaluate_forecasts(build_polls(0, 8), build_polls(8, 4), clock=lambda: 0.0)
    assert document["rmse_log10"] < 0.4
    assert 0.65 <= document["coverage_80"] <= 0.95
    assert document["pinball_gain"] > 0.25
    assert set(document["pinball"]) == {"0.1", "0.5", "0.9"}
    assert {"horizon", "true_wait", "poll", "kind", "account"} <= set(document["slices"])


def test_of_jobs_in_both_sets_nothing_is_scored_and_no_later_start_is_learned() -> None:
    train, test = build_polls(0, 4), build_polls(4, 2)
    both = test.job.copy()
    both[:10] = train.job[-10:]
    late = train.wait_s.copy()
    late[-10:] = 10 * DAY_S
    fitted, tested, dropped = separate_jobs(replace(train, wait_s=late), replace(test, job=both))
    assert dropped == 10
    assert not np.isin(tested.job, train.job).any()
    assert np.isnan(fitted.wait_s[-10:]).all()
    again, _, _ = separate_jobs(replace(test, job=both), train)
    assert not np.isin(again.job, train.job).any()


def test_who_still_waits_is_learned_from_as_a_lower_bound_not_dropped() -> None:
    draws = np.random.default_rng(0)
    features = draws.random((600, 3))
    truth = 3.0 + features[:, 0] + draws.normal(0.0, 0.5, 600)
    bound = 3.0 + draws.random(600)
    known = truth <= bound
    completed = complete_waits(features, np.minimum(truth, bound), np.ones(600), known)
    assert (completed >= np.minimum(truth, bound)).all()
    assert np.array_equal(completed[known], truth[known])
    hidden = ~known
    assert abs(completed[hidden] - truth[hidden]).mean() < abs(bound[hidden] - truth[hidden]).mean()


def test_not_enough_history_is_the_answer_to_a_short_one() -> None:
    with pytest.raises(NotEnoughHistory, match="Not enough history: 80 waits that ended, on 1 day"):
        fit_forecaster(build_polls(0, 1))


def test_a_perfect_forecast_scores_no_error_and_full_coverage() -> None:
    table = build_polls(0, 1)
    told = np.stack([table.wait_s * 0.5, table.wait_s, table.wait_s * 2.0], axis=1)
    scores = score_forecasts(table, told)
    assert scores["rmse_log10"] == pytest.approx(0.0)
    assert scores["coverage_80"] == 1.0
    assert scores["median_width"] == pytest.approx(4.0)


def test_ranks_count_within_groups_and_ties_share_a_place() -> None:
    ranks = rank_in_group(np.array([1, 0, 1, 1, 0]), np.array([5, 1, 3, 5, 2]))
    assert ranks.tolist() == [2, 1, 1, 2, 2]
