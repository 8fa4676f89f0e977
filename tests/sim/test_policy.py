"""What each scheduling policy promises, and the paper's case of spread-out small workloads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marey.model.errors import InvalidInput
from marey.model.workloads import Workload, WorkloadState
from marey.sim import PartitionPlan, SimConfig, Simulation
from tests.sim.worlds import HOUR, MINUTE

SIZES = st.sampled_from([1, 2, 3, 4, 8, 8, 16])


def only(hosts: int, **changes: object) -> Simulation:
    plan = PartitionPlan("only", "A100", hosts=hosts, user_gpus=1000)
    return Simulation(
        SimConfig(
            load=0.0, warmup_ms=0, partitions=(plan,), maintenance=False, faults=0.0, **changes
        )
    )


def starts(simulation: Simulation, hours: float) -> dict[str, int]:
    cluster = simulation.cluster
    cluster.run_until(simulation.config.start_ms + int(hours * HOUR))
    records = [record for _, record in cluster.log if isinstance(record, Workload)]
    return {w.workload: w.start_ms for w in records if w.start_ms is not None}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(SIZES, st.integers(1, 40)), min_size=2, max_size=25))
def test_fifo_without_backfill_starts_in_order_of_submission(work: list[tuple[int, int]]) -> None:
    simulation = only(2, policy="fifo", backfill=False)
    names = [
        simulation.submit(gpus=gpus, duration_s=60.0 * minutes, time_limit_s=7200.0)
        for gpus, minutes in work
    ]
    begun = starts(simulation, 20)
    assert set(begun) == set(names)
    moments = [begun[name] for name in names]
    assert moments == sorted(moments)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(SIZES, st.integers(1, 50), st.sampled_from([1.0, 1.3, 3.0, 8.0])),
        min_size=3,
        max_size=40,
    ),
    st.sampled_from(["most_allocated", "least_allocated"]),
)
def test_easy_backfill_never_delays_the_first_ones_reservation(
    work: list[tuple[int, int, float]], placement: str
) -> None:
    simulation = only(3, policy="fifo", placement=placement)
    simulation.cluster.reservations = []
    for gpus, minutes, slack in work:
        simulation.submit(gpus=gpus, duration_s=60.0 * minutes, time_limit_s=60.0 * minutes * slack)
    begun = starts(simulation, 40)
    promised: dict[int, int] = {}
    for moment, seq, reserved in simulation.cluster.reservations:
        if seq in promised:
            assert reserved <= promised[seq], "a reservation moved back"
        promised[seq] = reserved
        assert reserved >= moment
    for seq, reserved in promised.items():
        # The scheduler looks every 15 s.
        assert begun[str(410_001 + seq)] <= reserved + 15_000


def test_backfill_lets_short_work_pass_but_not_long_work() -> None:
    simulation = only(2, policy="fifo")
    simulation.submit(gpus=8, duration_s=3600, time_limit_s=3600)
    simulation.submit(gpus=4, duration_s=1800, time_limit_s=3600)
    wide = simulation.submit(gpus=16, duration_s=600, time_limit_s=600)
    short = simulation.submit(gpus=4, duration_s=600, time_limit_s=900)
    long = simulation.submit(gpus=4, duration_s=7200, time_limit_s=14_400)
    begun = starts(simulation, 6)
    assert begun[short] < begun[wide] < begun[long]


def test_without_backfill_nobody_passes() -> None:
    simulation = only(2, policy="fifo", backfill=False)
    simulation.submit(gpus=12, duration_s=3600, time_limit_s=3600)
    wide = simulation.submit(gpus=16, duration_s=600, time_limit_s=600)
    short = simulation.submit(gpus=4, duration_s=600, time_limit_s=900)
    begun = starts(simulation, 6)
    assert begun[wide] < begun[short]


def test_reasons_for_waiting_are_slurms_words() -> None:
    plan = PartitionPlan("only", "A100", hosts=2, user_gpus=12)
    simulation = Simulation(
        SimConfig(load=0.0, warmup_ms=0, partitions=(plan,), maintenance=False, faults=0.0)
    )
    simulation.submit(gpus=8, user=0, time_limit_s=7200)
    limited = simulation.submit(gpus=8, user=0)
    both = simulation.submit(gpus=12, user=1, time_limit_s=7200)
    first = simulation.submit(gpus=8, user=2, time_limit_s=7200)
    behind = simulation.submit(gpus=4, user=3, time_limit_s=36_000)
    simulation.cluster.host_up[1] = False
    seen = list(simulation.advance(simulation.config.start_ms + MINUTE))
    reasons = {s.workload: s.reason for one in seen for s in one.statuses}
    assert reasons[limited] == "QOSMaxGRESPerUser"
    assert reasons[first] == "Resources"
    assert reasons[behind] == "Priority"
    assert reasons[both] == "ReqNodeNotAvail"


def test_a_busy_user_ranks_behind_one_who_has_used_nothing() -> None:
    simulation = only(2)
    busy = [simulation.submit(gpus=8, user=0, duration_s=3600) for _ in range(2)]
    simulation.fast_forward(simulation.config.start_ms + 30 * MINUTE)
    assert all(job.state is WorkloadState.RUNNING for job in simulation.cluster.jobs.values())
    again = simulation.submit(gpus=8, user=0, duration_s=3600)
    modest = simulation.submit(gpus=8, user=1, duration_s=3600)
    simulation.fast_forward(simulation.config.start_ms + 59 * MINUTE)
    jobs = {job.id: job for job in simulation.cluster.jobs.values()}
    assert busy[0] in jobs
    assert jobs[modest].priority > jobs[again].priority


def test_most_allocated_packs_and_least_allocated_spreads() -> None:
    hosts_used = {}
    for placement in ("most_allocated", "least_allocated"):
        simulation = only(8, placement=placement)
        for _ in range(8):
            simulation.submit(gpus=1)
        simulation.fast_forward(simulation.config.start_ms + MINUTE)
        busy = simulation.cluster.until.reshape(8, 8) > 0
        hosts_used[placement] = int(busy.any(axis=1).sum())
    assert hosts_used == {"most_allocated": 1, "least_allocated": 8}


def whole_host_figures(simulation: Simulation) -> tuple[int, int, int]:
    """Of the A100 partition for small work: stranded GPUs, whole-host work waiting, running."""
    cluster, part = simulation.cluster, simulation.hardware.parts[0]
    gpus = cluster.until[part.first_gpu : part.first_gpu + part.gpu_count]
    mine = [j for j in cluster.jobs.values() if j.partition == 0 and j.per_host == 8]
    waiting = sum(j.reason.name in ("RESOURCES", "PRIORITY") for j in mine)
    running = sum(j.state is WorkloadState.RUNNING for j in mine)
    return int((gpus == 0).sum()), waiting, running


def test_switching_to_most_allocated_frees_whole_hosts_within_hours() -> None:
    """The paper's case 7.1, against the same cluster in which nobody switched."""
    worlds = []
    for _ in range(2):
        simulation = Simulation(
            SimConfig(gpus=2048, seed=0, placement="least_allocated", faults=0.0)
        )
        simulation.fast_forward(simulation.config.start_ms + 6 * HOUR)
        worlds.append(simulation)
    stranded, waiting, _running = whole_host_figures(worlds[0])
    # Small work is everywhere: a fifth of the partition is free, yet whole-host work waits.
    assert stranded > 100
    assert waiting > 15
    worlds[1].set_policy(placement="most_allocated")
    figures: list[list[tuple[int, int, int]]] = [[], []]
    for hour in range(1, 7):
        for world, found in zip(worlds, figures, strict=True):
            world.fast_forward(world.config.start_ms + (6 + hour) * HOUR)
            found.append(whole_host_figures(world))
    stayed, switched = (np.array(found) for found in figures)
    assert switched[2:, 0].mean() < 0.6 * stayed[2:, 0].mean()
    assert switched[2:, 2].mean() > 1.15 * stayed[2:, 2].mean()
    assert switched[3:, 1].mean() < stayed[3:, 1].mean()


def test_unknown_policies_are_refused_with_what_is_allowed() -> None:
    simulation = only(1)
    with pytest.raises(InvalidInput, match=r"Unknown policy 'fifa'.*did you mean 'fifo'"):
        simulation.set_policy(policy="fifa")
    with pytest.raises(InvalidInput, match="least_allocated, most_allocated"):
        simulation.set_policy(placement="random")
    simulation.set_policy(placement="LeastAllocated")
    assert simulation.policy()["placement"] == "least_allocated"
