"""What a record says beside submissions and ends: outages, who left, limits of partitions and of
qualities of service, what ran already; and the order inferred from told priorities.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from marey.model.errors import InvalidInput
from marey.queue.policy.inferred_policy import infer_policy
from marey.queue.policy.inferred_priority import ReportedPriorities, fit_priority
from marey.queue.policy.policy import Policy, parse_policy
from marey.queue.policy.policy_replay import replay_policy, select_schedule
from marey.queue.policy.recorded_jobs import (
    UNKNOWN_MS,
    Hosts,
    OtherUse,
    Outages,
    RecordedJobs,
)
from tests.queue.policy.test_policy_replay import build_jobs, wait_of

HOUR_MS = 3_600_000


def on_hosts(jobs: RecordedJobs, *partitions: str) -> RecordedJobs:
    """Return the jobs on named hosts, the first half of these in the first partition."""
    many = len(jobs.host_gpus)
    names = tuple(f"h{i}" for i in range(many))
    return replace(
        jobs,
        site=Hosts(names=names, partitions=tuple((name,) for name in partitions)),
    )


def break_hosts(jobs: RecordedJobs, *rows: tuple[int, int, int]) -> RecordedJobs:
    """Return the jobs with outages of (host, begin, end in seconds)."""
    host, begin, end = np.array(rows, np.int64).T
    return replace(jobs, outages=Outages(host, begin * 1000, end * 1000))


def test_nothing_starts_on_a_host_out_of_service_until_it_is_back() -> None:
    # Two hosts of 4; the second is out from 5 to 300 s, whoever runs there goes on.
    jobs = break_hosts(
        on_hosts(build_jobs([(0, 4, 100, 100), (1, 4, 50, 50), (10, 4, 20, 20), (20, 4, 20, 20)])),
        (1, 5, 300),
    )
    assert wait_of(jobs) == [0, 0, 90, 100]


def test_who_asks_for_more_hosts_than_are_in_service_holds_nobody_up() -> None:
    jobs = break_hosts(
        on_hosts(build_jobs([(0, 1, 10, 10), (20, 8, 50, 50), (30, 4, 20, 20)])), (1, 5, 300)
    )
    for backfill in ("none", "easy", "conservative"):
        assert wait_of(jobs, backfill=backfill) == [0, 280, 0]


def test_two_outages_of_one_host_may_overlap() -> None:
    jobs = break_hosts(
        on_hosts(build_jobs([(0, 1, 10, 10), (20, 8, 50, 50)])), (1, 5, 100), (1, 50, 200)
    )
    assert wait_of(jobs) == [0, 180]


def test_who_leaves_while_waiting_blocks_only_until_then() -> None:
    # The second needs both hosts and is cancelled at 40 s: the third starts then.
    jobs = build_jobs([(0, 4, 100, 100), (1, 8, 50, 50), (2, 1, 20, 20)])
    left = replace(jobs, leave_ms=np.array([-1, 40_000, -1]))
    waits = wait_of(left)
    assert waits[0] == 0
    assert np.isnan(waits[1])
    assert waits[2] == 38
    assert left.counted.tolist() == [True, False, True]


def test_what_ran_when_the_record_began_stays_on_its_hosts() -> None:
    # Each of the two holds half of a host: a whole host is free only after one has ended.
    jobs = on_hosts(build_jobs([(0, 2, 100, 100), (0, 2, 60, 60), (5, 4, 10, 10)]))
    assert wait_of(jobs) == [0, 0, 0]
    held = replace(
        jobs, first_hosts=((0,), (1,), ()), start_ms=np.array([UNKNOWN_MS, UNKNOWN_MS, 60_000])
    )
    assert wait_of(held) == [0, 0, 55]
    # Hosts that the policy does not have: it starts wherever there is room.
    assert wait_of(held, hosts=[{"count": 3, "gpus": 4}]) == [0, 0, 0]


def test_a_partition_may_cap_its_users_without_naming_its_hosts() -> None:
    jobs = on_hosts(
        build_jobs([(0, 2, 100, 100), (1, 2, 100, 100), (2, 2, 100, 100)], users="aab"), "p", "q"
    )
    jobs = replace(jobs, partition=("p", "p", "p"))
    assert wait_of(jobs) == [0, 0, 98]
    capped = [{"name": "p", "max_gpus_per_user": 2}]
    assert wait_of(jobs, partitions=capped) == [0, 99, 0]
    assert wait_of(jobs, partitions=[{"name": "p", "max_gpus_in_use": 2}]) == [0, 99, 198]


@pytest.mark.parametrize(
    ("limit", "waits"),
    [
        ({}, [0, 0, 0, 0]),
        ({"max_gpus_per_user": 4}, [0, 0, 98, 0]),
        ({"max_jobs_per_user": 1}, [0, 99, 198, 0]),
        ({"max_gpus": 2}, [0, 99, 198, 0]),
    ],
)
def test_a_quality_of_service_has_limits_of_its_own(
    limit: dict[str, int], waits: list[float]
) -> None:
    jobs = build_jobs([(0, 2, 100, 100), (1, 2, 100, 100), (2, 2, 100, 100), (3, 2, 100, 100)])
    jobs = replace(jobs, qos=np.array([0, 0, 0, 1]), qos_names=("normal", "high"))
    assert wait_of(jobs, qos=[{"name": "normal", **limit}]) == waits


def test_limits_of_a_quality_of_service_are_checked() -> None:
    with pytest.raises(InvalidInput, match="same name"):
        parse_policy({"qos": [{"name": "a"}, {"name": "a"}]})
    with pytest.raises(InvalidInput, match="max_gpu"):
        parse_policy({"qos": [{"name": "a", "max_gpu": 3}]})


def test_use_elsewhere_counts_for_the_share() -> None:
    # Both ask for the one host at once; the first has held GPUs in another partition.
    jobs = build_jobs([(0, 4, 100, 100), (10, 4, 50, 50), (11, 4, 50, 50)], hosts=(4,), users="cab")
    fair = {"order": "multifactor", "weights": {"fairshare": 1000}}
    assert wait_of(jobs, **fair) == [0, 90, 139]
    used = OtherUse(np.array([0]), np.array([0]), np.array([8]), np.zeros(3))
    assert wait_of(replace(jobs, other_use=used), **fair) == [0, 140, 89]


def build_told(first_use: bool) -> tuple[RecordedJobs, ReportedPriorities]:
    """Return a day of jobs of one GPU and the priorities of a known rule, told as they came."""
    draws = np.random.default_rng(3)
    submit = np.sort(draws.integers(0, 86_400, 400))
    jobs = build_jobs(
        [(int(at), 1, int(draws.integers(600, 7200)), 7200) for at in submit],
        hosts=(8, 8),
        users="".join("abcd"[i] for i in draws.integers(0, 4, 400)),
    )
    used = np.array([3e8, 0.0, 1e8, 0.0]) if first_use else np.zeros(4)
    rule = Policy(
        order="multifactor",
        weights={"age": 2000.0, "fairshare": 4000.0, "recorded": 1.0},
        half_life_s=2 * 86_400,
        dampening=3.0,
    )
    bonus = np.where(np.arange(400) % 7 == 0, 3000.0, 600.0)
    jobs = replace(
        jobs,
        priority=bonus,
        qos=np.where(bonus > 1000, 1, 0),
        qos_names=("normal", "high"),
        other_use=OtherUse(before=used),
    )
    replayed = replay_policy(jobs, rule, replays=1)
    jobs = replace(jobs, start_ms=jobs.submit_ms + (replayed.wait_s * 1000).astype(np.int64))
    told = tell_priorities(jobs, bonus, used)
    # What is known of earlier use is what still ran: two thirds of it.
    return replace(jobs, other_use=OtherUse(before=used * 2 / 3), priority=np.zeros(400)), told


def tell_priorities(jobs: RecordedJobs, bonus: np.ndarray, used: np.ndarray) -> ReportedPriorities:
    """Return each job's priority when it came and when it started, by the sum itself."""
    job = np.repeat(np.arange(len(jobs)), 2)
    at = np.column_stack([jobs.submit_ms + 1, jobs.start_ms]).ravel()
    half_ms = 2 * 86_400_000.0
    values = []
    for place, now in zip(job, at, strict=True):
        begin = np.minimum(jobs.start_ms, now)
        end = np.minimum(jobs.start_ms + jobs.run_ms, now)
        decayed = (2.0 ** ((end - now) / half_ms) - 2.0 ** ((begin - now) / half_ms)) * half_ms
        use = np.bincount(jobs.owner, decayed / np.log(2), minlength=4) + used * 2.0 ** (
            -now / half_ms
        )
        share = 2.0 ** (-use[jobs.owner[place]] / max(use.sum(), 1.0) * 4 / 3.0)
        age = (now - jobs.submit_ms[place]) / (7 * 86_400_000.0)
        values.append(np.floor(2000.0 * age + 4000.0 * share + bonus[place]))
    return ReportedPriorities(job, at, np.array(values))


