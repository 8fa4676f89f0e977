"""Why a workload waits, what is free, what changed: told from small lines one can read."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from marey.model.times import describe_span
from marey.queue.waiting.changes import compare_lines
from marey.queue.waiting.explanation import explain_briefly, explain_wait
from marey.queue.waiting.fairness import measure_fairness
from marey.queue.waiting.forecast_record import KeptForecast, score_forecasts_kept
from marey.queue.waiting.free_room import measure_free_room, measure_stranded
from marey.queue.waiting.line import Holder, HostRoom, Line, RunningJob, Waiter, sort_line
from marey.queue.waiting.priority_aging import NOT_KNOWN, describe_aging
from marey.queue.waiting.simulated_starts import simulate_starts

MINUTE_MS = 60_000


def waiter(name: str, gpus: int = 8, *, priority: float = 1.0, **more: object) -> Waiter:
    """Return a workload that waits for GPUs of one host."""
    base = Waiter(
        name, "ada", "vision", "gpu", gpus, min(gpus, 8), "", 3600, 0, priority, "Priority"
    )
    return replace(base, **more)  # type: ignore[arg-type]


def host(
    name: str, free: int, *, ends: int | None = 20 * MINUTE_MS, usable: bool = True
) -> HostRoom:
    """Return a host of eight A100 of which some are free; the others end by their limit."""
    holders = (Holder(f"on-{name}", 8 - free, ends),) if free < 8 else ()
    return HostRoom(name, "A100", ("gpu",), 8, free, usable, holders=holders)


def test_the_concrete_blocker_is_named_with_the_time_it_frees() -> None:
    line = Line(0, [waiter("a")], [host("h1", 3), host("h2", 5, ends=50 * MINUTE_MS)])
    why = explain_wait(line, 0)
    assert why.verdict == "blocked"
    assert why.sentences[0] == (
        "Needs 8 GPUs on one host; 0 of 2 hosts have enough free; 2 have 3 to 5 free; "
        "the next to have enough is h1, by its time limit in 20 min."
    )
    assert why.blocking_hosts == ("h1",)
    assert why.blocking_workloads == ("on-h1",)
    assert why.free_at_ms == 20 * MINUTE_MS


def test_a_request_larger_than_every_host_will_never_start_as_asked() -> None:
    line = Line(0, [waiter("a", 16, per_host=16)], [host("h1", 8)])
    why = explain_wait(line, 0)
    assert why.verdict == "never"
    assert "never start as requested" in why.sentences[0]
    assert "the largest host there has 8 GPUs" in why.sentences[0]


def test_room_kept_for_those_ahead_is_told_as_being_behind_them() -> None:
    line = Line(0, sort_line([waiter("b", 1), waiter("a", 8, priority=2.0)]), [host("h1", 4)])
    why = explain_wait(line, 1)
    assert why.verdict == "behind"
    assert why.ahead.jobs == 1
    assert why.ahead.gpu_hours == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("reason", "verdict"),
    [("Dependency", "held"), ("QOSMaxGRESPerUser", "held"), ("DependencyNeverSatisfied", "never")],
)
def test_what_is_held_back_is_not_blamed_on_the_line(reason: str, verdict: str) -> None:
    line = Line(0, [waiter("a", reason=reason)], [host("h1", 8)])
    assert explain_wait(line, 0).verdict == verdict


def test_what_runs_under_the_limit_is_named_with_the_first_to_end() -> None:
    running = [
        RunningJob("7", "vision", "gpu", 4, 0, 7200, "ada"),
        RunningJob("8", "vision", "gpu", 8, 0, 3600, "ada"),
        RunningJob("9", "vision", "gpu", 2, 0, 600, "bob"),
    ]
    by_user = Line(0, [waiter("a", reason="QOSMaxGRESPerUser")], [host("h1", 8)], running)
    assert explain_wait(by_user, 0).sentences[1] == (
        "Under it: 2 running jobs with 12 GPUs of user ada; the first to end is 8, by its limit in "
        "1 h."
    )
    by_project = Line(0, [waiter("a", reason="AssocGrpGRES")], [host("h1", 8)], running)
    said = explain_wait(by_project, 0).sentences[1]
    assert "3 running jobs with 14 GPUs of project vision; the first to end is 9" in said


def test_drained_hosts_are_named_as_the_blocker() -> None:
    line = Line(0, [waiter("a", 16)], [host("h1", 8), host("h2", 8, usable=False)])
    why = explain_wait(line, 0)
    assert why.verdict == "blocked"
    assert "out of service, first h2" in why.sentences[0]


def test_a_job_without_a_limit_leaves_the_hours_ahead_unknown() -> None:
    line = Line(0, [waiter("a", priority=2.0, limit_s=None), waiter("b")], [host("h1", 0)])
    assert explain_wait(line, 1).ahead.gpu_hours is None


def test_free_room_counts_whole_hosts_and_what_nobody_can_use() -> None:
    line = Line(0, [waiter("a", 8)], [host("h1", 8), host("h2", 3)])
    room = measure_free_room(line)[0]
    assert (room.free, room.whole_hosts_free, room.largest_on_one_host) == (11, 1, 8)
    assert room.stranded == 3.0
    assert room.next_host == "h2"


def test_nothing_is_stranded_where_everybody_asks_for_one() -> None:
    assert measure_stranded(3, [waiter("a", 1)], 8) == 0.0


def test_what_moved_since_yesterday_is_told_in_words() -> None:
    before = Line(0, [waiter("x", priority=3.0), waiter("a")], [])
    now = Line(1, [waiter("n", priority=5.0), waiter("a")], [])
    change = compare_lines(before, now, 1)
    assert change.sentences == (
        "1 job ahead of it left the line.",
        "1 job with higher priority arrived.",
    )


def test_use_is_compared_with_equal_shares() -> None:
    rows = measure_fairness({"vision": 30.0, "text": 10.0}, [], {})
    assert [(row.project, row.ratio) for row in rows] == [("vision", 1.5), ("text", 0.5)]


def test_use_is_compared_with_the_sites_shares_whoever_used_nothing_included() -> None:
    weights = {"vision": 1.0, "text": 2.0, "speech": 1.0}
    rows = measure_fairness({"vision": 30.0, "text": 10.0, "guests": 10.0}, [], weights)
    assert [(row.project, row.fair_share, row.ratio) for row in rows] == [
        ("vision", 0.25, pytest.approx(2.4)),
        ("text", 0.5, pytest.approx(0.4)),
        # Nobody has given guests a share: there is nothing to compare their use with.
        ("guests", 0.0, None),
        ("speech", 0.25, 0.0),
    ]


def test_forecasts_still_waiting_past_their_interval_count_as_misses() -> None:
    kept = [
        KeptForecast("a", 0, 10, 20, 40, start_ms=30_000),
        KeptForecast("b", 0, 10, 20, 40),
    ]
    score = score_forecasts_kept(kept, now_ms=100_000)
    assert (score.scored, score.waiting, score.overdue) == (2, 1, 1)
    assert score.coverage == 0.5
    assert "Not enough history" in score.sentence


def test_spans_are_told_as_people_say_them() -> None:
    assert [describe_span(s) for s in (40, 600, 12_000, 187_200)] == [
        "40 s",
        "10 min",
        "3 h 20 min",
        "2 d 4 h",
    ]


def test_tasks_of_an_array_stand_in_the_order_of_their_numbers() -> None:
    tied = [waiter(name) for name in ("41_10", "100", "41_2", "ns_pod", "99")]
    assert [w.workload for w in sort_line(tied)] == ["41_2", "41_10", "99", "100", "ns_pod"]


def test_how_a_priority_ages_is_told_from_weight_and_longest_age_or_not_at_all() -> None:
    week = 7 * 86400.0
    young = waiter("a", priority=400.0, factors={"age": 300.0}, age_weight=1000.0, max_age_s=week)
    told = describe_aging(young)
    assert told.per_day == pytest.approx(1000 / 7)
    assert (told.still_to_come, told.full_in_s) == (700.0, pytest.approx(0.7 * week))
    assert told.sentence == (
        "Waiting adds 143 to its priority of 400 per day, 700 more in all; "
        "its age counts fully in 4 d 21 h."
    )
    assert "adds nothing" in describe_aging(replace(young, factors={"age": 1000.0})).sentence
    assert "held back" in describe_aging(replace(young, reason="JobHeldUser")).sentence
    assert describe_aging(replace(young, age_weight=0.0)).per_day == 0.0
    for lacking in (replace(young, age_weight=None), replace(young, max_age_s=None)):
        assert describe_aging(lacking).sentence == NOT_KNOWN


def test_the_workloads_it_depends_on_and_its_reservation_are_named() -> None:
    held = waiter("a", reason="Dependency", dependency="afterok:41(unfulfilled),afterany:42_3")
    runs = RunningJob("41", "vision", "gpu", 8, 0, 3600)
    line = Line(0, [held], [host("h1", 8)], [runs])
    assert explain_wait(line, 0).sentences[1] == "It depends on 41 (running), 42_3."
    reserved = waiter("b", reason="Reservation", reservation="workshop")
    why = explain_wait(Line(0, [reserved], [host("h1", 8)]), 0)
    assert why.verdict == "held"
    assert why.sentences[1] == "The reservation is workshop."


def forecast_one(hosts: list[HostRoom]) -> float:
    """Return the middle of the forecast of a workload that needs eight GPUs on one host."""
    [found] = simulate_starts(Line(0, [waiter("a")], hosts)).values()
    assert found.p50_s is not None
    return found.p50_s


def test_free_gpus_scattered_over_hosts_promise_no_start() -> None:
    """Four free on each of two hosts are not eight on one; nor are eight of which four are out."""
    assert forecast_one([host("h1", 8), host("h2", 4)]) < 60
    assert forecast_one([host("h1", 4), host("h2", 4)]) > 300
    broken = HostRoom("h1", "A100", ("gpu",), 8, 4, True, holders=())
    assert forecast_one([broken, host("h2", 0)]) > 300


def test_workloads_that_share_a_gpu_hold_it_once() -> None:
    shared = (Holder("x", 8, 20 * MINUTE_MS), Holder("y", 8, 20 * MINUTE_MS))
    both = HostRoom("h1", "A100", ("gpu",), 8, 0, True, holders=shared)
    assert forecast_one([both]) <= 20 * 60 + 60


def test_the_short_answer_is_the_first_sentence_of_the_long_one() -> None:
    reasons = ("Priority", "Dependency", "QOSMaxGRESPerUser", "BadConstraints", "Resources")
    waiters = [
        waiter(f"w{i}", gpus, reason=reason, partition="gpu" if i % 3 else "")
        for i, (gpus, reason) in enumerate(product((1, 8, 16, 64), reasons))
    ]
    line = Line(0, waiters, [host("h1", 3), host("h2", 8), host("h3", 8, usable=False)])
    briefly = list(explain_briefly(line, range(len(waiters))))
    whole = [explain_wait(line, place) for place in range(len(waiters))]
    assert briefly == [(why.verdict, why.sentences[0]) for why in whole]
