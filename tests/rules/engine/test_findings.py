from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marey.model.samples import SampleBatch
from marey.model.times import HOUR_MS, MINUTE_MS
from marey.rules.backtest.backtest import backtest
from marey.rules.definition import Rule, draft
from marey.rules.engine.evaluation_loop import PAST_EVERY_MS, EvaluationLoop
from marey.rules.engine.evaluator import Evaluator
from marey.rules.engine.findings import ChangeKind, Episode, Finding, FindingTracker, charge
from marey.rules.engine.state_codec import dump, load
from marey.rules.waste import WasteBy, waste_csv, wasted

RULES = [
    draft("util p95[10m] > 90% and power_share p50[10m] < 40%", rule_id="stalled"),
    draft("util mean < 15% and runtime > 10m", rule_id="low"),
    draft("at least 50% of gpus: util mean[5m] < 0.75 * workload max", rule_id="uneven"),
]


def mixed(world: Any) -> Any:
    """One workload stalls for half an hour, one is idle from the start, one is well."""
    world.minutes = 90

    def stalls(minute: float) -> bool:
        return 30 <= minute < 60

    world.add(
        "stalls",
        4,
        {
            "util": lambda minute, rank: 100.0 if stalls(minute) else 80.0 + rank,
            "power": lambda minute, rank: 100.0 if stalls(minute) else 350.0,
        },
        user="ada",
        project="p",
    )
    world.add("idle", 2, {"util": 2.0, "power": 60.0}, end=45, user="bob", project="q")
    world.add("well", 4, {"util": lambda m, r: 85 + (m + r) % 10, "power": 360.0}, user="ada")
    return world


def replay(world: Any, loop: EvaluationLoop, *, live: bool = True) -> None:
    """Feed the loop tick by tick, as the collect loop does."""
    for past in world.workloads:
        loop.admit(replace(past.facts, end_ms=None), past.held_gpus)
    told = set()
    for batch in world.batches():
        now = int(batch.time_ms[0])
        loop.advance(now - 1)
        for past in world.workloads:
            end_ms = past.facts.end_ms
            if end_ms is not None and end_ms <= now and past.facts.workload not in told:
                told.add(past.facts.workload)
                loop.admit(past.facts, ())
        loop.take(batch, now)
        loop.advance(now)


def summary(findings: Any) -> list[Any]:
    return sorted(
        (
            f.rule,
            f.workload,
            [(e.opened_ms, e.closed_ms, e.because) for e in f.episodes],
            round(f.gpu_hours, 6),
            sorted(f.gpus),
            msgspec.to_builtins(f.evidence),
        )
        for f in findings
    )


def test_findings_open_and_close_with_evidence_and_gpu_hours(world: Any, start_ms: int) -> None:
    mixed(world)
    loop = EvaluationLoop(RULES)
    replay(world, loop)
    stalled = loop.book.findings["stalled", "stalls"]
    (episode,) = stalled.episodes
    assert 30 <= (episode.opened_ms - start_ms) / MINUTE_MS <= 45
    assert episode.because == "no longer violated"
    assert stalled.gpus == [f"stalls-n0:{i}" for i in range(4)]
    reading = stalled.evidence["stalls-n0:0"][0]
    assert reading.condition == "util p95[10m] > 90%"
    assert reading.limit == 90.0
    # 4 GPUs for half an hour, to within the windows that open and close it.
    assert 1.2 <= stalled.gpu_hours <= 3.4
    idle = loop.book.findings["low", "idle"]
    assert idle.episodes[-1].because == "the workload ended"
    assert idle.gpu_hours == pytest.approx(2 * 45 / 60, abs=0.01)
    assert {f.workload for f in loop.book.findings.values()} == {"stalls", "idle"}


def test_live_history_and_back_test_give_the_same_findings(world: Any) -> None:
    mixed(world)
    live = EvaluationLoop(RULES)
    replay(world, live)
    expected = summary(live.book.findings.values())
    assert len(expected) >= 2
    whole = SampleBatch(
        np.concatenate([b.time_ms for b in world.batches()]),
        np.concatenate([b.entity for b in world.batches()]),
        world.batches()[0].entities,
        {
            name: np.concatenate([b.columns[name] for b in world.batches()])
            for name in world.batches()[0].columns
        },
    )
    thirds = [whole.rows(slice(i, i + 1234)) for i in range(0, len(whole), 1234)]
    for batches in (None, [whole], thirds):
        past = backtest(RULES, world.history(batches))
        assert summary(past.findings) == expected


