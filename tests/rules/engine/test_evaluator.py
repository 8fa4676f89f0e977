from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from marey.model.events import ClusterEventKind, Event
from marey.model.metrics import Entity
from marey.model.samples import SampleBatch
from marey.model.times import MINUTE_MS
from marey.rules.definition import draft, parse_rules
from marey.rules.engine.allocations import EVENT_LIMIT, Facts, HeldGpu
from marey.rules.engine.evaluator import Evaluator
from marey.rules.engine.evidence import evidence_of
from marey.rules.engine.state_codec import dump, load
from marey.rules.engine.three_valued import FALSE, TRUE, UNKNOWN

WORDS = {FALSE: "no", UNKNOWN: "not judged", TRUE: "yes"}


def judged(world: Any, *texts: str) -> Evaluator:
    evaluator = Evaluator([draft(text, rule_id=f"r{i}") for i, text in enumerate(texts)])
    for past in world.workloads:
        evaluator.allocations.admit(past.facts, past.held_gpus)
        if past.progress_ms:
            evaluator.allocations.by_name[past.facts.workload].progress_ms = max(past.progress_ms)
    for batch in world.batches():
        evaluator.take(batch)
    for event in world.events:
        evaluator.allocations.note(
            event.gpu,
            host=event.host,
            kind=event.kind,
            time_ms=event.time_ms,
            workload=event.workload,
        )
    return evaluator


def verdict(world: Any, text: str) -> str:
    evaluation = judged(world, text).evaluate(world.end_ms)
    return WORDS[int(evaluation.verdicts[0].life[0])]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("util p95 > 90%", "yes"),
        ("util p95 < 90%", "no"),
        ("util min > 90%", "yes"),
        ("util std < 1%", "yes"),
        ("util range < 1%", "yes"),
        ("util share(> 90%) >= 100%", "yes"),
        ("power_share mean < 70% and power_share mean > 49%", "yes"),
        ("mem_share max > 49% and mem_share max < 51%", "yes"),
        ("power mean < 0.3 kW", "yes"),
        ("runtime > 59m and runtime < 61m", "yes"),
        ("gpus = 8 and nodes = 2 and gpus_on_node = 4", "yes"),
        ("user = ada and partition in (large, small)", "yes"),
        ("user != ada", "no"),
        ("gpu_type = A100", "yes"),
        ("project = x", "no"),
        ("project != x", "yes"),
        ("since_progress > 9m and since_progress < 11m", "yes"),
        ("waited > 1m", "not judged"),
        ("temp max > 10 C", "not judged"),
        ("not temp max > 10 C", "not judged"),
        ("temp max > 10 C or util p95 > 90%", "yes"),
        ("temp max > 10 C and util p95 > 90%", "not judged"),
        ("temp max > 10 C and util p95 < 90%", "no"),
        ("not (temp max > 10 C or util p95 > 90%)", "no"),
        ("not (temp max > 10 C and util p95 < 90%)", "yes"),
        ("util mean[30m] > 90%", "yes"),
        ("util mean[2h] > 90%", "not judged"),
        ("global_rank = 3", "yes"),
        ("all: global_rank = 3", "no"),
        ("at least 2: local_rank = 3", "yes"),
        ("at least 3: local_rank = 3", "no"),
        ("at least 25%: local_rank = 3", "yes"),
        ("at least 26%: local_rank = 3", "no"),
        ("all but the first rank: global_rank >= 1", "yes"),
        ("all but the first rank: global_rank >= 2", "no"),
        ("any node: global_rank >= 4", "yes"),
        ("any node: global_rank >= 5", "no"),
        ("all: temp max > 10 C", "not judged"),
        ("any: temp max > 10 C", "not judged"),
    ],
)
def test_conditions_mean_what_they_say(world: Any, text: str, expected: str) -> None:
    world.add(
        "w",
        8,
        {"util": 95.0, "power": 200.0, "mem_used": 40_960.0},
        per_node=4,
        progress=[10, 50],
        user="ada",
        partition="large",
    )
    assert verdict(world, text) == expected


def test_all_conditions_must_hold_on_the_same_gpu(world: Any) -> None:
    world.add(
        "w",
        2,
        {
            "util": lambda _m, rank: 95.0 if rank == 0 else 5.0,
            "power": lambda _m, rank: 380.0 if rank == 0 else 60.0,
        },
    )
    assert verdict(world, "util p95 > 90%") == "yes"
    assert verdict(world, "power_share p50 < 70%") == "yes"
    assert verdict(world, "util p95 > 90% and power_share p50 < 70%") == "no"


def test_a_gpu_is_compared_with_its_peers(world: Any) -> None:
    world.add("w", 8, {"util": lambda _m, rank: 60.0 if rank == 5 else 90.0}, per_node=4)
    assert verdict(world, "util mean < 0.75 * workload") == "yes"
    assert verdict(world, "util mean < 0.5 * workload") == "no"
    assert verdict(world, "at least 2: util mean < 0.75 * workload") == "no"
    assert verdict(world, "util mean < workload - 20%") == "yes"
    assert verdict(world, "util mean over node < 0.9 * workload") == "no"
    assert verdict(world, "util mean over node min < 0.9 * workload") == "yes"
    assert verdict(world, "at least 5: util mean over node min < 0.9 * workload") == "no"


