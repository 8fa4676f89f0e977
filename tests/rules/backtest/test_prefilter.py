"""Who is left out of a back-test must not have mattered; who matters must not be left out."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from marey.model.times import MINUTE_MS
from marey.rules.backtest import history_evaluator, metric_series
from marey.rules.backtest.backtest import (
    History,
    PastWorkload,
    backtest,
    replay,
)
from marey.rules.backtest.history_evaluator import HistoryEvaluationLoop
from marey.rules.definition import draft
from marey.rules.engine.allocations import Facts, HeldGpu
from marey.rules.engine.evaluation_loop import EvaluationLoop
from marey.rules.engine.findings import Finding


def documents(findings: list[Finding]) -> list[Any]:
    return sorted((msgspec.to_builtins(f) for f in findings), key=lambda d: d["id"])


def same_as_lived(text: str, history: History) -> list[Finding]:
    """What a back-test finds, after checking that a loop which lived it finds the same."""
    loop = EvaluationLoop([draft(text)])
    loop.judged_ms = history.from_ms // MINUTE_MS * MINUTE_MS
    replay(loop, history)
    found = backtest([draft(text)], history).findings
    assert documents(found) == documents(list(loop.book.findings.values())), text
    return found


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The minute in which each workload was taken up."""
    minutes: dict[str, int] = {}
    admit_concerned = HistoryEvaluationLoop.admit_concerned

    def listen(loop: HistoryEvaluationLoop) -> None:
        admit_concerned(loop)
        for name in loop.screen.heard:
            minutes.setdefault(name, int(loop.metric_history.marks[0]))

    monkeypatch.setattr(HistoryEvaluationLoop, "admit_concerned", listen)
    # Blocks of a few minutes: most of a life is in blocks before the one at hand.
    monkeypatch.setattr(history_evaluator, "BLOCK_ROWS", 400)
    return minutes


def test_only_those_for_whom_the_rule_may_hold_are_heard(
    world: Any, heard: dict[str, int], start_ms: int
) -> None:
    world.minutes = 180
    world.add("busy", 8, {"util": 95.0})
    world.add("idle", 8, {"util": 1.0})
    # Busy for an hour, then idle: the average falls below half after two.
    world.add("later", 8, {"util": lambda m, r: 95.0 if m < 60 else 2.0})
    found = same_as_lived("all: util mean < 50% and runtime > 30m", world.history())
    assert {f.workload for f in found} == {"idle", "later"}
    assert "busy" not in heard
    assert heard["idle"] >= start_ms + 20 * MINUTE_MS
    assert heard["later"] >= start_ms + 100 * MINUTE_MS


def test_what_just_happened_is_known_of_whoever_is_heard_late(
    world: Any, heard: dict[str, int]
) -> None:
    world.minutes = 150
    # Over the life a violation from some moment on, but refuted now by the last ten minutes.
    world.add("now-busy", 4, {"util": lambda m, r: 3.0 if m < 70 or m > 100 else 90.0})
    world.add("flapping", 4, {"util": lambda m, r: 30.0 if m % 40 < 15 else 3.0})
    found = same_as_lived(
        "all: util p60 < 20% and util max > 25% and runtime > 65m", world.history()
    )
    assert {f.workload for f in found} == {"now-busy", "flapping"}
    assert len(heard) == 2


@pytest.mark.parametrize("recalled_ms", [0, 30 * MINUTE_MS])
@pytest.mark.parametrize(
    "text",
    [
        "at least 3 gpus: util median > 60% and power_share p95 < 45%",
        "at least 30% of gpus: util share(> 50%) > 40% and runtime > 20m",
        "all but the first rank: util max < 40% or power min > 300 W",
        "any node: util last < 35% and runtime > 10m",
        "user = ada and (util range > 20% or power mean > 180 W)",
        "partition != small and not util p95 > 80%",
        "all: util mean < 60% and util mean[10m] < 50% and runtime > 15m",
        "util p50 < 0.9 * workload and util count > 100",
        "util p50 < 60% and runtime < 40m",
    ],
)
def test_every_sort_of_clause_finds_what_was_lived(
    world: Any, monkeypatch: pytest.MonkeyPatch, text: str, recalled_ms: int
) -> None:
    monkeypatch.setattr(history_evaluator, "BLOCK_ROWS", 500)
    monkeypatch.setattr(metric_series, "RECALLED_MS", recalled_ms)
    noise = np.random.default_rng(5).normal(0, 12, 100_000)

    def moved(level: float, slope: float, key: int) -> Any:
        return lambda m, r: level + slope * m + 6 * r + noise[(key + int(m * 60) + 97 * r) % 90_000]

    world.minutes = 90
    for number, (level, slope) in enumerate([(20, 0.8), (80, -0.7), (55, 0.0), (35, 0.2)]):
        shapes = {
            "util": moved(level, slope, 1_000 * number),
            "power": moved(90 + level, slope, 7_000 * number),
        }
        end = None if number % 2 else 70
        user, partition = ("ada", "small") if number < 2 else ("bo", "large")
        world.add(f"w{number}", 6, shapes, per_node=3, end=end, user=user, partition=partition)
    same_as_lived(text, world.history())


def test_a_row_that_was_handed_on_remembers_nothing_of_who_had_it(
    world: Any, heard: dict[str, int], start_ms: int
) -> None:
    # Each is busy for its first minutes; the one before it on the GPU ended at full load.
    world.minutes = 240
    samples = world.add("w", 1, {"util": lambda m, r: 95.0 if m % 20 >= 12 else 4.0}).batches()
    world.workloads.clear()
    for number in range(12):
        begin = start_ms + number * 20 * MINUTE_MS
        facts = Facts(f"w{number}", start_ms=begin, end_ms=begin + 20 * MINUTE_MS)
        world.workloads.append(PastWorkload(facts, [HeldGpu("w-n0:0", "w-n0", begin)]))
    found = same_as_lived("util mean < 30% and runtime > 8m", world.history(samples))
    assert len(found) == 12
