"""Every fault shows in the samples where the truth says, and nowhere else."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marey.model.errors import Conflict, InvalidInput, NotFound
from marey.model.events import ClusterEventKind, Event
from marey.model.faults import FaultKind
from marey.model.workloads import WorkloadState
from marey.sim import FaultPlan, SimConfig, Simulation
from marey.sim.config import FAULTS
from marey.sim.scenarios import Scenario, one_workload
from tests.sim.worlds import HOUR, MINUTE

SEEDS = (0, 1, 2)
F = FaultKind


@cache
def told(kind: FaultKind, seed: int, gpus: int = 32, hours: float = 4.0) -> Scenario:
    return one_workload(kind, gpus=gpus, hours=hours, seed=seed)


class View:
    """A scenario's samples, split by the truth: affected or not, before, during."""

    def __init__(self, kind: FaultKind, seed: int, **size: int) -> None:
        self.story = told(kind, seed, **size)
        (self.truth,) = self.story.truth
        batch = self.story.samples
        names = np.array(batch.entities, dtype=object)[batch.entity]
        self.affected = np.isin(names, np.array(self.truth.gpus, dtype=object))
        at = batch.time_ms
        self.during = (at >= self.truth.start_ms) & (at < self.truth.end_ms)
        start = self.story.workload.start_ms
        # Beyond initialisation and loading, so that work is compared with work.
        self.settled = at > start + 12 * MINUTE
        self.columns = batch.columns

    def median(self, metric: str, rows: np.ndarray) -> float:
        return float(np.median(self.columns[metric][rows & self.settled]))

    def hit(self, metric: str) -> float:
        return self.median(metric, self.affected & self.during)

    def peers(self, metric: str) -> float:
        return self.median(metric, ~self.affected & self.during)

    def before(self, metric: str) -> float:
        return self.median(metric, ~self.during)


@pytest.mark.parametrize("seed", SEEDS)
def test_stalled_claims_to_be_busy_at_idle_power_and_makes_no_steps(seed: int) -> None:
    view = View(F.STALLED, seed)
    rows = view.during & (view.story.samples.time_ms > view.truth.start_ms + 30_000)
    assert view.affected.all()
    assert view.columns["util"][rows].min() >= 97
    assert view.columns["tensor_active"][rows].max() == 0
    assert 70 <= np.median(view.columns["power"][rows]) <= 130
    assert view.before("power") > 200
    assert max(p.time_ms for p in view.story.progress) < view.truth.start_ms


@pytest.mark.parametrize("seed", SEEDS)
def test_idle_gpus_never_work_while_others_do(seed: int) -> None:
    view = View(F.IDLE_GPUS, seed)
    assert 0 < len(view.truth.gpus) < 32
    assert view.columns["util"][view.affected].max() == 0
    assert view.peers("util") > 80


@pytest.mark.parametrize("seed", SEEDS)
def test_an_idle_session_is_hardly_ever_used(seed: int) -> None:
    view = View(F.IDLE_SESSION, seed, gpus=2)
    util = view.columns["util"]
    assert (util > 5).mean() < 0.05
    assert np.median(view.columns["mem_used"]) > 1000


@pytest.mark.parametrize("seed", SEEDS)
def test_biased_load_sits_on_the_first_gpu_of_every_host(seed: int) -> None:
    view = View(F.BIASED_LOAD, seed)
    assert {gpu.rpartition(":")[2] for gpu in view.truth.gpus} == {"0"}
    assert len(view.truth.hosts) == len(view.truth.gpus) == 4
    assert view.hit("util") > 90
    followers = view.columns["util"][~view.affected & view.during & view.settled]
    # The paper's two rules (95th percentile under 80 %, median under 50 % or much of it zero).
    assert np.percentile(followers, 95) < 80
    assert (followers == 0).mean() > 0.2
    assert view.hit("mem_used") > 1.3 * view.peers("mem_used")


