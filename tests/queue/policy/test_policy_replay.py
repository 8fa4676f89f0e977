"""Recorded jobs replayed under small policies whose schedule can be told by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from marey.model.errors import InvalidInput
from marey.queue.policy.policy import Policy, parse_policy
from marey.queue.policy.policy_replay import replay_policy
from marey.queue.policy.recorded_jobs import Hosts, RecordedJobs, shape_gangs
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


def test_means_by_size_that_are_met_are_enough_and_said_to_be_all_that_is_known() -> None:
    # Twenty of a size one after the other: in the record those of a pair had changed places.
    jobs = build_jobs([(0, 4, 1000, 1000)] * 20, hosts=(4,))
    policy = parse_policy({"start_lag_s": 0})
    start_ms = np.arange(20, dtype=np.int64) * 1_000_000
    changed = start_ms[np.arange(20) + np.tile([9, 7, 5, 3, 1, -1, -3, -5, -7, -9], 2)]
    swapped = RecordedJobs(**{**jobs.__dict__, "start_ms": changed})
    answer = compute_what_if(swapped, policy, policy)
    assert answer["current"]["near"] < 0.4
    assert answer["current"]["size_error"] == pytest.approx(0.0, abs=0.01)
    assert "not those of single users" in answer["notes"][-1]


def test_a_favoured_job_evicts_the_youngest_and_that_one_starts_anew() -> None:
    rows = [(0, 4, 100, 100), (5, 4, 100, 100), (20, 4, 10, 10)]
    waits = wait_of(build_jobs(rows, users="aab"), preemption={"mode": "requeue", "users": ["b"]})
    # The second job is evicted at 20 and starts again when the favoured one ends at 30.
    assert waits == [0, 10, 0]
    replayed = replay_policy(
        build_jobs(rows, users="aab"),
        parse_policy({"start_lag_s": 0, "preemption": {"mode": "requeue", "users": ["b"]}}),
        replays=1,
    )
    assert replayed.evictions == 1
    assert replayed.lost_gpu_hours == pytest.approx(15 * 4 / 3600)


def test_who_resumes_after_an_eviction_loses_nothing() -> None:
    rows = [(0, 8, 100, 100), (20, 8, 10, 10), (21, 8, 5, 5)]
    anew, resumed = (
        wait_of(build_jobs(rows, users="aba"), preemption={"mode": mode, "users": ["b"]})
        for mode in ("requeue", "resume")
    )
    # Evicted at 20, again at 30; the third waits for all of it, or for what was left.
    assert anew == [10, 0, 109]
    assert resumed == [10, 0, 89]


def test_small_jobs_may_be_the_favoured_ones() -> None:
    rows = [(0, 8, 100, 100), (20, 1, 10, 10)]
    assert wait_of(build_jobs(rows), preemption={"mode": "resume", "max_gpus": 1}) == [10, 0]


def test_jobs_of_one_gpu_can_share_it() -> None:
    rows = [(0, 1, 100, 100), (1, 1, 100, 100), (2, 1, 100, 100)]
    jobs = build_jobs(rows, hosts=(1,))
    assert wait_of(jobs) == [0, 99, 198]
    assert wait_of(jobs, sharing=0.5) == [0, 0, 98]


def test_more_hosts_of_a_model_help_only_who_asks_for_that_model() -> None:
    jobs = build_jobs([(0, 4, 100, 100), (1, 4, 100, 100), (2, 4, 100, 100)], hosts=(4, 4))
    told = RecordedJobs(
        **{
            **jobs.__dict__,
            "gpu_model": ("A100", "A100", "V100"),
            "site": Hosts(names=("n1", "n2"), models=("A100", "V100")),
        }
    )
    assert wait_of(told) == [0, 99, 98]
    assert wait_of(told, backfill="easy") == [0, 99, 0]
    more = {"add_hosts": [{"count": 1, "model": "A100"}]}
    assert wait_of(told, **more) == [0, 0, 0]
    with pytest.raises(InvalidInput, match="A100, V100"):
        wait_of(told, add_hosts=[{"count": 1, "model": "H100"}])
    with pytest.raises(InvalidInput, match="2 hosts fewer of 1"):
        wait_of(told, add_hosts=[{"count": -2, "model": "V100"}])


def test_a_partition_for_small_jobs_takes_them_and_nobody_else() -> None:
    rows = [(0, 8, 100, 100), (1, 1, 10, 10), (2, 4, 10, 10)]
    shapes = [{"name": "small", "count": 1, "max_gpus": 1}, {"name": "rest", "first": 1}]
    jobs = build_jobs(rows, hosts=(4, 4, 4))
    assert wait_of(jobs) == [0, 0, 9]
    assert wait_of(jobs, partitions=shapes) == [0, 0, 98]
    never = wait_of(jobs, partitions=[{"name": "small", "max_gpus": 1}])
    assert np.isnan(never).tolist() == [True, False, True]


def test_a_project_and_a_partition_can_be_capped() -> None:
    rows = [(0, 4, 100, 100), (1, 4, 10, 10)]
    jobs = build_jobs(rows)
    grouped = RecordedJobs(
        **{**jobs.__dict__, "project": np.zeros(2, np.int64), "projects": ("nlp",)}
    )
    assert wait_of(grouped, limits={"max_gpus_per_project": 4}) == [0, 99]
    capped = [{"name": "all", "max_gpus_per_user": 4}]
    assert wait_of(jobs, partitions=capped) == [0, 99]


def test_the_size_factor_is_slurms_where_cpus_are_told() -> None:
    """One host and one CPU are the same size with 1 GPU or 4; two hosts are larger."""
    jobs = build_jobs([(0, 8, 10, 10), (1, 1, 10, 10), (2, 4, 10, 10), (3, 8, 10, 10)])
    told = RecordedJobs(
        **{
            **jobs.__dict__,
            "cpus_per_host": np.ones(4, np.int64),
            "site": Hosts(cpus=np.full(2, 32, np.int64)),
        }
    )
    settings = {"order": "multifactor", "weights": {"size": 1000}}
    assert wait_of(told, **settings) == [0, 19, 18, 7]
    assert wait_of(told, **settings, favor_small=True) == [0, 9, 8, 17]


def test_an_unnamed_setting_stays_as_recorded() -> None:
    base = Policy(backfill="conservative", interval_s=30.0, placement="node_order")
    policy = parse_policy({"order": "multifactor", "weights": {"age": 1}}, base)
    assert (policy.backfill, policy.interval_s, policy.placement) == (
        "conservative", 30.0, "node_order",
    )  # fmt: skip


def test_small_jobs_that_would_starve_are_named_before_it_happens() -> None:
    """User C's story: large jobs first, and the small ones wait behind all of them."""
    rows = [(i, 8, 600, 600) for i in range(6)] + [(10 + i, 1, 60, 60) for i in range(6)]
    jobs = build_jobs(sorted(rows), hosts=(4, 4), users="l" * 6 + "c" * 6)
    current = parse_policy({"order": "multifactor", "weights": {"size": 1000}, "favor_small": True})
    now = replay_policy(jobs, current)
    known = RecordedJobs(
        **{
            **jobs.__dict__,
            "start_ms": jobs.submit_ms + (now.wait_s * 1000).astype(np.int64),
        }
    )
    answer = compute_what_if(known, parse_policy({"favor_small": False}, current), current)
    small = answer["by_size"][0]
    assert small["mean_wait_s"] > 4 * small["mean_wait_now_s"]
    assert any(sentence.startswith("Workloads of 1 GPU wait") for sentence in answer["losses"])
    assert any(sentence.startswith("User c waits") for sentence in answer["losses"])


def test_an_array_of_a_hundred_thousand_tasks_is_replayed() -> None:
    many = 100_000
    jobs = build_jobs([(0, 1, 10, 60)] * many, hosts=(8,) * 25)
    waits = replay_policy(jobs, parse_policy({"start_lag_s": 0, "backfill": "easy"})).wait_s
    assert waits.max() == 10 * (many // 200 - 1)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"hosts": [{"count": 1}]}, "no 'gpus'"),
        ({"hosts": [{"count": 1, "gpus": 100}]}, "at most 64"),
        ({"partitions": [{"name": "a"}, {"name": "a"}]}, "same name"),
        ({"partitions": [{"hosts": ["n1"]}]}, "no 'name'"),
        ({"reservations": [{"begin_s": 5, "end_s": 5}]}, "ends before it began"),
        ({"preemption": "kill"}, "Unknown preemption 'kill'"),
        ({"sharing": 2}, "from 0.001 to 1"),
        ({"start_lag_s": "soon"}, "a pair such as"),
        ({"favor_small": 1}, "true or false"),
        ({"add_hosts": [{"count": 1.5}]}, "a whole number"),
    ],
)
def test_wrong_parts_of_a_policy_are_named(document: object, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        parse_policy(document)
