"""Import of people's own files: what is taken, what is refused, and that nothing is halved."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from marey.cli import main
from marey.model.metrics import Entity
from marey.model.protocols import Selection, WorkloadQuery
from marey.model.times import parse_time
from marey.sources.samples_file import open_samples
from marey.store.embedded.embedded_store import EmbeddedStore, open_store

SAMPLES = """\
time,host,gpu,model,power_limit_w,util,DCGM_FI_PROF_PIPE_TENSOR_ACTIVE,host_cpu,colour
2026-01-01T00:00:00,n1,0,NVIDIA A100-SXM4-80GB,400,90,0.5,20,red
2026-01-01T00:00:00,n1,1,NVIDIA A100-SXM4-80GB,400,80,0.4,20,red
1767225660,n1,0,NVIDIA A100-SXM4-80GB,400,nan,9223372036854775794,21,red
1767225660,n1,1,NVIDIA A100-SXM4-80GB,400,,inf,21,red
"""
WORKLOADS = """\
id,name,user,project,partition,state,submit,start,end,gpus,attributes.lr,shoe
7,train,ada,vision,main,CD,2025-12-31T23:00Z,2026-01-01,2026-01-01T00:01,n1:0 n1:1,0.01,9
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    samples, workloads = tmp_path / "s.csv", tmp_path / "w.csv"
    samples.write_text(SAMPLES)
    workloads.write_text(WORKLOADS)
    return samples, workloads, tmp_path / "store.duckdb"


def run_import(files: tuple[Path, Path, Path], *more: str) -> int:
    samples, workloads, store = files
    words = ["--samples", str(samples), "--workloads", str(workloads), "--store", str(store)]
    return main(["import", *words, *more])


def everything(
    store: EmbeddedStore, *metrics: str, kind: Entity = Entity.GPU
) -> dict[object, object]:
    selection = Selection(metrics, 0, 2**60, kind=kind)
    return {
        (batch.entities[e], int(t), metric): float(v)
        for batch in store.scan(selection)
        for metric, values in batch.columns.items()
        for e, t, v in zip(batch.entity, batch.time_ms, values, strict=True)
        if v == v
    }


def test_samples_and_workloads_come_back_as_they_were(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_import(files, "--json") == 0
    captured = capsys.readouterr()
    answer = json.loads(captured.out)
    assert (answer["workloads"], answer["samples"], answer["gpus"]) == (1, 4, 2)
    assert "'colour'" in captured.err
    assert "'shoe'" in captured.err
    begin = parse_time("2026-01-01T00:00:00Z")
    with open_store(files[2]) as store:
        assert everything(store, "util", "tensor_active") == {
            ("n1:0", begin, "util"): 90.0,
            ("n1:1", begin, "util"): 80.0,
            ("n1:0", begin, "tensor_active"): 50.0,
            ("n1:1", begin, "tensor_active"): 40.0,
        }
        hosts = everything(store, "host_cpu", kind=Entity.HOST)
        assert hosts == {("n1", begin, "host_cpu"): 20.0, ("n1", begin + 60_000, "host_cpu"): 21.0}
        workload = store.workload("default", "7")
        assert workload["state"] == "completed"
        assert workload["resource_type"] == "A100-2"
        assert workload["attributes"] == {"lr": "0.01"}
        assert [s["state"] for s in workload["states"]] == ["pending", "running", "completed"]
        assert [a["global_rank"] for a in workload["allocations"]] == [0, 1]


def test_importing_again_changes_nothing(files: tuple[Path, Path, Path]) -> None:
    assert run_import(files) == 0
    with open_store(files[2]) as store:
        before = everything(store, "util"), store.workload("default", "7")
    assert run_import(files) == 0
    with open_store(files[2]) as store:
        assert (everything(store, "util"), store.workload("default", "7")) == before


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("yesterday,n1,0,,,1,,,", "line 6: 'yesterday' is not a time"),
        ("1767225660,n1,x,,,1,,,", "line 6: host and gpu are 'n1:x'"),
        ("1767225660,,0,,,1,,,", "line 6: host or gpu is empty"),
        ("1767225660,n1,0,,,lots,,,", "line 6: util is 'lots'; allowed: a number"),
        ("1767225660,n1,0", "line 6: 3 fields; allowed: 9"),
    ],
)
def test_a_bad_sample_row_is_reported_with_its_line_and_nothing_is_imported(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str], line: str, reason: str
) -> None:
    files[0].write_text(SAMPLES + line + "\n")
    assert run_import(files) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert "Traceback" not in error
    assert not files[2].exists()
    assert run_import(files, "--skip-bad-rows") == 0
    with open_store(files[2]) as store:
        assert len(everything(store, "util")) == 2


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("8,,,,,CD,,,2026-01-01,n1:0,,", "start is empty"),
        (",,,,,CD,,2026-01-01,2026-01-02,n1:0,,", "id is empty"),
        ("8,,,,,CD,,2026-01-02,2026-01-01,n1:0,,", "before start"),
        ("8,,,,,flying,,2026-01-01,2026-01-02,n1:0,,", "Unknown state 'flying'"),
        ("8,,,,,CD,,2026-01-01,,n1:0,,", "an ended workload has an end"),
        ("8,,,,,R,,2026-01-01,,n1,,", "'n1' is not a GPU"),
        ("8,,,,,R,,2026-01-01,,n1:0 n1:0,,", "twice"),
        ("7,,,,,R,,2026-01-01,,n1:0,,", "stands on line 2 already"),
    ],
)
def test_a_bad_workload_row_is_reported_with_its_line(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str], row: str, reason: str
) -> None:
    files[1].write_text(WORKLOADS + row + "\n")
    assert run_import(files) == 2
    error = capsys.readouterr().err
    assert "line 3" in error
    assert reason in error
    assert not files[2].exists()