@pytest.mark.parametrize("seed", SEEDS)
def test_memory_imbalance_shows_in_memory_only(seed: int) -> None:
    view = View(F.MEMORY_IMBALANCE, seed)
    assert view.hit("mem_used") > 1.4 * view.peers("mem_used")
    assert view.hit("util") == pytest.approx(view.peers("util"), abs=4)


@pytest.mark.parametrize("seed", SEEDS)
def test_input_bound_rises_and_falls_and_keeps_the_cpus_busy(seed: int) -> None:
    view = View(F.INPUT_BOUND, seed)
    util = view.columns["util"][view.settled]
    assert np.percentile(util, 10) < 15
    assert np.percentile(util, 95) > 80
    assert np.median(view.story.host_samples.columns["host_cpu"]) > 70
    healthy = told(F.HEALTHY, seed)
    assert np.median(healthy.host_samples.columns["host_cpu"]) < 45


@pytest.mark.parametrize("seed", SEEDS)
def test_a_slow_gpu_works_on_at_full_clock_while_its_peers_wait(seed: int) -> None:
    view = View(F.SLOW_GPU, seed)
    assert len(view.truth.gpus) == 1
    assert view.hit("sm_clock") == view.peers("sm_clock")
    assert view.hit("sm_active") > 1.2 * view.peers("sm_active")
    assert view.peers("tensor_active") < 0.85 * view.before("tensor_active")
    slower = [p.throughput for p in view.story.progress if p.time_ms > view.truth.start_ms + MINUTE]
    faster = [p.throughput for p in view.story.progress if p.time_ms < view.truth.start_ms]
    assert np.median(slower) < 0.85 * np.median(faster)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_throttled_gpu_is_hot_and_its_clock_is_cut(seed: int) -> None:
    view = View(F.THROTTLED_GPU, seed)
    late = view.during & (view.story.samples.time_ms > view.truth.start_ms + 6 * MINUTE)
    assert view.hit("sm_clock") < 0.85 * view.peers("sm_clock")
    assert np.percentile(view.columns["temp"][view.affected & late], 90) > 82
    assert np.percentile(view.columns["temp"][~view.affected & late], 99) < 80
    events = [e for seen in view.story.observations for e in seen.events]
    (event,) = [e for e in events if e.kind is ClusterEventKind.THROTTLE]
    assert (event.gpu,) == view.truth.gpus


@pytest.mark.parametrize("seed", SEEDS)
def test_a_slow_node_has_gaps_where_others_spin(seed: int) -> None:
    view = View(F.SLOW_NODE, seed)
    assert len(view.truth.hosts) == 1
    assert len(view.truth.gpus) == 8
    assert view.hit("util") < 0.9 * view.peers("util")
    hosts = view.story.host_samples
    at = (hosts.time_ms >= view.truth.start_ms) & (hosts.time_ms < view.truth.end_ms)
    mine = np.array(hosts.entities, dtype=object)[hosts.entity] == view.truth.hosts[0]
    cpu = hosts.columns["host_cpu"]
    assert np.median(cpu[at & mine]) > 2 * np.median(cpu[at & ~mine])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_slow_fabric_makes_everyone_wait(seed: int) -> None:
    view = View(F.SLOW_FABRIC, seed)
    assert len(view.truth.gpus) == 32
    assert view.hit("util") >= 95
    assert 0 < view.hit("tensor_active") < 0.7 * view.before("tensor_active")
    hosts = view.story.host_samples
    at = (hosts.time_ms >= view.truth.start_ms) & (hosts.time_ms < view.truth.end_ms)
    net = hosts.columns["host_net_tx"]
    busy = net > 1000
    assert np.median(net[at & busy]) < 0.7 * np.median(net[~at & busy])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_memory_leak_grows_until_the_device_is_full(seed: int) -> None:
    view = View(F.MEMORY_LEAK, seed, hours=8)
    batch = view.story.samples
    one = batch.entity == batch.entity[0]
    used = batch.columns["mem_used"][one & view.settled]
    slope = np.polyfit(np.arange(len(used)), used, 1)[0]
    assert (np.diff(used) >= -1).all()
    assert slope * len(used) > 3000
    if view.story.workload.exit_code is not None:
        assert view.story.workload.exit_code == 1
        assert used[-1] > 0.97 * 81_920


