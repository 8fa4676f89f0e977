"""Faults that are hardly there, and healthy work that looks like one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.hard_effects import scale_activity, share_host
from bench.hard_world import draw_plain_matrix
from marey.diagnose.diagnosis import find_faults
from marey.diagnose.judges.common_wait import find_common_wait
from marey.diagnose.judges.slight_falls import find_fall, find_segments
from marey.diagnose.judges.suspects import Suspects, weigh_suspects
from marey.diagnose.matrix import WorkloadMatrix
from marey.diagnose.signals import Signals
from marey.model.faults import NOT_FAULTS, FaultKind

SEED = 40_004


def find_sure(matrix: WorkloadMatrix) -> set[FaultKind]:
    """The faults that are said with confidence."""
    return {f.kind for f in find_faults(matrix) if f.confidence >= 0.6} - NOT_FAULTS


@pytest.fixture(scope="module")
def healthy() -> WorkloadMatrix:
    """Healthy work with profiling metrics."""
    return draw_plain_matrix(SEED, FaultKind.HEALTHY, None, profiling=True)


def test_a_gpu_that_is_a_little_slow_all_the_time_is_found(healthy: WorkloadMatrix) -> None:
    slow = draw_plain_matrix(SEED, FaultKind.SLOW_GPU, 0.06, profiling=True)
    assert find_sure(slow) == {FaultKind.SLOW_GPU}
    assert find_sure(healthy) == set()


def test_two_gpus_that_are_busier_than_the_others_are_no_slow_gpu(healthy: WorkloadMatrix) -> None:
    factor = np.ones((len(healthy.gpus), len(healthy.time_ms)))
    factor[2:] = 0.91
    assert FaultKind.SLOW_GPU not in find_sure(scale_activity(healthy, factor))


def test_somebody_elses_work_on_a_host_for_minutes_is_no_sure_finding(
    healthy: WorkloadMatrix,
) -> None:
    shared = scale_activity(healthy, share_host(healthy, np.random.default_rng(1)))
    assert find_sure(shared) == set()


def test_a_host_that_stays_late_is_one(healthy: WorkloadMatrix) -> None:
    factor = np.ones((len(healthy.gpus), len(healthy.time_ms)))
    factor[8:16, 120:] = 0.8
    assert FaultKind.SLOW_NODE in find_sure(scale_activity(healthy, factor))


def test_a_host_that_was_late_until_minutes_ago_is_no_sure_finding(healthy: WorkloadMatrix) -> None:
    factor = np.ones((len(healthy.gpus), len(healthy.time_ms)))
    factor[8:16, -30:-8] = 0.8
    assert find_sure(scale_activity(healthy, factor)) == set()


def lift_activity(matrix: WorkloadMatrix, row: int, columns: slice) -> WorkloadMatrix:
    """The matrix with one GPU far busier than the others for a while."""
    factor = np.full((len(matrix.gpus), len(matrix.time_ms)), 0.7)
    factor[row, columns] = 1.0
    columns_of = dict(matrix.columns)
    columns_of["sm_active"] = (matrix.columns["sm_active"] * factor).astype(np.float32)
    return replace(matrix, columns=columns_of)


def test_a_gpu_above_its_peers_for_ten_minutes_is_not_slow(healthy: WorkloadMatrix) -> None:
    assert FaultKind.SLOW_GPU not in find_sure(lift_activity(healthy, 3, slice(100, 112)))
    assert FaultKind.SLOW_GPU in find_sure(lift_activity(healthy, 3, slice(100, None)))


def test_a_job_that_does_less_of_everything_has_a_phase_and_no_slow_fabric(
    healthy: WorkloadMatrix,
) -> None:
    factor = np.ones((len(healthy.gpus), len(healthy.time_ms)))
    factor[:, 80:] = 0.65
    assert FaultKind.SLOW_FABRIC not in find_sure(scale_activity(healthy, factor))


def test_by_power_alone_a_fabric_is_slow_only_if_every_gpu_fell_alike() -> None:
    matrix = draw_plain_matrix(SEED, FaultKind.SLOW_FABRIC, 0.6)
    assert FaultKind.SLOW_FABRIC in find_sure(matrix)
    power = matrix.columns["power"].copy()
    # Four GPUs keep half of what they had lost: any of them may be what all wait for.
    power[:4] = 0.5 * power[:4] + 0.5 * np.nanpercentile(power, 90)
    doubtful = replace(matrix, columns={**matrix.columns, "power": power})
    assert FaultKind.SLOW_FABRIC not in find_sure(doubtful)


# Slight falls


@pytest.fixture(scope="module")
def slight() -> WorkloadMatrix:
    """A fabric that is a little slow for a part of the time, with profiling metrics."""
    return draw_plain_matrix(SEED, FaultKind.SLOW_FABRIC, 0.08, profiling=True)


def test_a_fabric_that_is_a_little_slow_is_found(slight: WorkloadMatrix) -> None:
    (only,) = find_faults(slight)
    assert only.kind is FaultKind.SLOW_FABRIC
    assert 0.6 <= only.confidence < 0.8
    assert any("network" in evidence.what for evidence in only.evidence)


def test_a_slight_fall_that_no_network_confirms_is_no_fabric(slight: WorkloadMatrix) -> None:
    kept = {k: v for k, v in slight.host_columns.items() if not k.startswith("host_net")}
    assert find_sure(replace(slight, host_columns=kept)) == set()
    busy = {
        k: np.full_like(v, 500.0) if k in ("host_net_rx",) else v
        for k, v in slight.host_columns.items()
    }
    assert find_sure(replace(slight, host_columns=busy)) == set()


def test_work_that_falls_with_utilization_is_no_fabric(healthy: WorkloadMatrix) -> None:
    factor = np.ones((len(healthy.gpus), len(healthy.time_ms)))
    factor[:, 120:] = 0.9
    assert find_sure(scale_activity(healthy, factor)) == set()


@pytest.mark.parametrize("severity", [0.03, 0.045])
def test_the_gpu_that_stays_active_while_all_do_a_little_less_is_the_slow_one(
    severity: float,
) -> None:
    slow = draw_plain_matrix(SEED, FaultKind.SLOW_GPU, severity, profiling=True)
    assert find_sure(slow) <= {FaultKind.SLOW_GPU}


def test_a_leak_that_needs_days_is_found_after_hours_and_not_before() -> None:
    matrix = draw_plain_matrix(SEED, FaultKind.MEMORY_LEAK, 0.0015, profiling=True)
    (found,) = (f for f in find_faults(matrix) if f.kind is FaultKind.MEMORY_LEAK)
    assert 0.6 <= found.confidence < 0.8
    short = slice(0, 120)
    columns = {name: values[:, short] for name, values in matrix.columns.items()}
    hosts = {name: values[:, short] for name, values in matrix.host_columns.items()}
    early = replace(matrix, columns=columns, host_columns=hosts, time_ms=matrix.time_ms[short])
    assert FaultKind.MEMORY_LEAK not in find_sure(early)


# Falls and suspects


def test_work_that_follows_utilization_has_no_fall(healthy: WorkloadMatrix) -> None:
    signals = Signals(healthy)
    count = len(signals.common_by_block("util"))
    util = 70.0 + 20.0 * np.sin(np.arange(count))
    assert find_fall(signals, 0.004 * util**2, util) is None
    level = 0.4 * util
    level[20:35] *= 0.95
    fall = find_fall(signals, level, util)
    assert fall is not None
    assert fall.share == pytest.approx(0.05, abs=0.005)
    assert list(fall.low) == list(range(20, 35))


def test_the_moments_of_change_are_found_in_noise() -> None:
    chance = np.random.default_rng(1)
    series = chance.normal(0.0, 0.01, 60)
    assert find_segments(series) == [(0, 60)]
    series[20:30] -= 0.05
    series[45:] -= 0.05
    edges = [first for first, _ in find_segments(series)]
    assert edges == [0, 20, 30, 45]


def weigh(gain: float, scatter: float) -> Suspects:
    """The weighing of eight GPUs of which the third gains this much in half of 120 samples."""
    chance = np.random.default_rng(2)
    low = np.arange(120) < 60
    shown = 50.0 * np.exp(chance.normal(0.0, scatter, (8, 120)))
    shown[2, low] *= np.exp(gain)
    found = weigh_suspects(shown, low, expected=0.05, per_quarter=15)
    assert found is not None
    return found


def test_a_gpu_that_keeps_what_the_others_lose_is_suspected_and_else_the_network() -> None:
    slow, alike = weigh(0.05, 0.02), weigh(0.0, 0.02)
    assert slow.slow_gpu == 2
    assert alike.is_network
    assert slow.gpus.sum() + slow.network == pytest.approx(1.0)


def test_where_noise_would_hide_it_neither_is_said() -> None:
    for gain in (0.0, 0.05):
        unclear = weigh(gain, 0.5)
        assert unclear.slow_gpu is None
        assert not unclear.is_network


def test_a_network_that_carries_on_as_ever_speaks_against_both(healthy: WorkloadMatrix) -> None:
    slow = draw_plain_matrix(SEED, FaultKind.SLOW_GPU, 0.1, profiling=True)
    wait = find_common_wait(Signals(slow))
    assert wait is not None
    assert wait.slow_gpu is not None
    as_ever = replace(wait, network=0.0)
    assert as_ever.slow_gpu is None
    assert not as_ever.is_network
    assert find_common_wait(Signals(healthy)) is None


def test_a_passing_doubt_explains_no_finding_away() -> None:
    """A node that was late for minutes does not hide the fabric that is slow for hours."""
    slow = draw_plain_matrix(SEED, FaultKind.SLOW_FABRIC, 0.3, profiling=True)
    shared = scale_activity(slow, share_host(slow, np.random.default_rng(1)))
    assert FaultKind.SLOW_FABRIC in find_sure(shared)


def test_a_short_job_whose_host_was_late_for_minutes_has_no_slow_node(
    healthy: WorkloadMatrix,
) -> None:
    """Twice ten minutes are a fair share of an hour and a half, and no slow node all the same."""
    shared = scale_activity(healthy, share_host(healthy, np.random.default_rng(1)))
    late = np.flatnonzero((shared.columns["util"] < 0.9 * healthy.columns["util"]).any(axis=0))
    part = slice(max(0, late[0] - 20), late[0] + 40)
    columns = {name: values[:, part] for name, values in shared.columns.items()}
    hosts = {name: values[:, part] for name, values in shared.host_columns.items()}
    short = replace(shared, columns=columns, host_columns=hosts, time_ms=shared.time_ms[part])
    assert FaultKind.SLOW_NODE not in find_sure(short)