def test_a_restart_in_the_middle_changes_nothing(world: Any) -> None:
    mixed(world)
    whole = EvaluationLoop(RULES)
    replay(world, whole)
    cut = 200
    batches = world.batches()
    first = EvaluationLoop(RULES)
    world.batches = lambda: batches[:cut]
    replay(world, first)
    evaluator = load(b"".join(dump(first.evaluator)), RULES)
    kept = [
        msgspec.json.decode(msgspec.json.encode(f), type=Finding)
        for f in first.book.findings.values()
    ]
    second = EvaluationLoop(evaluator=evaluator, findings=kept)
    second.judged_ms, second.book.last_ms = first.judged_ms, first.book.last_ms
    world.batches = lambda: batches[cut:]
    replay(world, second)
    assert summary(second.book.findings.values()) == summary(whole.book.findings.values())


def test_late_samples_are_part_of_the_statistics(world: Any) -> None:
    world.add("w", 2, {"util": lambda m, r: 100.0 if 20 <= m < 40 else 10.0})
    batches = world.batches()
    in_order, late = Evaluator(RULES), Evaluator(RULES)
    for evaluator in (in_order, late):
        evaluator.allocations.admit(world.workloads[0].facts, world.workloads[0].held_gpus)
    for batch in batches:
        in_order.take(batch)
    for batch in [*batches[:80], *batches[160:], *batches[80:160]]:
        late.take(batch)
    words = ["mean", "p95", "max", "std", "trend", "count"]
    a = in_order.statistics("w", ["util"], words)["w-n0:0"]["util"]
    b = late.statistics("w", ["util"], words)["w-n0:0"]["util"]
    assert {k: pytest.approx(v) for k, v in a.items()} == b
    for x, y in zip(
        in_order.evaluate(world.end_ms).verdicts, late.evaluate(world.end_ms).verdicts, strict=True
    ):
        assert np.array_equal(x.life, y.life)


def test_a_flapping_rule_does_not_flap_the_finding(world: Any) -> None:
    world.minutes = 120
    world.add("w", 1, {"util": lambda m, r: 5.0 if m % 16 < 8 else 60.0})
    rule = draft("util mean[5m] < 20%", rule_id="low", close_after_ms=20 * MINUTE_MS)
    flapping = replace(rule, id="fast", close_after_ms=0)
    past = backtest([rule, flapping], world.history())
    episodes = {f.rule: len(f.episodes) for f in past.findings}
    assert episodes["low"] == 1
    assert episodes["fast"] > 3


def test_open_after_waits_for_a_lasting_violation(world: Any) -> None:
    world.add("w", 1, {"util": lambda m, r: 5.0 if 10 < m < 20 else 60.0})
    quick = draft("util mean[5m] < 20%", rule_id="quick")
    slow = replace(quick, id="slow", open_after_ms=20 * MINUTE_MS)
    assert {f.rule for f in backtest([quick, slow], world.history()).findings} == {"quick"}


def test_one_finding_per_rule_and_workload_reopens(world: Any) -> None:
    world.minutes = 150
    world.add("w", 1, {"util": lambda m, r: 5.0 if m < 30 or m > 100 else 60.0})
    rule = draft("util mean[5m] < 20%", rule_id="low")
    loop = EvaluationLoop([rule])
    kinds = []
    loop.admit(world.workloads[0].facts, world.workloads[0].held_gpus)
    for batch in world.batches():
        kinds += [change.kind for change in loop.take(batch)]
    assert kinds == [ChangeKind.OPENED, ChangeKind.CLOSED, ChangeKind.REOPENED]
    assert len(loop.book.findings) == 1


def test_a_removed_rule_closes_its_findings(world: Any) -> None:
    world.add("w", 1, {"util": 5.0})
    loop = EvaluationLoop([draft("util mean < 20%", rule_id="low")])
    loop.admit(world.workloads[0].facts, world.workloads[0].held_gpus)
    for batch in world.batches():
        loop.take(batch)
    loop.evaluator.use([])
    (change,) = loop.advance(world.end_ms + MINUTE_MS)
    assert change.finding.episodes[-1].because == "the rule was removed"


