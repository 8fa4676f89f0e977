"""What must hold in any simulated cluster: nothing is held twice, every workload lives in order."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marey.model.inventory import HostState
from marey.model.metrics import Entity, catalogue
from marey.model.workloads import Allocation, Workload, WorkloadState, WorkloadStatus
from marey.sim import Block, PartitionPlan, SimConfig, Simulation
from marey.sim.scheduling.scheduler_pass import REASON_WORDS
from tests.sim.worlds import HOUR, MINUTE, holder_names, small_world

PENDING, RUNNING = WorkloadState.PENDING, WorkloadState.RUNNING


@dataclass
class Life:
    """All that was told of one workload, in order."""

    record: Workload | None = None
    states: list[tuple[int, WorkloadStatus]] = field(default_factory=list)
    gpus: list[Allocation] = field(default_factory=list)


def lives(blocks: list[Block]) -> dict[str, Life]:
    found: dict[str, Life] = defaultdict(Life)
    log = [entry for block in blocks for entry in block.log]
    first = blocks[0].observations[0]
    snapshot = [*first.workloads, *first.statuses, first.allocations]
    known: set[tuple[str, str]] = set()
    for moment, record in [*((first.time_ms, r) for r in snapshot), *log]:
        if isinstance(record, Workload):
            found[record.workload].record = record
        elif isinstance(record, WorkloadStatus):
            found[record.workload].states.append((moment, record))
        elif isinstance(record, tuple):
            for held in record:
                if (held.workload, held.gpu) not in known:
                    known.add((held.workload, held.gpu))
                    found[held.workload].gpus.append(held)
    return found


@pytest.fixture(scope="module", params=["fifo", "multifactor", "no-backfill", "least_allocated"])
def day(request: pytest.FixtureRequest) -> tuple[Simulation, list[Block]]:
    changes: dict[str, dict[str, object]] = {
        "fifo": {"policy": "fifo"},
        "multifactor": {},
        "no-backfill": {"backfill": False},
        "least_allocated": {"placement": "least_allocated"},
    }
    simulation = Simulation(SimConfig(gpus=256, seed=5, faults=0.3, **changes[request.param]))
    return simulation, list(simulation.blocks(18))


def test_no_gpu_is_held_twice(day: tuple[Simulation, list[Block]]) -> None:
    simulation, blocks = day
    spans: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for name, life in lives(blocks).items():
        assert life.record is not None
        if life.record.start_ms is None:
            assert not life.gpus
            continue
        end = life.record.end_ms or simulation.now_ms + 1
        for held in life.gpus:
            spans[held.gpu].append((life.record.start_ms, end, name))
    assert spans
    for gpu, held in spans.items():
        held.sort()
        for (_, end, one), (start, _, other) in itertools.pairwise(held):
            assert start >= end, f"{gpu} held by {one} and {other}"


def test_a_workload_gets_all_its_gpus_or_none(day: tuple[Simulation, list[Block]]) -> None:
    for name, life in lives(day[1]).items():
        assert life.record is not None
        states = {status.state for _, status in life.states}
        if not (RUNNING in states or life.gpus):
            continue
        assert len({a.gpu for a in life.gpus}) == life.record.gpus_requested, name
        assert [a.global_rank for a in life.gpus] == list(range(len(life.gpus)))
        per_host: dict[str, list[int | None]] = defaultdict(list)
        for held in life.gpus:
            per_host[held.gpu.rpartition(":")[0]].append(held.local_rank)
        assert all(ranks == list(range(len(ranks))) for ranks in per_host.values())
        assert len(per_host) == -(-life.record.gpus_requested // life.record.gpus_per_host)


def test_every_workload_waits_runs_and_ends_in_order(day: tuple[Simulation, list[Block]]) -> None:
    order = {PENDING: 0, RUNNING: 1}
    ended = 0
    for name, life in lives(day[1]).items():
        record = life.record
        assert record is not None
        steps = [order.get(status.state, 2) for _, status in life.states]
        assert steps == sorted(steps), name
        moments = [moment for moment, _ in life.states]
        assert moments == sorted(moments)
        assert record.submit_ms is not None
        if record.start_ms is not None:
            assert record.start_ms >= record.submit_ms
        if record.end_ms is not None:
            ended += 1
            assert life.states[-1][1].state.ended
            assert record.exit_code is not None
            assert record.end_ms >= (record.start_ms or record.submit_ms)
            if record.start_ms is not None and record.time_limit_s is not None:
                # The controller notices a dead host some minutes after the limit at most.
                assert record.end_ms <= record.start_ms + record.time_limit_s * 1000 + 5 * MINUTE
        words = set(REASON_WORDS.values())
        assert all(s.reason in words for _, s in life.states if s.state is PENDING)
    assert ended > 100


def test_samples_name_the_holder_and_stay_in_range(day: tuple[Simulation, list[Block]]) -> None:
    blocks = day[1]
    known = lives(blocks)
    where = {(name, held.gpu) for name, life in known.items() for held in life.gpus}
    for block in blocks[:3]:
        batch = block.samples[0]
        assert batch.kind is Entity.GPU
        holders = holder_names(batch)
        gpus = np.array(batch.entities, dtype=object)[batch.entity]
        for holder, gpu in set(zip(holders.tolist(), gpus.tolist(), strict=True)):
            assert not holder or (holder, gpu) in where
        for some in block.samples:
            for name, column in some.checked().columns.items():
                metric = catalogue()[name]
                good = column[np.isfinite(column)]
                assert good.min() >= metric.minimum
                assert good.max() <= metric.maximum
                # What the simulator says is already rounded as the store would round it.
                assert np.array_equal(column, some.columns[name], equal_nan=True), name


def test_idle_gpus_look_idle(day: tuple[Simulation, list[Block]]) -> None:
    batch = day[1][-1].samples[0]
    free = (holder_names(batch) == "") & np.isfinite(batch.columns["util"])
    assert free.any()
    assert batch.columns["util"][free].max() == 0
    share = batch.columns["power"][free]
    assert share.min() >= 38
    assert share.max() <= 80
    assert np.median(batch.columns["temp"][free]) < 45


def test_there_is_always_somebody_waiting_and_the_cluster_is_well_used() -> None:
    simulation = Simulation(SimConfig(gpus=1024, seed=2))
    used, waiting = [], []
    for hour in range(1, 25, 3):
        simulation.fast_forward(simulation.config.start_ms + hour * HOUR)
        cluster = simulation.cluster
        used.append(float((cluster.until > 0).mean()))
        waiting.append(sum(job.state is PENDING for job in cluster.jobs.values()))
    assert min(waiting) > 0
    assert np.mean(used) > 0.8


def test_a_drained_or_dead_host_gets_no_new_work() -> None:
    world = small_world(faults=0.9)
    down: dict[str, int] = {}
    for block in world.blocks(24):
        for moment, record in block.log:
            if isinstance(record, tuple):
                for held in record:
                    assert held.gpu.rpartition(":")[0] not in down, (moment, held)
            elif hasattr(record, "host") and hasattr(record, "state"):
                if record.state is HostState.UP:
                    down.pop(record.host, None)
                else:
                    down[record.host] = moment


@pytest.mark.parametrize("gpus", [8, 64, 100, 1000])
def test_any_size_is_laid_out_exactly(gpus: int) -> None:
    simulation = Simulation(SimConfig(gpus=gpus, seed=1))
    inventory = simulation.hardware.inventory
    assert len(inventory.gpus) == gpus == len({gpu.gpu for gpu in inventory.gpus})
    assert len({gpu.uuid for gpu in inventory.gpus}) == gpus
    assert {host.partitions[0] for host in inventory.hosts} == {
        p.partition for p in inventory.partitions
    }
    seen = list(simulation.advance(simulation.config.start_ms + 10 * MINUTE))
    assert all(len(one.samples[0]) == gpus for one in seen)
    assert sum(len(one.samples) == 2 for one in seen) == 11


@pytest.mark.slow
def test_a_hundred_thousand_gpus_live() -> None:
    simulation = Simulation(SimConfig(gpus=100_000, seed=1, warmup_ms=10 * MINUTE))
    first = next(iter(simulation.advance(simulation.config.start_ms)))
    assert len(first.gpus) == len(first.samples[0]) == 100_000
    held = (first.samples[0].workload >= 0).mean()
    assert held > 0.8
    assert sum(len(block.samples[0]) for block in simulation.blocks(0.05)) == 12 * 100_000


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([1, 2, 4, 8, 16, 24]), min_size=1, max_size=30),
    minutes=st.lists(st.integers(1, 120), min_size=30, max_size=30),
    backfill=st.booleans(),
    placement=st.sampled_from(["most_allocated", "least_allocated"]),
)
def test_whatever_is_submitted_ends(
    sizes: list[int], minutes: list[int], backfill: bool, placement: str
) -> None:
    plan = PartitionPlan("only", "A100", hosts=3, user_gpus=24)
    simulation = Simulation(
        SimConfig(
            load=0.0, warmup_ms=0, partitions=(plan,), maintenance=False, faults=0.0,
            backfill=backfill, placement=placement,
        )
    )  # fmt: skip
    for size, length in zip(sizes, minutes, strict=False):
        simulation.submit(gpus=size, duration_s=length * 60.0, time_limit_s=length * 90.0)
    simulation.fast_forward(simulation.config.start_ms + (sum(minutes) + 60) * MINUTE)
    assert not simulation.cluster.jobs
    assert not simulation.cluster.until.any()
    assert not simulation.cluster.user_gpus[0].any()
