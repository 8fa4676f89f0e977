"""Recorded jobs replayed under small policies whose schedule can be told by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from marey.model.errors import InvalidInput
from marey.queue.policy.policy import Policy, parse_policy
from marey.queue.policy.policy_replay import replay_policy
from marey.queue.policy.recorded_jobs import RecordedJobs, shape_gangs
from marey.queue.policy.what_if import LowFidelity, compute_what_if

AT_ONCE = (0.0, 0.0)


def build_jobs(
    rows: Sequence[tuple[int, int, int, int]], hosts: Sequence[int] = (4, 4), users: str = ""
) -> RecordedJobs:
    """Return jobs of (submit, GPUs, seconds, limit in seconds) on hosts of so many GPUs."""
    table = np.array(rows, np.int64)
    need, count = shape_gangs(table[:, 1], max(hosts))
    names = tuple(sorted(set(users or "a")))
    return RecordedJobs(
        ids=tuple(str(i + 1) for i in range(len(rows))),
        submit_ms=table[:, 0] * 1000,
        start_ms=np.full(len(rows), -1, np.int64),
        run_ms=table[:, 2] * 1000,
        limit_ms=table[:, 3] * 1000,
        gpus_per_host=need,
        hosts=count,
        owner=np.array([names.index(user) for user in users or "a" * len(rows)], np.int64),
        owners=names,
        host_gpus=np.array(hosts, np.int64),
        priority=np.zeros(len(rows)),
    )


# A holds one host; B needs both; C is short and D long, and both fit beside A.
LINE = [(0, 4, 100, 100), (1, 8, 50, 50), (2, 1, 20, 20), (3, 1, 500, 500)]


def wait_of(jobs: RecordedJobs, **settings: object) -> list[float]:
    """Return the waits under a policy without any delay of the scheduler's own."""
    policy = parse_policy({"start_lag_s": 0, **settings})
    return [float(value) for value in replay_policy(jobs, policy, replays=1).wait_s]


def test_strict_order_lets_nobody_pass() -> None:
    assert wait_of(build_jobs(LINE), backfill="none") == [0, 99, 148, 147]


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_backfill_lets_pass_only_who_does_not_delay_the_head(backfill: str) -> None:
    assert wait_of(build_jobs(LINE), backfill=backfill) == [0, 99, 0, 147]


def test_conservative_backfill_also_keeps_the_second_in_line() -> None:
    rows = [(0, 4, 100, 100), (1, 8, 50, 50), (2, 4, 60, 60), (3, 1, 90, 90)]
    assert wait_of(build_jobs(rows), backfill="conservative")[:3] == [0, 99, 0]


def test_size_weight_starts_the_largest_or_the_smallest_first() -> None:
    rows = [(0, 8, 10, 10), (1, 1, 10, 10), (2, 8, 10, 10)]
    large = wait_of(build_jobs(rows), order="multifactor", weights={"size": 1000})
    small = wait_of(build_jobs(rows), order="multifactor", weights={"size": 1000}, favor_small=True)
    assert large == [0, 19, 8]
    assert small == [0, 9, 18]


def test_ageing_keeps_the_order_of_submission() -> None:
    assert wait_of(build_jobs(LINE), order="multifactor", weights={"age": 1000}) == wait_of(
        build_jobs(LINE)
    )


def test_fair_share_lets_the_idle_user_pass_the_busy_one() -> None:
    rows = [(0, 8, 100, 100), (1, 8, 10, 10), (2, 8, 10, 10)]
    waits = wait_of(build_jobs(rows, users="aab"), order="multifactor", weights={"fairshare": 1000})
    assert waits == [0, 109, 98]


def test_a_users_limit_holds_their_jobs_and_nobody_elses() -> None:
    rows = [(0, 4, 100, 100), (1, 4, 10, 10), (2, 4, 10, 10)]
    waits = wait_of(build_jobs(rows, users="aab"), limits={"max_gpus_per_user": 4})
    assert waits == [0, 99, 0]


def test_most_allocated_keeps_a_host_whole_and_least_allocated_does_not() -> None:
    rows = [(0, 1, 100, 100), (1, 1, 100, 100), (2, 4, 10, 10)]
    assert wait_of(build_jobs(rows), placement="most_allocated") == [0, 0, 0]
    assert wait_of(build_jobs(rows), placement="least_allocated") == [0, 0, 98]
    assert wait_of(build_jobs(rows), placement="fgd") == [0, 0, 0]


def test_a_policy_nobody_can_satisfy_names_every_job_as_never_starting() -> None:
    jobs = build_jobs(LINE)
    replayed = replay_policy(jobs, parse_policy({"limits": {"max_gpus_per_job": 0.5}}))
    assert np.isnan(replayed.wait_s).all()


def test_a_gang_larger_than_the_cluster_never_starts_and_holds_nobody_up() -> None:
    assert np.isnan(wait_of(build_jobs([(0, 64, 10, 10), (1, 1, 10, 10)]))[0])
    assert wait_of(build_jobs([(0, 64, 10, 10), (1, 1, 10, 10)]))[1] == 0


def test_no_gpu_is_ever_given_twice() -> None:
    draws = np.random.default_rng(3)
    rows = [
        (int(at), int(draws.choice([1, 2, 4, 8])), int(run), int(run * draws.uniform(1, 3)))
        for at, run in zip(
            np.sort(draws.integers(0, 900, 200)), draws.integers(5, 90, 200), strict=True
        )
    ]
    jobs = build_jobs(rows, hosts=(4, 4, 4))
    for backfill in ("none", "easy", "conservative"):
        waits = np.array(wait_of(jobs, backfill=backfill))
        start = jobs.submit_ms / 1000 + waits
        for moment in start:
            running = (start <= moment) & (start + jobs.run_ms / 1000 > moment)
            assert jobs.gpus[running].sum() <= 12


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"order": "lottery"}, "Unknown order 'lottery'"),
        ({"backfil": "easy"}, "did you mean 'backfill'"),
        ({"weights": {"age": -1}}, "a number from 0 up"),
        ({"weights": {"luck": 1}}, "Unknown name in weights 'luck'"),
        ([], "A policy is a JSON object"),
    ],
)
def test_a_wrong_policy_is_refused_with_what_is_allowed(document: object, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        parse_policy(document)


def test_an_answer_is_refused_where_the_recorded_policy_is_not_reproduced() -> None:
    jobs = build_jobs(LINE)
    wrong = RecordedJobs(**{**jobs.__dict__, "start_ms": jobs.submit_ms + 5_000_000})
    with pytest.raises(LowFidelity, match="misses the recorded mean wait"):
        compute_what_if(wrong, Policy(backfill="easy"), Policy())