def test_a_back_test_reports_progress_and_can_be_cancelled(world: Any) -> None:
    mixed(world)
    seen: list[float] = []
    whole = backtest(RULES, world.history(), progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert whole.per_day("stalled") == pytest.approx(16)
    stopped = backtest(RULES, world.history(), cancelled=lambda: True)
    assert stopped.cancelled
    assert stopped.samples < whole.samples


def test_a_rule_deleted_while_its_back_test_runs_changes_nothing(world: Any) -> None:
    mixed(world)
    rules: list[Rule] = list(RULES)
    past = backtest(rules, world.history(), progress=lambda done: rules.clear())
    assert {f.rule for f in past.findings} == {"stalled", "low"}


def test_a_back_test_does_not_know_the_future(world: Any) -> None:
    world.add("w", 1, {"util": 5.0}, end=50, state="failed")
    rule = draft("state = failed", rule_id="failed")
    early = draft("state = running and runtime > 40m", rule_id="running")
    found = {f.rule: f for f in backtest([rule, early], world.history()).findings}
    assert found["running"].opened_ms < found["failed"].opened_ms


spans = st.tuples(st.integers(0, 10**8), st.integers(0, 10**8)).map(sorted)


@settings(deadline=None)
@given(st.lists(spans, max_size=8), st.integers(1, 64))
def test_gpu_hours_are_charged_to_the_hour_in_which_they_pass(
    charged: list[list[int]], gpus: int
) -> None:
    finding = Finding(id="x", rule="r", workload="w")
    for start, end in charged:
        charge(finding, start, end, gpus)
    total = sum(end - start for start, end in charged) * gpus / HOUR_MS
    assert finding.gpu_hours == pytest.approx(total)
    assert all(start % HOUR_MS == 0 for start in finding.hours)


def waste_of(*findings: Finding, by: WasteBy) -> dict[str, float]:
    return {w.name: round(w.gpu_hours, 3) for w in wasted(findings, by, 0, 10 * HOUR_MS)}


def test_waste_counts_an_hour_once_per_workload_but_fully_per_rule() -> None:
    def finding(rule: str, workload: str, hours: dict[int, float], **more: Any) -> Finding:
        return Finding(id=rule + workload, rule=rule, workload=workload, hours=hours, **more)

    a = finding("low", "w", {0: 4.0, HOUR_MS: 4.0}, user="ada", project="p")
    b = finding("idle", "w", {0: 2.0, HOUR_MS: 6.0}, user="ada", project="p")
    c = finding("low", "v", {0: 1.0, 20 * HOUR_MS: 9.0}, user="bob", project="p")
    d = finding("xid", "v", {0: 8.0}, user="bob", waste=False)
    assert waste_of(a, b, c, d, by=WasteBy.USER) == {"ada": 10.0, "bob": 1.0}
    assert waste_of(a, b, c, d, by=WasteBy.PROJECT) == {"p": 11.0}
    assert waste_of(a, b, c, d, by=WasteBy.RULE) == {"low": 9.0, "idle": 8.0}
    half = wasted([a], WasteBy.USER, HOUR_MS // 2, HOUR_MS)
    assert half[0].gpu_hours == pytest.approx(2.0)


def test_a_name_in_the_csv_is_never_a_formula() -> None:
    lines = wasted(
        [Finding(id="1", rule="r", workload="w", user="=cmd|' /C calc'!A0", hours={0: 1.0})],
        WasteBy.USER,
        0,
        HOUR_MS,
    )
    rows = list(csv.reader(io.StringIO(waste_csv(lines, WasteBy.USER))))
    assert rows[1][0].startswith("'=")


def test_an_open_finding_of_a_vanished_workload_is_closed(world: Any) -> None:
    kept = Finding(id="1", rule="low", workload="gone", episodes=[Episode(1)])
    loop = EvaluationLoop([draft("util < 3%", rule_id="low")], findings=[kept])
    world.add("w", 1, {"util": 50.0})
    loop.admit(world.workloads[0].facts, world.workloads[0].held_gpus)
    for batch in world.batches():
        loop.take(batch)
    assert not kept.is_open
    assert isinstance(loop.book, FindingTracker)


def test_nothing_is_held_after_the_end_where_a_workload_ended_between_evaluations(
    world: Any, start_ms: int
) -> None:
    world.minutes = 60
    ends = range(11, 30)
    for end in ends:
        world.add(f"until-{end}", 2, {"util": 2.0, "power": 60.0}, end=end)
    loop = EvaluationLoop(RULES, every_ms=PAST_EVERY_MS)
    replay(world, loop)
    found = {f.workload: f for f in loop.book.findings.values()}
    assert found
    for end in ends:
        finding = found.get(f"until-{end}")
        if finding is not None:
            assert finding.episodes[-1].closed_ms == start_ms + end * MINUTE_MS
            assert finding.gpu_hours <= 2 * end / 60 + 1e-9