@pytest.mark.parametrize("seed", range(8))
def test_an_xid_is_an_event_on_the_gpu_that_the_truth_names(seed: int) -> None:
    view = View(F.XID, seed)
    events = [e for seen in view.story.observations for e in seen.events]
    (event,) = [e for e in events if e.kind is ClusterEventKind.XID]
    assert (event.gpu,) == view.truth.gpus
    assert event.time_ms == view.truth.start_ms
    assert event.workload == view.story.workload.workload
    assert event.value in (13, 31, 43, 48, 63, 74, 79, 94, 119)
    if event.value in (48, 74, 79, 119):
        silent = np.isnan(view.columns["util"])
        assert silent[view.affected & view.during].all()
        assert not silent[~view.affected].any()
        states = [s for seen in view.story.observations for s in seen.gpu_states]
        assert [s.gpu for s in states if s.failed] == [event.gpu]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dead_node_falls_silent_and_takes_the_workload_along(seed: int) -> None:
    view = View(F.NODE_FAILURE, seed)
    silent = np.isnan(view.columns["util"])
    assert np.array_equal(silent, view.affected & view.during)
    statuses = [s for seen in view.story.observations for s in seen.statuses]
    assert statuses[-1].state is WorkloadState.NODE_FAIL
    events = [e for seen in view.story.observations for e in seen.events]
    (event,) = [e for e in events if e.kind is ClusterEventKind.NODE_DOWN]
    assert (event.host,) == view.truth.hosts
    assert event.time_ms == view.truth.end_ms


@pytest.mark.parametrize("seed", SEEDS)
def test_oversized_and_underused_differ_in_how_busy_they_claim_to_be(seed: int) -> None:
    oversized, underused = View(F.OVERSIZED, seed), View(F.UNDERUSED, seed)
    assert oversized.hit("util") < 35
    assert oversized.hit("mem_used") < 0.1 * 81_920
    assert underused.hit("util") > 85
    assert 0 < underused.hit("tensor_active") < 6
    assert underused.hit("sm_active") < 30


@pytest.mark.parametrize("seed", range(6))
def test_a_healthy_workload_varies_but_works(seed: int) -> None:
    story = told(F.HEALTHY, seed)
    assert story.truth == ()
    columns = story.samples.columns
    assert np.median(columns["util"]) > 80
    assert np.median(columns["tensor_active"]) > 8
    # Evaluations, checkpoints and initialisation are dips that no rule should take for a fault.
    assert np.percentile(columns["util"], 2) < 80
    assert columns["temp"].max() < 80
    steps = [p.step for p in story.progress]
    assert steps == sorted(steps)
    assert story.progress[-1].loss < story.progress[0].loss


def test_pipeline_stages_differ_in_a_healthy_way() -> None:
    story = one_workload(gpus=64, hours=1, seed=3, strategy="tp-pp-dp")
    depth = int(story.workload.attributes["pipeline_parallel"])
    assert depth > 1
    last = np.array(
        [
            story.samples.columns["mem_used"][story.samples.entity == i][-1]
            for i in range(64)
        ]
    )  # fmt: skip
    per_stage = last.reshape(depth, -1)
    means = per_stage.mean(axis=1)
    assert (np.diff(means) < 0).all()
    assert means[0] / means[-1] < 1.25


