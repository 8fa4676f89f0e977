from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from marey.model.faults import FAILURES, NOT_FAULTS, FaultKind
from marey.model.samples import SampleBatch
from marey.model.times import MINUTE_MS
from marey.rules.backtest.backtest import History, PastWorkload, backtest
from marey.rules.definition import parse_rules
from marey.rules.engine.allocations import Facts, HeldGpu
from marey.rules.engine.evaluation_loop import EvaluationLoop
from marey.rules.engine.observation_feed import ObservationFeed
from marey.rules.pack import load_shipped_rules, with_site_rules
from marey.sim.config import FaultPlan, PartitionPlan, SimConfig
from marey.sim.simulation import Simulation

DOCS = Path(__file__).resolve().parent.parent.parent / "docs" / "rule-pack.md"


def test_the_pack_holds_at_least_twenty_rules_that_explain_themselves() -> None:
    rules = load_shipped_rules()
    assert len(rules) >= 20
    for rule in rules:
        assert rule.warnings() == []
        for prose in (rule.title, rule.explanation, rule.cause, rule.next_step):
            assert len(prose) > 5, rule.id
        assert rule.false_positives
        # A series of failed runs is no fault of one workload's GPUs.
        assert rule.fault or rule.id == "repeated-failure"


def test_every_kind_of_fault_has_a_rule() -> None:
    covered = {rule.fault for rule in load_shipped_rules()}
    # How work ended, or why it waits, stands in its record: diagnosis says it, not a rule.
    of_records = NOT_FAULTS | set(FAILURES) | {FaultKind.BLOCKED}
    assert covered >= set(FaultKind) - of_records


def test_every_shipped_rule_is_documented() -> None:
    text = DOCS.read_text()
    for rule in load_shipped_rules():
        assert f"| `{rule.id}` |" in text


def test_a_site_rule_takes_the_place_of_the_shipped_one() -> None:
    own = parse_rules('[[rule]]\nid = "stalled"\nwhen = "util > 3%"\nenabled = false\n')
    rules = with_site_rules(own)
    assert len(rules) == len(load_shipped_rules())
    assert not next(rule for rule in rules if rule.id == "stalled").enabled


def watched(kind: FaultKind, *, gpus: int, minutes: int, seed: int) -> EvaluationLoop:
    plan = PartitionPlan("only", "A100", gpus // 8 + 1, 8)
    settings = SimConfig(
        seed=seed,
        tick_ms=30_000,
        faults=FaultPlan(0.0),
        load=0.0,
        warmup_ms=0,
        partitions=(plan,),
        maintenance=False,
    )
    simulation = Simulation(settings)
    fault = None if kind is FaultKind.HEALTHY else kind.value
    work = "notebook" if kind is FaultKind.IDLE_SESSION else "train"
    simulation.submit(gpus=gpus, duration_s=minutes * 60.0, kind=work, fault=fault)
    loop = EvaluationLoop(load_shipped_rules())
    feed = ObservationFeed(loop)
    for observation in simulation.advance(settings.start_ms + minutes * MINUTE_MS):
        feed.observe(observation)
    return loop


@pytest.mark.parametrize(
    ("kind", "minutes"),
    [
        (FaultKind.HEALTHY, 100),
        (FaultKind.STALLED, 70),
        (FaultKind.IDLE_GPUS, 20),
        (FaultKind.MEMORY_LEAK, 50),
        (FaultKind.THROTTLED_GPU, 60),
        (FaultKind.XID, 60),
        (FaultKind.BIASED_LOAD, 30),
        (FaultKind.UNDERUSED, 35),
    ],
)
def test_the_pack_finds_a_simulated_fault_and_nothing_else(kind: FaultKind, minutes: int) -> None:
    loop = watched(kind, gpus=16, minutes=minutes, seed=77)
    found = {finding.fault for finding in loop.book.findings.values()}
    assert found == (set() if kind is FaultKind.HEALTHY else {kind.value})


def juwels(folder: Path, job: str) -> History:
    columns = {
        "gpu_usage": ("util", 1.0),
        "gpu_memu": ("mem_used", 1e9 / 2**20),
        "gpu_pu": ("power", 1.0),
        "gpu_temp": ("temp", 1.0),
        "gpu_sclk": ("sm_clock", 1.0),
    }
    with gzip.open(folder / job / f"GPU_{job}_node.dat.gz", "rt") as file:
        lines = file.read().splitlines()
    head = lines[0].split()
    rows = sorted((line.split() for line in lines[1:]), key=lambda row: int(row[1]))
    names = [f"{host}:{int(index)}" for host, index in (row[2].rsplit("_", 1) for row in rows)]
    entities = sorted(set(names))
    codes = {name: code for code, name in enumerate(entities)}
    times = np.array([int(row[1]) * 1000 for row in rows], np.int64)
    values = {
        metric: np.array([float(row[head.index(name)]) * factor for row in rows], np.float32)
        for name, (metric, factor) in columns.items()
    }
    batch = SampleBatch(
        times, np.array([codes[n] for n in names], np.int32), tuple(entities), values
    )
    start = int(times[0]) - MINUTE_MS
    held_gpus = [
        HeldGpu(
            gpu,
            gpu.split(":")[0],
            start,
            global_rank=rank,
            local_rank=int(gpu.split(":")[1]),
            model="NVIDIA A100-SXM4-40GB",
            power_limit_w=400.0,
            memory_mib=40_960.0,
        )
        for rank, gpu in enumerate(entities)
    ]
    end = int(times[-1]) + MINUTE_MS
    return History(start, end, [PastWorkload(Facts(job, start_ms=start), held_gpus)], [batch])


# Per rule: the minute it opens, how often, and GPU-hours, as docs/rule-pack.md reads them.
READINGS = {
    "8108356": {"busy-low-power": (31, 12, 70.0)},
    "8402497": {"idle-gpus": (7, 1, 6.1)},
    "9438058": {"input-bound": (38, 13, 55.2), "memory-unused": (31, 1, 114.5)},
}


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("job", READINGS)
def test_the_verdicts_on_real_jobs_are_those_of_the_written_reading(
    job: str, data_dir: Path
) -> None:
    history = juwels(data_dir / "metrics" / "juwels", job)
    result = backtest(load_shipped_rules(), history)
    found = {finding.rule: finding for finding in result.findings}
    assert found.keys() == READINGS[job].keys()
    for rule, (minute, episodes, gpu_hours) in READINGS[job].items():
        finding = found[rule]
        assert round((finding.opened_ms - history.from_ms) / MINUTE_MS) == minute
        assert len(finding.episodes) == episodes
        assert finding.gpu_hours == pytest.approx(gpu_hours, abs=0.2)
    if job == "8402497":
        assert found["idle-gpus"].gpus == ["jwb0033:1", "jwb0033:2", "jwb0033:3"]
