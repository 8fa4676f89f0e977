"""Verdicts and recognition on traces of real runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from marey.trace.analysis import Analysis, analyse, judge
from marey.trace.results import VerdictKind
from marey.trace.run.trace_run import TraceRun, open_run

pytestmark = pytest.mark.data
Shift = Callable[[TraceRun, int, int], TraceRun]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def traces(data_dir: Path) -> Path:
    return data_dir / "traces"


@pytest.fixture(scope="module")
def slow_data(traces: Path, cache: Path) -> TraceRun:
    return open_run(traces / "torch-cpu" / "ddp-slow-data", cache=cache)


def _analysed(path: Path, cache: Path) -> Analysis:
    return analyse(open_run(path, cache=cache))


def test_the_rank_that_sleeps_in_its_loader_is_named_and_its_input_not_the_network(
    slow_data: TraceRun,
) -> None:
    verdicts = judge(slow_data)
    assert [(v.kind, v.ranks) for v in verdicts] == [(VerdictKind.INPUT_BOUND, (1,))]
    # It sleeps 300 ms in each of the four profiled steps; some of that overlaps with peers' work.
    assert 800 < verdicts[0].recoverable_ms < 1300


def test_the_order_in_which_files_are_given_changes_nothing(
    traces: Path, slow_data: TraceRun, cache: Path
) -> None:
    paths = sorted((traces / "torch-cpu" / "ddp-slow-data").glob("rank*.json.gz"))
    mixed = open_run([paths[2], paths[0], paths[3], paths[1]], cache=cache)
    assert judge(mixed) == judge(slow_data)


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("by_us", [500, -500])
def test_a_shifted_clock_leaves_the_verdicts_of_a_real_run_alone(
    slow_data: TraceRun, rank: int, by_us: int, shifted: Shift
) -> None:
    # Processes of one host read one clock; only a rank of another host can have one that is off.
    apart = TraceRun.from_tables(
        {r: slow_data.events(r) for r in slow_data.ranks},
        {
            r: replace(slow_data.info(r), host="elsewhere" if r == rank else "here")
            for r in slow_data.ranks
        },
        slow_data.symbols,
    )
    assert judge(shifted(apart, rank, by_us * 1000)) == judge(apart)


@pytest.mark.parametrize("by_us", [500, -500])
def test_a_clock_that_is_off_within_one_host_moves_a_verdict_by_no_more(
    slow_data: TraceRun, by_us: int, shifted: Shift
) -> None:
    [moved], [recorded] = judge(shifted(slow_data, 1, by_us * 1000)), judge(slow_data)
    assert (moved.kind, moved.ranks, moved.steps) == (recorded.kind, recorded.ranks, recorded.steps)
    assert abs(moved.recoverable_ms - recorded.recoverable_ms) <= 0.5 * len(recorded.steps)


def test_most_waiting_in_that_run_is_blamed_on_its_input(slow_data: TraceRun) -> None:
    rows = analyse(slow_data).blame.to_pylist()
    total = sum(row["gpu_seconds"] for row in rows)
    theirs = [r for r in rows if r["culprit"] == 1 and r["cause"] == "input"]
    assert sum(r["gpu_seconds"] for r in theirs) > 0.6 * total


def test_a_healthy_run_blames_nobody_and_is_data_parallel(traces: Path, cache: Path) -> None:
    found = _analysed(traces / "torch-cpu" / "ddp", cache)
    assert [v.kind for v in found.verdicts] == [VerdictKind.NONE]
    assert [(d.kind, d.size) for d in found.parallelism.dimensions] == [("data", 4)]
    assert found.matches.matched == 16
    assert found.matches.unmatched == 0


def test_a_pipeline_is_recognised_with_stages_and_micro_batches(traces: Path, cache: Path) -> None:
    found = _analysed(traces / "torch-cpu" / "pp", cache)
    assert [(d.kind, d.size) for d in found.parallelism.dimensions] == [("pipeline", 4)]
    assert found.parallelism.stages == {0: 0, 1: 1, 2: 2, 3: 3}
    assert found.parallelism.micro_batches == 4
    assert found.matches.unmatched == 0
    # Nothing is wrong; four micro-batches leave four stages waiting for each other.
    assert [v.kind for v in found.verdicts] == [VerdictKind.PIPELINE_BUBBLE]


def test_full_sharding_is_recognised(traces: Path, cache: Path) -> None:
    found = _analysed(traces / "torch-cpu" / "fsdp2", cache)
    assert [(d.kind, d.size) for d in found.parallelism.dimensions] == [("fully_sharded", 4)]
    assert found.matches.unmatched == 0
    assert found.verdicts[0].kind == VerdictKind.NONE


def test_resnet_waits_for_input_and_less_so_with_four_workers(traces: Path, cache: Path) -> None:
    def input_ms(name: str) -> tuple[VerdictKind, float]:
        found = _analysed(traces / "kineto-resnet50" / name, cache)
        path = found.critical_path.to_pylist()
        waited = sum(p["dur_ns"] for p in path if p["activity"] == "input") / 1e6
        return found.verdicts[0].kind, waited

    kind, alone = input_ms("resnet50_num_workers_0")
    assert kind == VerdictKind.INPUT_BOUND
    _, helped = input_ms("resnet50_num_workers_4")
    assert helped < 0.5 * alone


def test_two_ranks_of_a_large_job_give_modest_claims(traces: Path, cache: Path) -> None:
    found = _analysed(traces / "hta" / "trace_filter", cache)
    assert found.ranks == (0, 1)
    assert found.matches.matched > 0
    assert found.matches.confidence < 0.9
    assert found.slowdown is not None
    assert found.slowdown.S < 2


@pytest.mark.parametrize(
    "name",
    ["deepseek", "hta/cpu_only", "hta/nccl_parser_config", "hta/rank_unavailable", "jax-cpu"],
)
def test_other_traces_are_analysed_without_failing(traces: Path, cache: Path, name: str) -> None:
    path = traces / name
    found = _analysed(path / "multi" if name == "jax-cpu" else path, cache)
    assert found.verdicts
    assert found.critical_path.num_rows > 0
