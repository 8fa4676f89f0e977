"""The straggler measures against the published answers of ByteDance's ST job."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from marey.trace.analysis import analyse
from marey.trace.graph.operation_tables import Operations, operation_graph
from marey.trace.graph.slowdown import measure_slowdown
from marey.trace.results import Slowdown, VerdictKind
from marey.trace.run.trace_run import open_run

pytestmark = pytest.mark.data
WITHIN = 1e-3


@pytest.fixture(scope="module")
def folder(data_dir: Path) -> Path:
    return data_dir / "traces" / "bytedance-ST"


@pytest.fixture(scope="module")
def operations(folder: Path) -> Operations:
    table = pq.read_table(folder / "trace-ST.parquet")
    names = sorted(set(table["optype"].to_pylist()))
    code = {name: at for at, name in enumerate(names)}

    def whole(name: str) -> np.ndarray:
        return table[name].to_numpy().astype(np.int64)

    def nanoseconds(name: str) -> np.ndarray:
        return np.rint(table[name].to_numpy().astype(np.float64) * 1e9).astype(np.int64)

    return Operations(
        rank=whole("rank"),
        replica=whole("dp_rank"),
        stage=whole("stage"),
        step=whole("step"),
        type=np.array([code[name] for name in table["optype"].to_pylist()]),
        sequence=whole("seq_id"),
        start_ns=nanoseconds("start_ts"),
        dur_ns=nanoseconds("duration"),
        type_names=tuple(names),
    )


@pytest.fixture(scope="module")
def slowdown(operations: Operations) -> Slowdown:
    stages = dict(zip(operations.rank.tolist(), operations.stage.tolist(), strict=True))
    replicas = dict(zip(operations.rank.tolist(), operations.replica.tolist(), strict=True))
    return measure_slowdown(operation_graph(operations), stages, replicas)


@pytest.fixture(scope="module")
def answers(folder: Path) -> dict:
    return json.loads((folder / "result-ST.json").read_text())


def test_times_and_slowdown_are_the_published_ones(slowdown: Slowdown, folder: Path) -> None:
    published = json.loads((folder / "mw-ST.json").read_text())
    assert slowdown.step_ms == pytest.approx(published["tori"] * 1e3, rel=WITHIN)
    assert slowdown.ideal_ms == pytest.approx(published["tideal"] * 1e3, rel=WITHIN)
    assert pytest.approx(1.1787, rel=WITHIN) == slowdown.S


def test_shares_recovered_are_the_published_ones(slowdown: Slowdown, folder: Path) -> None:
    workers = json.loads((folder / "mw-ST.json").read_text())
    stages = json.loads((folder / "ms-ST.json").read_text())
    assert pytest.approx(workers["Mw"], rel=WITHIN) == slowdown.M_W
    assert pytest.approx(stages["Ms"], rel=WITHIN) == slowdown.M_S


def test_every_stage_replica_and_type_is_as_published(slowdown: Slowdown, answers: dict) -> None:
    for stage, value in answers["blocking_decompose_by_stage"].items():
        assert slowdown.by_stage[int(stage)] == pytest.approx(value, rel=WITHIN)
    for replica, value in answers["blocking_decompose_by_dp_rank"].items():
        assert slowdown.by_replica[int(replica)] == pytest.approx(value, rel=WITHIN)
    for name, value in answers["blocking_decompose_by_optype"].items():
        assert slowdown.by_type[name] == pytest.approx(value, rel=WITHIN)


def test_every_step_is_as_published(slowdown: Slowdown, answers: dict) -> None:
    assert set(slowdown.by_step) == {int(step) for step in answers["blocking_step_slowdown"]}
    for step, value in answers["blocking_step_slowdown"].items():
        assert slowdown.by_step[int(step)] == pytest.approx(value, rel=WITHIN)


def test_launch_delays_cost_what_was_published(slowdown: Slowdown, answers: dict) -> None:
    assert slowdown.launch == pytest.approx(answers["launch_slowdown"], rel=WITHIN)


def test_a_worker_is_as_slow_as_the_lesser_of_its_stage_and_replica(slowdown: Slowdown) -> None:
    assert max(slowdown.by_worker, key=lambda rank: slowdown.by_worker[rank]) == 7
    assert slowdown.by_worker[7] == min(slowdown.by_stage[3], slowdown.by_replica[1])
    assert slowdown.waste == pytest.approx(1 - 1 / slowdown.S)


def test_the_verdict_is_a_heavy_stage_and_no_worker_is_blamed(folder: Path, tmp_path: Path) -> None:
    found = analyse(open_run(folder / "trace-ST.parquet", cache=tmp_path))
    assert [v.kind for v in found.verdicts] == [VerdictKind.STAGE_IMBALANCE]
    assert found.verdicts[0].ranks == (6, 7)
    assert found.slowdown is not None
    assert pytest.approx(1.1787, rel=WITHIN) == found.slowdown.S
    # What fixing the stage wins is what M_S says it does.
    published = json.loads((folder / "ms-ST.json").read_text())
    won_ms = (published["tori"] - published["trem"]) * 1e3 * len(found.slowdown.by_step)
    assert found.verdicts[0].recoverable_ms == pytest.approx(won_ms, rel=0.02)
    assert {d.kind: d.size for d in found.parallelism.dimensions} == {"data": 2, "pipeline": 4}
    assert found.parallelism.schedule == "1f1b"
