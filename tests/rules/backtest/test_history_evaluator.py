"""A back-test walks GPU by GPU through the past; it must say what a loop says that lived it."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from marey.model.events import ClusterEventKind, Event
from marey.model.metrics import Entity
from marey.model.samples import SampleBatch
from marey.model.times import HOUR_MS, MINUTE_MS
from marey.rules.backtest import history_evaluator
from marey.rules.backtest.backtest import History, PastWorkload, backtest, replay
from marey.rules.definition import Rule, draft
from marey.rules.engine.allocations import Facts, HeldGpu
from marey.rules.engine.evaluation_loop import EvaluationLoop
from marey.rules.engine.findings import Finding
from marey.rules.engine.observation_feed import find_held_gpu
from marey.rules.pack import load_shipped_rules
from marey.sim.config import FaultPlan, SimConfig
from marey.sim.simulation import Simulation


def lived(rules: list[Rule], history: History) -> list[Finding]:
    """What a loop finds that takes the samples one minute after another."""
    loop = EvaluationLoop(rules)
    loop.judged_ms = history.from_ms // MINUTE_MS * MINUTE_MS
    replay(loop, history)
    return list(loop.book.findings.values())


def documents(findings: list[Finding]) -> list[Any]:
    return sorted((msgspec.to_builtins(f) for f in findings), key=lambda d: d["id"])


@pytest.fixture(scope="module")
def simulated() -> History:
    """Six hours of a small cluster in which nearly everything goes wrong."""
    simulation = Simulation(SimConfig(gpus=96, seed=4711, faults=FaultPlan(0.9)))
    start = simulation.config.start_ms
    gpus: dict[str, Any] = {}
    facts: dict[str, Facts] = {}
    held_gpus: dict[str, dict[str, HeldGpu]] = {}
    batches, events = [], []
    for seen in simulation.advance(start + 6 * HOUR_MS):
        gpus |= {gpu.gpu: gpu for gpu in seen.gpus}
        for w in seen.workloads:
            if w.start_ms is not None:
                facts[w.workload] = Facts(
                    w.workload, w.user, w.project, w.partition, w.qos, name=w.name,
                    submit_ms=w.submit_ms, start_ms=w.start_ms, end_ms=w.end_ms,
                )  # fmt: skip
        for a in seen.allocations:
            begin = facts[a.workload].start_ms or seen.time_ms
            held_gpus.setdefault(a.workload, {})[a.gpu] = find_held_gpu(a, gpus[a.gpu], begin)
        batches += seen.samples
        events += seen.events
    workloads = [
        PastWorkload(facts[name], list(mine.values()))
        for name, mine in held_gpus.items()
        if name in facts
    ]
    gpu_batches = [b for b in batches if b.kind is Entity.GPU]
    return History(start, start + 6 * HOUR_MS, workloads, gpu_batches, events)


@pytest.mark.slow
def test_every_shipped_rule_finds_the_same_in_the_past_as_live(simulated: History) -> None:
    rules = list(load_shipped_rules())
    expected = documents(lived(rules, simulated))
    found = backtest(rules, simulated)
    assert len({document["rule"] for document in expected}) >= 10
    assert documents(found.findings) == expected
    assert not found.cancelled


@pytest.mark.slow
def test_one_rule_alone_finds_what_it_finds_among_all(
    simulated: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small blocks: what is cut where must not matter.
    monkeypatch.setattr(history_evaluator, "BLOCK_ROWS", 3_000)
    for text in (
        "util p95 > 90% and power_share p50 < 70%",
        "all: util share(< 10%)[15m] > 25% and util p90[15m] > 50%",
        "mem_share trend[30m] > 1 %/h or not sm_clock median[7m] > 0.9 * workload max",
        "tensor_active p90[15m] < 0.75 * life and runtime > 25m",
        "any node: since_sample > 4m or util std > 20%",
        "at least 25% of gpus: power mean < 200 W and runtime > 20m",
    ):
        rule = [draft(text)]
        assert documents(backtest(rule, simulated).findings) == documents(lived(rule, simulated))


def test_hosts_and_gpus_are_judged_together_in_the_past(world: Any) -> None:
    world.add("w", 8, {"util": lambda m, r: 20.0 if m > 30 else 90.0}, per_node=4)
    mixed: list[SampleBatch] = []
    for batch in world.batches():
        hosts = ("w-n0", "w-n1")
        load = np.array([95.0, 10.0], np.float32)
        mixed += [
            batch,
            SampleBatch(
                np.full(2, batch.time_ms[0], np.int64),
                np.arange(2, dtype=np.int32),
                hosts,
                {"host_cpu": load},
                kind=Entity.HOST,
            ),
        ]
    history = world.history(mixed)
    rule = [draft("any node: host_cpu mean[15m] > 90% and util mean[15m] < 50%")]
    found = backtest(rule, history).findings
    assert documents(found) == documents(lived(rule, history))
    assert [f.gpu_count for f in found] == [4]


def test_a_rule_without_metrics_is_judged_minute_by_minute_too(world: Any, start_ms: int) -> None:
    world.minutes = 3 * 24 * 60
    world.add("w", 2, {}, progress=range(0, 30))
    world.events.append(Event(start_ms + 90 * MINUTE_MS, ClusterEventKind.XID, gpu="w-n0:0"))
    history = world.history([])
    silent = backtest([draft("since_progress > 45m", rule_id="silent")], history)
    (finding,) = silent.findings
    assert finding.opened_ms == start_ms + (29 + 46) * MINUTE_MS
    broken = backtest([draft("xid_events > 0", rule_id="broken")], history)
    assert broken.findings[0].opened_ms == start_ms + 90 * MINUTE_MS


def test_rows_of_the_past_are_given_back(world: Any, start_ms: int) -> None:
    for number in range(12):
        begin = start_ms + number * 30 * MINUTE_MS
        held_gpu = HeldGpu("n0:0", "n0", begin, global_rank=0)
        facts = Facts(f"w{number}", start_ms=begin, end_ms=begin + 25 * MINUTE_MS)
        world.workloads.append(PastWorkload(facts, [held_gpu]))
    times = np.arange(start_ms, start_ms + 6 * HOUR_MS, 15_000, np.int64)
    parts = np.array_split(times, 24)
    batches = [
        SampleBatch(
            part, np.zeros(len(part), np.int32), ("n0:0",),
            {"util": np.full(len(part), 5, np.float32)},
        )
        for part in parts
    ]  # fmt: skip
    history = History(start_ms, start_ms + 6 * HOUR_MS, world.workloads, batches)
    rule = [draft("util mean < 10% and runtime > 10m")]
    found = backtest(rule, history)
    assert len(found.findings) == 12
    assert documents(found.findings) == documents(lived(rule, history))