def test_temperature_follows_power_with_a_lag() -> None:
    story = told(F.HEALTHY, 1)
    one = story.samples.entity == story.samples.entity[0]
    power, temp = story.samples.columns["power"][one], story.samples.columns["temp"][one]
    hot = int(np.argmax(power > 200))
    assert temp[hot] < np.median(temp) - 4
    assert abs(temp[hot + 40] - np.median(temp)) < 8


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(sorted(FAULTS)))
def test_truth_names_only_gpus_and_time_of_its_workload(seed: int, kind: FaultKind) -> None:
    story = one_workload(kind, gpus=16, hours=1.5, seed=seed)
    (truth,) = story.truth
    assert truth.kind is kind
    assert set(truth.gpus) <= {a.gpu for a in story.allocations}
    assert set(truth.hosts) == {gpu.rpartition(":")[0] for gpu in truth.gpus}
    assert story.workload.start_ms <= truth.start_ms < truth.end_ms
    end = story.workload.end_ms
    assert end is None or truth.end_ms <= end


def test_every_kind_of_fault_strikes_in_a_busy_cluster() -> None:
    simulation = Simulation(SimConfig(gpus=512, seed=6, faults=FaultPlan(0.5)))
    simulation.fast_forward(simulation.config.start_ms + 36 * HOUR)
    truth = simulation.truth()
    # Work runs out of memory only where a plan says so.
    assert {entry.kind for entry in truth} == set(FAULTS) - {F.OUT_OF_MEMORY}
    for entry in truth:
        assert entry.start_ms < entry.end_ms
        assert entry.gpus
        assert entry.workload


def test_without_faults_the_truth_knows_only_failures_of_programs() -> None:
    simulation = Simulation(SimConfig(gpus=128, faults=0.0))
    simulation.fast_forward(simulation.config.start_ms + 12 * HOUR)
    kinds = {truth.kind for truth in simulation.truth()}
    assert kinds <= {F.SCRIPT_ERROR, F.TIME_LIMIT}


def test_a_fault_can_be_injected_by_hand() -> None:
    simulation = Simulation(SimConfig(gpus=128, faults=0.0, seed=9))
    list(simulation.advance(simulation.config.start_ms + MINUTE))
    workload = simulation.inject("stalled")
    assert (workload, F.STALLED) in {(t.workload, t.kind) for t in simulation.truth()}
    with pytest.raises(Conflict, match="already has the fault"):
        simulation.inject("slow_gpu", workload)
    with pytest.raises(NotFound, match="No workload 'nobody' is running"):
        simulation.inject("stalled", "nobody")
    with pytest.raises(InvalidInput, match="did you mean 'stalled'"):
        simulation.inject("staled")
    with pytest.raises(InvalidInput, match="kind of fault"):
        simulation.inject("healthy")


def test_checkpoints_of_large_workloads_are_events() -> None:
    story = told(F.HEALTHY, 2)
    events: list[Event] = [e for seen in story.observations for e in seen.events]
    saved = [e for e in events if e.kind is ClusterEventKind.CHECKPOINT]
    assert len(saved) >= 2
    # While it saves, the GPUs rest.
    at = story.samples.time_ms
    rows = (at > saved[0].time_ms) & (at <= saved[0].time_ms + 15_000)
    assert np.median(story.samples.columns["util"][rows]) < 70


@pytest.mark.parametrize("kind", [FaultKind.SLOW_GPU, FaultKind.SLOW_FABRIC])
def test_a_slight_fault_is_slight_in_every_metric(kind: FaultKind) -> None:
    """No metric gives away by a jump what costs only 3 % of the speed."""
    well, ill = (
        one_workload(k, gpus=16, hours=2.0, seed=3, tick_ms=60_000, severity=s)
        for k, s in ((FaultKind.HEALTHY, None), (kind, 0.03))
    )
    for before, after in ((well.samples, ill.samples), (well.host_samples, ill.host_samples)):
        for name, values in after.columns.items():
            usual = before.columns[name]
            known = np.isfinite(values) & (usual > np.nanmedian(usual) / 2)
            assert np.abs(values[known] / usual[known] - 1.0).max() < 0.06, name