def test_json_workloads_and_parquet_samples_are_read(tmp_path: Path) -> None:
    samples = tmp_path / "s.parquet"
    pq.write_table(
        pa.table({"time": [1767225600.0], "host": ["n1"], "gpu": [0], "power": [250.0]}), samples
    )
    workloads = tmp_path / "w.json"
    workloads.write_text(json.dumps([{"id": 9, "start": "2026-01-01", "gpus": ["n1:0", "n1:1"]}]))
    store = tmp_path / "x.duckdb"
    assert run_import((samples, workloads, store)) == 0
    with open_store(store) as opened:
        assert list(everything(opened, "power").values()) == [250.0]
        assert opened.workload("default", "9")["state"] == "running"
        assert opened.workloads(WorkloadQuery()).num_rows == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("s.csv", "", "is empty"),
        ("s.csv", "a,b\n1,2\n", "no column time, host, gpu"),
        ("s.csv", "time,host,gpu,colour\n1767225600,n,0,red\n", "no column of a known metric"),
        ("s.csv", "time,host,gpu,util\n", "no rows"),
        ("s.csv", "time,host,gpu,util,DCGM_FI_DEV_GPU_UTIL\n", "the same metric"),
        ("s.parquet", "PAR1 but not really", "cannot be read"),
        ("s.csv", "\x00\x01\x02\xff", "cannot be read"),
    ],
)
def test_an_unusable_samples_file_is_refused_in_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str, message: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert main(["import", "--samples", str(path), "--store", str(tmp_path / "x.duckdb")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "x.duckdb").exists()


def test_missing_file_and_nothing_to_import_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "--samples", str(tmp_path / "none.csv")]) == 2
    assert "is not a file" in capsys.readouterr().err
    assert main(["import", "--store", str(tmp_path / "x.duckdb")]) == 2
    assert "Nothing to import" in capsys.readouterr().err


def test_overlong_and_hostile_names_survive(tmp_path: Path) -> None:
    host = "n" * 10**6
    name = "'; DROP TABLE workloads; --<script>"
    samples, workloads = tmp_path / "s.csv", tmp_path / "w.json"
    samples.write_text(f"time,host,gpu,util\n1767225600,{host},0,50\n")
    row = {"id": name, "start": "2026-01-01", "gpus": f"{host}:0", "user": name}
    workloads.write_text(json.dumps([row]))
    store = tmp_path / "x.duckdb"
    assert run_import((samples, workloads, store)) == 0
    with open_store(store) as opened:
        assert opened.workload("default", name)["user"] == name
        assert list(everything(opened, "util").values()) == [50.0]


def test_a_row_with_invalid_utf_8_is_a_bad_row_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "samples.csv"
    path.write_bytes(
        b"time,host,gpu,util\n2026-11-18T00:00:00Z,n1,0,50\n"
        b"2026-11-18T00:00:15Z,n1\xff,0,50\n2026-11-18T00:00:30Z,n1,0,\xfe\n"
        b"2026-11-18T00:00:45Z,n1,0,51\n"
    )
    file = open_samples(path)
    batches = [batch for _, part in file.batches() for batch in part]
    assert sum(len(batch.time_ms) for batch in batches) == 2
    assert [row.reason for row in file.bad] == ["host is not UTF-8 text", "util is not UTF-8 text"]
