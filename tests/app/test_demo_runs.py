"""Demo runs: what is wrong in the metrics is what its trace says, on the same GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from marey.app.traces.demo_runs import DemoRuns, make_faulty_run
from marey.app.traces.trace_library import TraceLibrary
from marey.model.faults import FaultKind, Truth
from marey.store.embedded.embedded_store import open_store
from marey.trace.analysis import judge
from marey.trace.results import VerdictKind


def name_gpus(count: int) -> list[str]:
    return [f"node{n // 8}:{n % 8}" for n in range(count)]


@pytest.mark.parametrize("count", [8, 16, 32])
def test_the_slow_gpu_is_the_slow_rank_of_its_trace(count: int) -> None:
    gpus = name_gpus(count)
    run = make_faulty_run(gpus, FaultKind.SLOW_GPU, [gpus[6]])
    verdict = judge(run)[0]
    assert (verdict.kind, verdict.ranks) == (VerdictKind.SLOW_WORKER, (6,))
    assert run.info(6).host == "node0"


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        (FaultKind.THROTTLED_GPU, VerdictKind.SLOW_WORKER),
        (FaultKind.INPUT_BOUND, VerdictKind.INPUT_BOUND),
        (FaultKind.SLOW_FABRIC, VerdictKind.COMMUNICATION_BOUND),
    ],
)
def test_the_fault_of_the_metrics_is_the_verdict_of_the_trace(
    fault: FaultKind, verdict: VerdictKind
) -> None:
    gpus = name_gpus(16)
    found = judge(make_faulty_run(gpus, fault, [gpus[5]]))
    assert found[0].kind == verdict


def test_a_slow_node_is_slow_on_all_its_ranks() -> None:
    gpus = name_gpus(16)
    found = judge(make_faulty_run(gpus, FaultKind.SLOW_NODE, gpus[8:]))
    assert {rank for verdict in found for rank in verdict.ranks} <= set(range(8, 16))
    assert found[0].kind != VerdictKind.NONE


def test_every_workload_with_a_visible_fault_has_a_run_and_a_deleted_one_stays_away(
    tmp_path: Path,
) -> None:
    library = TraceLibrary(tmp_path / "traces", now_ms=lambda: 5_000)
    runs_of = DemoRuns(library, open_store(None), "default", {"6": 1, "7": 8, "8": 16})
    faults = [
        Truth(FaultKind.SLOW_GPU, "6", ("node0:0",), ("node0",), 4_000, 5_000),
        Truth(FaultKind.SLOW_GPU, "7", ("node0:1",), ("node0",), 1_000, 5_000),
        Truth(FaultKind.INPUT_BOUND, "8", ("node0:2",), ("node0",), 2_000, 5_000),
        Truth(FaultKind.XID, "9", ("node0:3",), ("node0",), 3_000, 5_000),
    ]
    library.find_demo = lambda: runs_of.add(faults)
    runs = library.list_runs()
    assert [run.workload for run in runs] == ["8", "7"]
    library.delete(runs[0].id)
    assert [run.workload for run in library.list_runs()] == ["7"]