def test_one_gpu_without_samples_is_not_judged_and_spoils_only_all(world: Any) -> None:
    world.add("w", 4, {"util": lambda _m, rank: np.nan if rank == 2 else 5.0})
    assert verdict(world, "util max < 10%") == "yes"
    assert verdict(world, "all: util max < 10%") == "not judged"
    assert verdict(world, "all: util max > 10%") == "no"
    assert verdict(world, "at least 4: util max < 10%") == "not judged"
    assert verdict(world, "at least 3: util max < 10%") == "yes"


def test_past_and_now_are_told_apart(world: Any) -> None:
    world.add("w", 1, {"util": lambda minute, _r: 5.0 if minute < 40 else 95.0})
    evaluation = judged(world, "util p50 < 10%").evaluate(world.end_ms)
    assert evaluation.verdicts[0].life[0] == TRUE
    assert evaluation.verdicts[0].now[0] == FALSE


def test_a_gpu_is_compared_with_its_own_life(world: Any) -> None:
    world.add("w", 2, {"util": lambda minute, rank: 30.0 if rank and minute > 45 else 90.0})
    assert verdict(world, "util median[10m] < 0.7 * life") == "yes"
    assert verdict(world, "all: util median[10m] < 0.7 * life") == "no"
    assert verdict(world, "util mean over workload min < 0.9 * workload max") == "yes"


def test_trend_finds_growth_and_steadiness_how_even_it_is(world: Any) -> None:
    world.add("w", 1, {"mem_used": lambda minute, _r: 10_000 + 100 * minute})
    assert verdict(world, "mem_used trend > 5.8 GiB/h and mem_used trend < 5.9 GiB/h") == "yes"
    assert verdict(world, "mem_used steadiness > 99%") == "yes"


def test_events_count_for_who_held_the_gpu(world: Any, start_ms: int) -> None:
    world.add("w", 2, {"util": 50.0}).add("v", 2, {"util": 50.0})
    world.events.append(
        Event(start_ms + 50 * MINUTE_MS, ClusterEventKind.XID, gpu="w-n0:1", value=79)
    )
    world.events.append(Event(start_ms + 5 * MINUTE_MS, ClusterEventKind.NODE_DOWN, host="v-n0"))
    evaluator = judged(world, "xid_events > 0", "xid_events[15m] > 0", "node_down_events > 0")
    first, recent, down = evaluator.evaluate(world.end_ms).verdicts
    assert list(first.life) == [TRUE, FALSE]
    assert list(recent.life) == [TRUE, FALSE]
    assert list(down.life) == [FALSE, TRUE]
    assert list(down.now) == [FALSE, FALSE]


def test_a_week_of_checkpoints_leaves_room_for_an_error(world: Any, start_ms: int) -> None:
    world.add("w", 2, {"util": 50.0})
    for second in range(2 * EVENT_LIMIT):
        world.events.append(
            Event(start_ms + 1000 * second, ClusterEventKind.CHECKPOINT, workload="w")
        )
    world.events.append(Event(start_ms + 50 * MINUTE_MS, ClusterEventKind.XID, gpu="w-n0:1"))
    evaluator = judged(world, "xid_events > 0")
    assert list(evaluator.evaluate(world.end_ms).verdicts[0].life) == [TRUE]


def test_host_metrics_count_for_every_gpu_of_the_host(world: Any) -> None:
    world.add("w", 4, {"util": 50.0}, per_node=2)
    evaluator = judged(world, "host_cpu mean > 90%")
    times = np.array([world.end_ms - 1000] * 2)
    columns = {"host_cpu": np.array([95.0, 10.0], np.float32)}
    codes = np.arange(2, dtype=np.int32)
    evaluator.take(SampleBatch(times, codes, ("w-n0", "w-n1"), columns, kind=Entity.HOST))
    result = evaluator.evaluate(world.end_ms).verdicts[0]
    assert result.gpus_life is not None
    assert sorted(result.gpus_life) == [FALSE, FALSE, TRUE, TRUE]


def test_silence_is_measured_against_the_cluster_not_the_clock(world: Any) -> None:
    world.add("w", 2, {"util": lambda minute, rank: np.nan if rank and minute > 30 else 50.0})
    evaluator = judged(world, "since_sample > 20m")
    assert evaluator.evaluate(world.end_ms).verdicts[0].life[0] == TRUE
    world.shapes["w"]["util"] = lambda minute, rank: np.nan if minute > 30 else 50.0
    assert judged(world, "since_sample > 20m").evaluate(world.end_ms).verdicts[0].life[0] == FALSE


def test_evidence_names_gpus_values_and_limits(world: Any) -> None:
    world.add("w", 4, {"util": lambda _m, rank: 40.0 if rank == 3 else 90.0})
    evaluation = judged(world, "util mean < 0.75 * workload and runtime > 10m").evaluate(
        world.end_ms
    )
    evidence = evidence_of(evaluation, evaluation.verdicts[0], 0)
    assert evidence.gpus == ("w-n0:3",)
    low, long_enough = evidence.readings[0].readings
    assert (low.value, low.limit) == (40.0, 67.5)
    assert long_enough.value == 60 * MINUTE_MS


