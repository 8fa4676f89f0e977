"""``marey sim`` writes whole runs, or says in one message why not and leaves nothing behind."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from marey.cli import main
from marey.model import tables
from marey.model.errors import Conflict
from marey.model.metrics import EVERYDAY
from marey.model.samples import batch_from_table
from marey.model.times import parse_time
from marey.sim import SimConfig, Simulation
from marey.sim.export import write_run

ARGUMENTS = ["sim", "--gpus", "64", "--hours", "6", "--seed", "7", "--faults", "0.9"]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sim") / "run"
    assert main([*ARGUMENTS, "--out", str(out)]) == 0
    return out


def test_the_tables_have_the_models_schemas(run_dir: Path) -> None:
    schemas = {
        "workloads": tables.WORKLOADS,
        "states": tables.STATES,
        "allocations": tables.ALLOCATIONS,
        "hosts": tables.HOSTS,
        "gpus": tables.GPUS,
        "partitions": tables.PARTITIONS,
        "progress": tables.PROGRESS,
        "events": tables.EVENTS,
    }
    for name, schema in schemas.items():
        table = pq.read_table(run_dir / f"{name}.parquet")
        assert table.schema.equals(schema), name
        assert table.num_rows > 0, name
    others = {"samples.parquet", "host_samples.parquet", "truth.json"}
    assert {p.name for p in run_dir.iterdir()} == {f"{n}.parquet" for n in schemas} | others


def test_the_samples_are_complete_and_equal_to_the_simulations(run_dir: Path) -> None:
    batch = batch_from_table(pq.read_table(run_dir / "samples.parquet"))
    assert len(batch) == 64 * 6 * 240
    assert tuple(batch.columns) == EVERYDAY
    simulation = Simulation(SimConfig(gpus=64, seed=7, faults=0.9))
    (seen,) = list(simulation.advance(simulation.config.start_ms))
    first = batch.time_ms == batch.time_ms.min()
    order = np.argsort(np.array(batch.entities, dtype=object)[batch.entity[first]])
    expected = np.argsort(np.array(seen.samples[0].entities, dtype=object))
    for name in EVERYDAY:
        assert np.array_equal(
            batch.columns[name][first][order],
            seen.samples[0].columns[name][expected],
            equal_nan=True,
        )


def test_the_truth_names_what_the_tables_hold(run_dir: Path) -> None:
    truth = json.loads((run_dir / "truth.json").read_text())
    assert truth
    held = pq.read_table(run_dir / "allocations.parquet").to_pylist()
    pairs = {(row["workload"], row["gpu"]) for row in held}
    for entry in truth:
        assert list(entry) == ["kind", "workload", "gpus", "hosts", "start", "end"]
        assert parse_time(entry["start"]) < parse_time(entry["end"])
        assert all((entry["workload"], gpu) in pairs for gpu in entry["gpus"])


def test_intervals_of_a_workload_follow_each_other(run_dir: Path) -> None:
    rows = pq.read_table(run_dir / "states.parquet").to_pylist()
    by_workload: dict[str, list[dict[str, object]]] = {}
    for row in rows:
        by_workload.setdefault(row["workload"], []).append(row)
    for intervals in by_workload.values():
        for one, other in pairwise(intervals):
            assert one["valid_to_ms"] == other["valid_from_ms"]
        assert intervals[-1]["valid_to_ms"] is None


def test_json_is_one_document_and_equal_options_give_equal_files(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*ARGUMENTS, "--json", "--out", str(tmp_path / "again")]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["gpus"] == 64
    assert summary["samples"] == 64 * 6 * 240 * 12
    assert summary["faults"] == len(json.loads((run_dir / "truth.json").read_text()))
    assert summary["end"] == "2026-11-09T06:00:00Z"
    for path in run_dir.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpus", "many"], "--gpus 'many' is not a whole number"),
        (["--gpus", "3"], "allowed: 8 to 131072"),
        (["--gpus", "9999999"], "allowed: 8 to 131072"),
        (["--hours", "0"], "more than 0"),
        (["--hours", "nan"], "is not a number"),
        (["--hours", "-4"], "more than 0"),
        (["--policy", "lottery"], "Unknown policy 'lottery'"),
        (["--placement", "anywhere"], "Unknown placement"),
        (["--tick", "soon"], "is not a duration"),
        (["--tick", "10ms"], "allowed: 1 s to 1 h"),
        (["--start", "yesterday"], "is not a time"),
        (["--faults", "7"], "allowed: 0 to 1"),
        (["--load", "99"], "allowed: 0 to 3"),
        (["--seed", "x"], "--seed 'x' is not a whole number"),
    ],
)
def test_bad_options_get_one_message_and_no_files(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = main(["sim", "--out", str(tmp_path / "run"), *arguments])
    captured = capsys.readouterr()
    assert status == 2
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out
    assert not list(tmp_path.iterdir())


def test_a_directory_with_something_in_it_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert main(["sim", "--gpus", "64", "--hours", "0.1", "--out", str(tmp_path)]) == 4
    assert "not empty" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_a_run_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    simulation = Simulation(SimConfig(gpus=64))

    def interrupt(hours: float) -> None:
        if hours > 1.0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_run(simulation, 12.0, tmp_path / "run", report=interrupt)
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(Conflict):
        write_run(simulation, 1.0, tmp_path / "file")
