"""Diagnosis of simulated workloads with known truth, and of difficult input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.diagnosis import Case, f1, simulate
from marey.diagnose.clusters import cluster_gpus
from marey.diagnose.diagnosis import diagnose, find_faults, find_outliers
from marey.diagnose.matrix import Context, GpuFacts, WorkloadFacts, WorkloadMatrix, build_matrix
from marey.model.faults import SIMULATED, FaultKind
from marey.model.samples import SampleBatch

FAULTS = list(SIMULATED)


@pytest.mark.parametrize("kind", FAULTS, ids=str)
def test_a_simulated_fault_is_named_with_exactly_its_gpus(kind: FaultKind) -> None:
    case = simulate(4242, kind, 32)
    assert case.truth is not None
    top = find_faults(case.matrix)[0]
    assert top.kind is kind
    assert f1(top, case.truth) == 1.0
    assert top.confidence > 0.5
    assert top.next


@pytest.mark.parametrize(("gpus", "work"), [(1, "train"), (8, "serve"), (64, "train")])
def test_healthy_work_is_called_healthy(gpus: int, work: str) -> None:
    found = find_faults(simulate(4243, FaultKind.HEALTHY, gpus, work=work).matrix)
    assert [finding.kind for finding in found] == [FaultKind.HEALTHY]


def test_biased_load_is_clustered_as_the_first_gpu_of_every_node() -> None:
    case = simulate(4244, FaultKind.BIASED_LOAD, 64)
    report = cluster_gpus(case.matrix, "util")
    odd = next(cluster for cluster in report.clusters if len(cluster.gpus) == 8)
    assert case.truth is not None
    assert set(odd.gpus) == set(case.truth.gpus)
    assert "the first GPU of every node" in odd.why


def changed(case: Case, metric: str, rows: slice, factor: float) -> WorkloadMatrix:
    values = case.matrix.columns[metric].copy()
    values[rows] *= factor
    return replace(case.matrix, columns={**case.matrix.columns, metric: values})


def test_a_node_that_hardly_works_is_not_called_healthy() -> None:
    case = simulate(4260, FaultKind.HEALTHY, 64)
    host = case.matrix.gpus[0].host
    members = [gpu.gpu for gpu in case.matrix.gpus if gpu.host == host]
    top = find_faults(changed(case, "util", slice(0, len(members)), 0.06))[0]
    assert top.kind is FaultKind.IDLE_GPUS
    assert sorted(top.gpus) == sorted(members)
    assert top.confidence < 0.9, "it is a judgement by what is left"


def test_gpus_that_stand_apart_without_a_known_cause_make_healthy_a_guess() -> None:
    case = simulate(4261, FaultKind.HEALTHY, 64)
    sure = find_faults(case.matrix)[0]
    guess = find_faults(changed(case, "power", slice(3, 7), 0.5))[0]
    assert sure.kind is guess.kind is FaultKind.HEALTHY
    assert guess.confidence < 0.6 < sure.confidence
    assert "unlike the others" in guess.summary
    assert any("Power" in str(entry) for entry in guess.evidence)
    assert sure.evidence == ()


def without(matrix: WorkloadMatrix, *metrics: str) -> WorkloadMatrix:
    kept = {name: values for name, values in matrix.columns.items() if name not in metrics}
    gpus = tuple(GpuFacts(g.gpu, g.host, g.index) for g in matrix.gpus)
    return WorkloadMatrix(matrix.facts, gpus, matrix.time_ms, matrix.step_ms, kept, matrix.hosts)


def test_a_stall_is_seen_without_tensor_activity_and_limits_but_less_surely() -> None:
    case = simulate(4245, FaultKind.STALLED, 16)
    sure = find_faults(case.matrix)[0]
    guess = find_faults(without(case.matrix, "tensor_active", "dram_active", "sm_active"))[0]
    assert sure.kind is guess.kind is FaultKind.STALLED
    assert guess.confidence < sure.confidence


def matrix(values: np.ndarray, hosts: int = 1) -> WorkloadMatrix:
    count, moments = values.shape
    gpus = [GpuFacts(f"h{i % hosts}:{i}", f"h{i % hosts}", i) for i in range(count)]
    names = [gpu.gpu for gpu in gpus]
    batch = SampleBatch(
        np.tile(np.arange(moments, dtype=np.int64) * 15_000 + 10**12, count),
        np.repeat(np.arange(count, dtype=np.int32), moments),
        names,
        {"util": values.ravel().astype(np.float32)},
    )
    return build_matrix(Context(WorkloadFacts("w"), gpus), [batch])


def test_no_samples_give_no_verdict_rather_than_a_wrong_one() -> None:
    empty = build_matrix(Context(WorkloadFacts("w"), [GpuFacts("h:0", "h", 0)]), [])
    result = diagnose(empty)
    assert [finding.kind for finding in result.findings] == [FaultKind.NOT_MEASURED]
    assert result.clusters is None


# Four hours of two GPUs.
HOURS_4 = 960


def bursts(seed: int) -> np.ndarray:
    """Requests that come and go at random, as a server has them."""
    chance = np.random.default_rng(seed)
    on = chance.random(HOURS_4) < 0.3
    return np.tile(np.where(on, chance.uniform(50, 100, HOURS_4), 0.0), (2, 1))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.where(np.arange(HOURS_4) < HOURS_4 // 2, 95.0, 0.0) * np.ones((2, 1)), "stand still"),
        (bursts(1), "often do nothing"),
        (np.full((2, HOURS_4), 25.0), "uses little"),
        (np.full((2, HOURS_4), 90.0), "Nothing is wrong"),
    ],
    ids=["stopped", "bursts", "little", "busy"],
)
def test_gpus_that_do_nothing_for_long_are_not_surely_well(values: np.ndarray, words: str) -> None:
    (found,) = diagnose(matrix(values)).findings
    assert found.kind is FaultKind.HEALTHY
    assert words in found.summary
    assert (found.confidence >= 0.6) == (words == "Nothing is wrong")


@pytest.mark.parametrize(("minutes", "sure"), [(4, True), (10, False)])
def test_long_regular_pauses_may_be_something_else_than_input(minutes: int, sure: bool) -> None:
    beat = np.arange(HOURS_4) % (12 * minutes) < 8 * minutes
    (found,) = diagnose(matrix(np.where(beat, 95.0, 0.0) * np.ones((2, 1)))).findings
    assert found.kind is FaultKind.INPUT_BOUND
    assert (found.confidence >= 0.6) == sure


def test_gpus_that_work_in_turns_are_not_idle() -> None:
    chance = np.random.default_rng(3)
    on = chance.random((8, HOURS_4)) < np.linspace(0.42, 0.58, 8)[:, None]
    kinds = {f.kind for f in diagnose(matrix(np.where(on, 80.0, 0.0))).findings}
    assert FaultKind.IDLE_GPUS not in kinds


def test_a_workload_without_gpus_gets_an_answer() -> None:
    waiting = WorkloadFacts("w", state="pending", reason="Resources", submit_ms=0, now_ms=3_600_000)
    (found,) = diagnose(build_matrix(Context(waiting, []), [])).findings
    assert found.kind is FaultKind.WAITING
    assert "free GPUs" in found.summary


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.full((1, 1), 50.0), FaultKind.TOO_SHORT),
        (np.full((1, 400), 50.0), FaultKind.HEALTHY),
        (np.full((8, 400), 0.0), FaultKind.IDLE_SESSION),
        (np.full((8, 3), 90.0), FaultKind.TOO_SHORT),
        (np.full((4, 400), np.nan), FaultKind.NOT_MEASURED),
        (np.where(np.arange(400) % 7 == 0, np.nan, np.full((4, 400), 70.0)), FaultKind.HEALTHY),
        (np.where(np.arange(400) < 200, np.array([[np.nan], [70.0]]), 70.0), FaultKind.HEALTHY),
    ],
    ids=["one sample", "one GPU", "all idle", "three", "all missing", "gaps", "joined late"],
)
def test_difficult_input_gets_an_answer(values: np.ndarray, kind: FaultKind) -> None:
    found = diagnose(matrix(values, hosts=2)).findings
    assert [finding.kind for finding in found] == [kind]
    assert all(
        set(finding.gpus) == {g.gpu for g in matrix(values, hosts=2).gpus} for finding in found
    )


def test_mixed_gpu_models_are_not_called_throttled() -> None:
    case = simulate(4246, FaultKind.HEALTHY, 16)
    clock = case.matrix.columns["sm_clock"].copy()
    clock[8:] *= 0.7
    gpus = tuple(
        GpuFacts(g.gpu, g.host, g.index, g.global_rank, g.local_rank, "A" if i < 8 else "B",
                 g.power_limit_w, g.memory_mib)
        for i, g in enumerate(case.matrix.gpus)
    )  # fmt: skip
    mixed = WorkloadMatrix(
        case.matrix.facts, gpus, case.matrix.time_ms, case.matrix.step_ms,
        {**case.matrix.columns, "sm_clock": clock}, case.matrix.hosts,
    )  # fmt: skip
    assert FaultKind.THROTTLED_GPU not in {finding.kind for finding in find_faults(mixed)}


def test_order_of_gpus_changes_no_finding() -> None:
    case = simulate(4247, FaultKind.SLOW_GPU, 16)
    order = np.random.default_rng(0).permutation(16)
    shuffled = WorkloadMatrix(
        case.matrix.facts, tuple(case.matrix.gpus[i] for i in order), case.matrix.time_ms,
        case.matrix.step_ms, {m: v[order] for m, v in case.matrix.columns.items()},
        case.matrix.hosts, case.matrix.host_columns, case.matrix.progress, case.matrix.events,
    )  # fmt: skip
    straight, other = find_faults(case.matrix)[0], find_faults(shuffled)[0]
    assert (straight.kind, set(straight.gpus)) == (other.kind, set(other.gpus))


def test_outliers_are_named_with_time_and_gpu() -> None:
    case = simulate(4248, FaultKind.HEALTHY, 8)
    power = case.matrix.columns["power"].copy()
    power[3, 300] = 5.0
    spiked = WorkloadMatrix(
        case.matrix.facts, case.matrix.gpus, case.matrix.time_ms, case.matrix.step_ms,
        {**case.matrix.columns, "power": power}, case.matrix.hosts,
    )  # fmt: skip
    found = find_outliers(spiked)
    assert (spiked.gpus[3].gpu, int(spiked.time_ms[300])) in {(o.gpu, o.time_ms) for o in found}