def test_a_partition_can_have_its_own_threshold_or_silence(world: Any) -> None:
    for name, partition in (("a", "big"), ("b", "debug"), ("c", "slow")):
        world.add(name, 1, {"util": 10.0}, partition=partition)
    rules = parse_rules(
        '[[rule]]\nid = "low"\nwhen = "util mean < $low"\nthresholds = {low = "15%"}\n'
        '[[rule.override]]\npartition = "debug"\nenabled = false\n'
        '[[rule.override]]\npartition = "slow"\nthresholds = {low = "5%"}\n'
    )
    evaluator = judged(world)
    evaluator.use(rules)
    assert list(evaluator.evaluate(world.end_ms).verdicts[0].life) == [TRUE, FALSE, FALSE]


def test_a_reused_gpu_starts_from_nothing(world: Any, start_ms: int) -> None:
    world.add("w", 1, {"util": 95.0})
    evaluator = judged(world, "util max > 90%")
    end = world.end_ms
    evaluator.allocations.admit(Facts("w", start_ms=start_ms, end_ms=end), ())
    assert evaluator.evaluate(end).verdicts[0].life[0] == TRUE
    later = end + 60 * MINUTE_MS
    assert evaluator.sweep(later) == ["w"]
    evaluator.allocations.admit(Facts("v", start_ms=later), [HeldGpu("w-n0:0", "w-n0", later)])
    tick = SampleBatch(
        np.array([later + 1]), np.zeros(1, np.int32), ("w-n0:0",), {"util": np.float32([5.0])}
    )
    evaluator.take(tick)
    assert evaluator.evaluate(later + 2).verdicts[0].life[0] == FALSE


def test_the_state_survives_a_restart_to_the_last_verdict(world: Any) -> None:
    world.add("w", 4, {"util": lambda m, r: (7 * m + 13 * r) % 100, "power": 200.0}, user="ada")
    rules = [
        draft(text, rule_id=f"r{i}")
        for i, text in enumerate(["util p95 > 90%", "util mean[10m] < 60%", "power_share < 70%"])
    ]
    whole, before = Evaluator(rules), Evaluator(rules)
    batches = world.batches()
    for evaluator in (whole, before):
        for past in world.workloads:
            evaluator.allocations.admit(past.facts, past.held_gpus)
    for batch in batches[:150]:
        before.take(batch)
    after = load(b"".join(dump(before)), rules)
    for batch in batches[150:]:
        after.take(batch)
    for batch in batches:
        whole.take(batch)
    words = ["min", "max", "mean", "p5", "median", "p95", "std", "trend", "last"]
    assert after.statistics("w", ["util", "power_share"], words) == whole.statistics(
        "w", ["util", "power_share"], words
    )
    for a, b in zip(
        after.evaluate(world.end_ms).verdicts, whole.evaluate(world.end_ms).verdicts, strict=True
    ):
        assert np.array_equal(a.life, b.life)
        assert np.array_equal(a.now, b.now)


def test_a_damaged_state_is_refused(world: Any) -> None:
    world.add("w", 2, {"util": 50.0})
    data = b"".join(dump(judged(world, "util > 3")))
    for cut in (b"", data[:40], data[:-1], data + b"x"):
        with pytest.raises(ValueError, match=r"sketches|state"):
            load(cut, [])


def test_a_sample_from_the_far_future_does_not_wipe_the_windows(world: Any) -> None:
    world.add("w", 1, {"util": 95.0})
    evaluator = judged(world, "util mean[10m] > 90%")
    future = SampleBatch(
        np.array([world.end_ms + 10**12]),
        np.zeros(1, np.int32),
        world.batches()[0].entities,
        {"util": np.float32([1.0])},
    )
    assert evaluator.take(future, world.end_ms) == 0
    assert evaluator.evaluate(world.end_ms).verdicts[0].life[0] == TRUE


@pytest.mark.slow
def test_ten_thousand_rules_are_judged_in_one_go(world: Any) -> None:
    world.minutes = 5
    world.add("w", 8, {"util": 50.0})
    texts = [f"util p{i % 99 + 1} < {i // 100}% and gpus > 1" for i in range(10_000)]
    evaluation = judged(world, *texts).evaluate(world.end_ms)
    violated = sum(int(v.life[0] == TRUE) for v in evaluation.verdicts)
    assert violated == sum(i // 100 > 50 for i in range(10_000))


def test_hostile_names_are_only_names(world: Any) -> None:
    nasty = '"; DROP TABLE findings; --\u202e<img src=x>' + "\0" + "x" * 10_000
    world.add("w", 1, {"util": 5.0}, user=nasty, project=nasty)
    evaluation = judged(world, "util mean < 10%", "user = ada").evaluate(world.end_ms)
    assert evaluation.verdicts[0].life[0] == TRUE
    assert evaluation.verdicts[1].life[0] == FALSE
