"""What ``marey sim`` writes comes back through ``marey import``."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from marey.cli import main
from marey.model.protocols import Selection, WorkloadQuery
from marey.store.embedded.embedded_store import EmbeddedStore, open_store


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sim") / "run"
    words = ["--gpus", "64", "--hours", "1.5", "--seed", "5", "--out", str(folder)]
    assert main(["sim", *words]) == 0
    return folder


@pytest.fixture(scope="module")
def store(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "run.duckdb"
    assert main(["import", str(run), "--store", str(path)]) == 0
    return path


def intervals(table: object) -> set[tuple[object, ...]]:
    names = ("workload", "state", "valid_from_ms", "valid_to_ms")
    return {tuple(row[n] for n in names) for row in table.to_pylist()}


def test_workloads_states_and_allocations_come_back(run: Path, store: Path) -> None:
    with open_store(store) as opened:
        written = pq.read_table(run / "workloads.parquet")
        assert opened.workloads(WorkloadQuery(limit=10_000)).num_rows == written.num_rows
        states = opened.states("default", from_ms=0, to_ms=2**60)
        assert intervals(states) == intervals(pq.read_table(run / "states.parquet"))
        allocations = opened.allocations("default")
        assert allocations.num_rows == pq.read_table(run / "allocations.parquet").num_rows


def test_every_sample_comes_back(run: Path, store: Path) -> None:
    written = pq.read_table(run / "samples.parquet", columns=["entity", "util", "power"])
    with open_store(store) as opened:
        rows = opened.statistics(Selection(("util", "power"), 0, 2**60)).table.to_pylist()
    for metric in ("util", "power"):
        own = [row for row in rows if row["metric"] == metric]
        column = written.column(metric)
        assert sum(row["count"] for row in own) == len(column) - column.null_count
        mean = sum(row["mean"] * row["count"] for row in own) / sum(row["count"] for row in own)
        assert mean == pytest.approx(pc.mean(column).as_py(), rel=1e-5)


def test_progress_and_events_come_back(run: Path, store: Path) -> None:
    with open_store(store) as opened:
        events = opened.events("default", 0, 2**60, limit=100_000)
        assert events.num_rows == pq.read_table(run / "events.parquet").num_rows
        progress = pq.read_table(run / "progress.parquet")
        name = progress.column("workload")[0].as_py()
        own = progress.filter(pc.equal(progress.column("workload"), name))
        assert opened.progress("default", name, 0, 2**60).num_rows == own.num_rows


def test_the_tables_may_be_named_one_by_one(run: Path, tmp_path: Path) -> None:
    files = [
        "--samples",
        str(run / "samples.parquet"),
        "--workloads",
        str(run / "workloads.parquet"),
    ]
    assert main(["import", *files, "--store", str(tmp_path / "x.duckdb")]) == 0
    with open_store(tmp_path / "x.duckdb") as opened:
        assert isinstance(opened, EmbeddedStore)
        assert opened.span("default") is not None


@pytest.mark.parametrize("damage", ["missing", "garbage", "columns"])
def test_a_damaged_folder_is_refused_and_nothing_is_created(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in run.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    if damage == "missing":
        (broken / "states.parquet").unlink()
    elif damage == "garbage":
        (broken / "samples.parquet").write_bytes(b"not parquet")
    else:
        table = pq.read_table(run / "states.parquet").drop_columns(["state"])
        pq.write_table(table, broken / "states.parquet")
    store = tmp_path / "x.duckdb"
    assert main(["import", str(broken), "--store", str(store)]) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert "states.parquet" in error or "samples.parquet" in error
    if store.exists():
        with open_store(store) as opened:
            assert opened.workloads(WorkloadQuery()).num_rows == 0


def test_truth_names_gpus_that_the_workload_held(run: Path, store: Path) -> None:
    truth = json.loads((run / "truth.json").read_text())
    with open_store(store) as opened:
        for fault in truth:
            held = {a["gpu"] for a in opened.workload("default", fault["workload"])["allocations"]}
            assert set(fault["gpus"]) <= held