@pytest.mark.parametrize("first_use", [False, True])
def test_the_weights_are_found_in_told_priorities(first_use: bool) -> None:
    jobs, told = build_told(first_use)
    fitted = fit_priority(jobs, told)
    assert fitted is not None
    assert fitted.explained > 0.98
    # Use that nobody recorded leaves a doubt about the rule that followed it.
    assert fitted.order.weights["fairshare"] == pytest.approx(
        4000.0, rel=0.2 if first_use else 0.02
    )
    if not first_use:
        assert (fitted.order.half_life_s, fitted.order.dampening) == (2 * 86_400.0, 3.0)
    # What is fixed of a job stands apart from age and share.
    assert fitted.own[0] - fitted.own[1] == pytest.approx(2400.0, abs=100.0)


def test_the_replay_under_the_inferred_policy_is_the_record() -> None:
    jobs, told = build_told(False)
    whole, policy, fidelity = infer_policy(jobs, told, fit_priority(jobs, told))
    assert policy.order == "multifactor"
    assert abs(fidelity["error"]) < 0.05
    # The scheduler's small delays are drawn anew: a second decides who fits a gap.
    assert fidelity["near"] > 0.7
    assert "inferred from 800 priorities" in whole.notes[-1]


def test_priorities_without_a_rule_are_no_rule() -> None:
    jobs, told = build_told(False)
    noise = np.random.default_rng(0).uniform(0.0, 1e4, len(told.priority))
    assert fit_priority(jobs, replace(told, priority=noise)) is None
    assert fit_priority(jobs, ReportedPriorities()) is None


def test_a_part_of_the_jobs_has_their_own_mean_wait() -> None:
    jobs = build_jobs([(0, 4, 100, 100), (1, 4, 50, 50), (2, 4, 20, 20)], hosts=(4,))
    whole = replay_policy(jobs, parse_policy({"start_lag_s": 0}), replays=2)
    chosen = np.array([False, True, True])
    part = select_schedule(whole, chosen)
    assert part.mean_wait_s == pytest.approx((99 + 148) / 2)
    assert len(jobs.select(chosen)) == len(part.wait_s) == 2


def test_whoever_is_kept_back_by_a_limit_tells_of_a_cap() -> None:
    jobs = build_jobs([(0, 2, 100, 100), (1, 2, 100, 100), (2, 2, 100, 100)], users="aab")
    jobs = replace(
        on_hosts(jobs, "p", "p"),
        partition=("p",) * 3,
        start_ms=np.array([0, 100_000, 2_000]),
    )
    told = ReportedPriorities(limited=np.array([1]), limited_ms=np.array([1_000]))
    _, policy, fidelity = infer_policy(jobs, told, None)
    assert [(rule.name, rule.max_gpus_per_user) for rule in policy.partitions] == [("p", 3)]
    assert abs(fidelity["error"]) < 0.1
