"""The simulator's own passes: planned backfill, CPUs, memory, shares, tiers, reservations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from marey.cli import main
from marey.model.errors import InvalidInput
from marey.model.workloads import Workload, WorkloadState
from marey.sim import PartitionPlan, Request, SimConfig, Simulation
from tests.sim.test_policy import only, starts
from tests.sim.worlds import HOUR, MINUTE, sample_bytes


def find_state(simulation: Simulation, workload: str) -> WorkloadState | None:
    found = {job.id: job.state for job in simulation.cluster.jobs.values()}
    return found.get(workload)


def test_planned_backfill_keeps_hosts_for_the_second_in_line_too() -> None:
    """EASY promises only the head a place; planned backfill lets nobody pass the second either."""
    begun = {}
    for planned in (False, True):
        simulation = only(2, policy="fifo", planned=planned, preemption=True)
        simulation.submit(gpus=8, duration_s=3600, time_limit_s=3600)
        simulation.submit(gpus=4, duration_s=3600, time_limit_s=3600)
        simulation.submit(gpus=16, duration_s=3600, time_limit_s=3600)
        second = simulation.submit(gpus=8, duration_s=3600, time_limit_s=3600)
        late = simulation.submit(gpus=4, duration_s=3000, time_limit_s=3000)
        found = starts(simulation, 8)
        assert found[late] < found[second]
        begun[planned] = found
    assert begun[True] == begun[False]


def test_a_workload_waits_for_cpus_and_memory_beside_free_gpus() -> None:
    simulation = only(1, policy="fifo")
    cpus = int(simulation.hardware.host_cpus[0])
    memory = int(simulation.hardware.host_memory_mib[0])
    simulation.submit(gpus=1, duration_s=3600, time_limit_s=3600, cpus_per_host=cpus - 4)
    hungry = simulation.submit(gpus=1, duration_s=600, cpus_per_host=8)
    modest = simulation.submit(
        gpus=1, duration_s=1800, time_limit_s=1800, memory_mib_per_host=memory - 10
    )
    full = simulation.submit(gpus=1, duration_s=600, time_limit_s=600, memory_mib_per_host=20)
    begun = starts(simulation, 4)
    first = simulation.config.start_ms
    assert begun[hungry] >= first + HOUR
    assert begun[modest] <= first + MINUTE
    assert begun[full] >= first + 30 * MINUTE


def test_shares_of_a_gpu_fill_it_and_free_it() -> None:
    simulation = only(1, policy="fifo")
    halves = [
        simulation.submit(gpus=1, gpu_share=500, duration_s=600 * (i + 1), time_limit_s=7200)
        for i in range(3)
    ]
    whole = simulation.submit(gpus=7, duration_s=600, time_limit_s=7200)
    seen = list(simulation.advance(simulation.config.start_ms + 2 * MINUTE))
    held = {a.workload: a.gpu for one in seen for group in one.allocations for a in [group]}
    assert held[halves[0]] == held[halves[1]] != held[halves[2]]
    assert find_state(simulation, whole) is WorkloadState.PENDING
    simulation.fast_forward(simulation.config.start_ms + 2 * HOUR)
    assert not simulation.cluster.jobs
    assert (simulation.cluster.until == 0).all()
    assert (simulation.cluster.gpu_left == 1000).all()


def test_a_higher_tier_evicts_the_youngest_of_a_lower_one() -> None:
    simulation = only(1, policy="fifo", preemption=True)
    older = simulation.submit(gpus=4, duration_s=7200, time_limit_s=7200)
    simulation.fast_forward(simulation.config.start_ms + 5 * MINUTE)
    younger = simulation.submit(gpus=4, duration_s=7200, time_limit_s=7200)
    simulation.fast_forward(simulation.config.start_ms + 10 * MINUTE)
    urgent = simulation.submit(gpus=4, duration_s=600, time_limit_s=600, tier=1)
    simulation.fast_forward(simulation.config.start_ms + 11 * MINUTE)
    assert find_state(simulation, urgent) is WorkloadState.RUNNING
    assert find_state(simulation, older) is WorkloadState.RUNNING
    assert find_state(simulation, younger) is None


def test_reserved_hosts_are_left_alone_by_all_but_their_owner() -> None:
    simulation = only(2, policy="fifo")
    begin = simulation.config.start_ms + HOUR
    host = simulation.hardware.host_names[0]
    simulation.reserve([host], begin_ms=begin, end_ms=begin + HOUR, user=1)
    long = simulation.submit(gpus=16, user=0, duration_s=5400, time_limit_s=5400)
    owner = simulation.submit(gpus=8, user=1, duration_s=5400, time_limit_s=5400)
    begun = starts(simulation, 6)
    assert begun[owner] < begin
    assert begun[long] >= begin + HOUR
    with pytest.raises(InvalidInput, match="Unknown host"):
        simulation.reserve(["nowhere"], begin_ms=begin, end_ms=begin + HOUR)


def test_a_share_of_several_gpus_is_refused() -> None:
    with pytest.raises(InvalidInput, match="only of one GPU"):
        only(1).submit(gpus=2, gpu_share=500)


def replay_recorded(jobs: list[list[float]], **policy: object) -> np.ndarray:
    """Return the waits of recorded jobs in seconds; a minute of the simulator is their second."""
    plan = PartitionPlan("only", "A100", hosts=4, gpus_per_host=4, user_gpus=1000)
    config = SimConfig(
        load=0.0,
        warmup_ms=0,
        partitions=(plan,),
        maintenance=False,
        faults=0.0,
        policy="fifo",
        **policy,
    )
    simulation = Simulation(config)
    simulation.submit_recorded(
        Request(
            gpus=int(gpus),
            duration_s=60.0 * run_s,
            time_limit_s=3600.0 * limit_min,
            submit_s=60.0 * submit_s,
            name=str(number),
        )
        for number, (submit_s, gpus, run_s, limit_min) in enumerate(jobs)
    )
    simulation.cluster.run_until(config.start_ms + 40 * HOUR)
    waits = {
        record.name: (record.start_ms - record.submit_ms) / 60_000
        for _, record in simulation.cluster.log
        if isinstance(record, Workload) and record.start_ms is not None
    }
    return np.array([waits[str(number)] for number in range(len(jobs))])


@pytest.mark.parametrize(
    ("policy", "recorded_s"),
    [({"planned": True, "backfill": True}, 46.7), ({"planned": True, "backfill": False}, 65.9)],
)
def test_recorded_jobs_wait_as_under_a_real_slurm(
    data_dir: Path, policy: dict[str, object], recorded_s: float
) -> None:
    path = data_dir / "jobs" / "slurm-policies" / "workload.json"
    waits = replay_recorded(json.loads(path.read_text()), **policy)
    assert waits.mean() == pytest.approx(recorded_s, rel=0.1)


def test_a_simulation_with_recorded_jobs_continues_after_a_restart() -> None:
    simulation = only(1, policy="fifo", planned=True)
    simulation.submit_recorded(
        Request(gpus=4, duration_s=900.0, time_limit_s=1800.0, submit_s=300.0 * i, gpu_share=1000)
        for i in range(6)
    )
    host = simulation.hardware.host_names[0]
    begin = simulation.config.start_ms + 20 * MINUTE
    simulation.reserve([host], begin_ms=begin, end_ms=begin + HOUR)
    for _ in simulation.advance(simulation.config.start_ms + 10 * MINUTE):
        pass
    resumed = Simulation.resume(json.loads(json.dumps(simulation.state())))
    later = simulation.config.start_ms + 30 * MINUTE
    mine, theirs = list(simulation.advance(later)), list(resumed.advance(later))
    kind = mine[-1].samples[0].kind
    assert sample_bytes([b for o in mine for b in o.samples], kind) == sample_bytes(
        [b for o in theirs for b in o.samples], kind
    )


def test_recorded_jobs_come_from_a_file_and_bad_ones_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = tmp_path / "jobs.json"
    jobs.write_text(json.dumps([{"submit_s": 60, "gpus": 2, "duration_s": 600}] * 3))
    asked = ["sim", "--gpus", "8", "--hours", "0.5", "--jobs", str(jobs), "--planned"]
    assert main([*asked, "--out", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workloads"] == 3
    jobs.write_text('[{"gpu": 2}]')
    assert main([*asked, "--out", str(tmp_path / "other")]) != 0
    assert "is not a list of jobs" in capsys.readouterr().err
