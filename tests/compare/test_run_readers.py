"""Runs from event files, a real MLflow server, traces and a store; the command and its report."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from marey.app.collect.open_sources import SiteSources
from marey.app.settings.source_settings import MlflowSettings
from marey.app.traces.run_readers import read_runs, split_label
from marey.cli import main
from marey.model.errors import InvalidInput, NotFound, Unavailable
from marey.sources.training.event_files import read_scalars
from marey.sources.training.mlflow_runs import MlflowServer
from marey.sources.training.scalar_series import find_tag, make_series
from marey.trace.report.report_document import report_document
from marey.trace.synthetic import Scenario, make_run
from marey.trace.synthetic.kineto import write_kineto
from marey.trace.synthetic.layout import Layout
from tests.waiting import until

# No jobs of its own (they want more packages) and no reports to its makers.
MLFLOW_ENV = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
HOSTILE = "<script>alert(1)</script>"


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def part(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def record(time_s: float, step: int, tag: str, value: float) -> bytes:
    """One record as TensorBoard writes it; checksums are not looked at."""
    scalar = part(1, tag.encode()) + varint(2 << 3 | 5) + struct.pack("<f", value)
    event = varint(1 << 3 | 1) + struct.pack("<d", time_s) + varint(2 << 3) + varint(step)
    event += part(5, part(1, scalar))
    return struct.pack("<Q", len(event)) + b"crc0" + event + b"crc1"


@pytest.fixture
def event_runs(tmp_path: Path) -> Path:
    """Six runs in two groups; the second is faster."""
    for group, seconds in (("base", 1.0), ("new", 0.7)):
        for seed in range(3):
            folder = tmp_path / f"{group}{seed}"
            folder.mkdir()
            data = b"".join(
                record(1.7e9 + seconds * step, step, "train/loss", 2 + 8 / (step + seed * 0.01))
                + record(1.7e9 + seconds * step, step, "samples_per_second", 64 / seconds + seed)
                for step in range(1, 60)
            )
            (folder / "events.out.tfevents.1").write_bytes(data)
    return tmp_path


def test_event_files_are_read_and_a_torn_end_is_said(event_runs: Path) -> None:
    place = event_runs / "base0"
    scalars, notes = read_scalars(place)
    assert len(scalars["train/loss"]) == 59
    assert scalars["train/loss"][0] == (1.7e9 + 1.0, 1, 10.0)
    assert notes == []
    file = place / "events.out.tfevents.1"
    file.write_bytes(file.read_bytes()[:-9])
    scalars, notes = read_scalars(place)
    assert len(scalars["samples_per_second"]) == 58
    assert "middle of a record" in notes[0]
    file.write_bytes(b"\xff" * 400)
    assert read_scalars(place)[0] == {}


def test_files_of_tensorboards_own_writer_are_read(
    tmp_path: Path, need_module: Callable[[str], Any]
) -> None:
    need_module("tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(tmp_path))
    for step in range(5):
        value = Summary.Value(tag="loss", simple_value=1.0 / (step + 1))
        writer.add_event(Event(wall_time=100.0 + step, step=step, summary=Summary(value=[value])))
    writer.close()
    scalars, notes = read_scalars(tmp_path)
    assert notes == []
    assert scalars["loss"] == [(100.0 + n, n, pytest.approx(1.0 / (n + 1))) for n in range(5)]


def test_tags_are_chosen_by_what_they_say() -> None:
    tags = ["loss_scale", "eval/loss", "train/loss", "perf/tokens_per_second", "grad_norm"]
    assert find_tag(tags, ("train/loss", "loss")) == "train/loss"
    series = make_series({tag: [(1.0, 1, 2.0)] for tag in tags}, name="a")
    assert series.unit == "tokens/s"
    assert make_series({}, name="nothing").loss.size == 0


def test_the_command_compares_groups_and_writes_a_report(
    event_runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = event_runs / "hostile"
    hostile.mkdir()
    names = [f"{g}={event_runs}/{g}{n}" for g in ("base", "new") for n in range(3)]
    (event_runs / "new0").rename(event_runs / HOSTILE.replace("/", "_"))
    names[3] = f"new={event_runs}/{HOSTILE.replace('/', '_')}"
    report = event_runs / "report.html"
    assert (
        main(["compare", *names, "--loss", "3", "--gpus", "8", "--html", str(report), "--json"])
        == 0
    )
    document = json.loads(capsys.readouterr().out)
    new = document["groups"][1]
    assert new["figures"]["throughput"]["significant"] is True
    assert new["figures"]["gpu_hours_to_loss"]["change"] == pytest.approx(-0.3, abs=0.02)
    page = report.read_text()
    # Samples were not reported, so the loss is drawn along hours alone.
    assert page.count("<polyline") == len(names)
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "<td>GPU-hours to target loss</td>" in page
    assert main(["compare", *names[:2]]) == 0
    assert "not tested" in capsys.readouterr().out.lower()


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("mlflow:http://127.0.0.1:1", InvalidInput, "names no experiment"),
        ("mlflow:ftp://x#e", InvalidInput, "no address"),
        ("mlflow:http://127.0.0.1:1#e", Unavailable, "does not answer"),
        ("workload:7", InvalidInput, "needs a store"),
        ("/nowhere/at/all", InvalidInput, "no file or folder"),
        ("label=", InvalidInput, "LABEL=PLACE"),
    ],
)
def test_places_that_hold_no_run_are_refused(name: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        read_runs([name])


def test_a_label_is_told_from_an_address() -> None:
    assert split_label("base=runs/a") == ("base", "runs/a")
    assert split_label("mlflow:http://h/#a=b") == ("", "mlflow:http://h/#a=b")


@pytest.fixture(scope="module")
def mlflow(
    tmp_path_factory: pytest.TempPathFactory, need_module: Callable[[str], Any]
) -> Iterator[str]:
    """A real MLflow server, started once."""
    need_module("mlflow")
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port),
        "--backend-store-uri", f"sqlite:///{folder}/runs.db",
        "--default-artifact-root", str(folder / "artifacts"), "--workers", "1",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, **MLFLOW_ENV, "HOME": str(folder)}, start_new_session=True,
    )  # fmt: skip
    server = MlflowServer(f"http://127.0.0.1:{port}", timeout_s=5)

    def answers() -> bool:
        assert process.poll() is None, "the MLflow server ended"
        try:
            server._ask("POST", "experiments/search", {"max_results": 1})
        except (Unavailable, NotFound):
            return False
        return True

    try:
        until(answers, "MLflow", pause_s=1.0)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.close()
        os.killpg(process.pid, 15)
        process.wait(60)


@pytest.mark.real
@pytest.mark.slow
def test_runs_of_a_real_mlflow_server_are_compared(mlflow: str) -> None:
    server = MlflowServer(mlflow)
    made = server._ask("POST", "experiments/create", {"name": "pretraining"})
    number = made["experiment_id"]
    for seed in range(2):
        wish = {"experiment_id": number, "start_time": 1_700_000_000_000, "run_name": f"run{seed}"}
        run = server._ask("POST", "runs/create", wish)["run"]["info"]["run_id"]
        metrics = [
            {
                "key": "loss",
                "value": 4.0 / step,
                "timestamp": 1_700_000_000_000 + step * 1000,
                "step": step,
            }
            for step in range(1, 20)
        ]
        params = [{"key": "world_size", "value": "16"}]
        tags = [{"key": "marey.workload", "value": str(4711 + seed)}]
        batch = {"run_id": run, "metrics": metrics, "params": params, "tags": tags}
        server._ask("POST", "runs/log-batch", batch)
    runs = read_runs([f"base=mlflow:{mlflow}#pretraining"])
    assert len(runs) == 2
    assert {run.gpus for run in runs} == {16}
    assert runs[0].loss.tolist() == [4.0 / step for step in range(1, 20)]
    assert runs[0].step.tolist() == list(range(1, 20))
    with pytest.raises(NotFound):
        server.find_runs("unknown")
    server.close()
    check_live_source(mlflow)


def check_live_source(mlflow: str) -> None:
    """The same server as a source: each report once, under the workload that its tag names."""
    (source,) = SiteSources().open([MlflowSettings(url=mlflow, experiment="pretraining")])
    (observation,) = source.poll(1_700_000_100_000)
    told = {(report.workload, report.step, report.loss) for report in observation.progress}
    assert told == {(str(4711 + seed), n, 4.0 / n) for seed in range(2) for n in range(1, 20)}
    assert not [report for one in source.poll(1_700_000_110_000) for report in one.progress]
    source.close()


def test_figures_of_a_trace_are_those_of_its_report(tmp_path: Path) -> None:
    layout = Layout(data=2, pipeline=1)
    write_kineto(make_run(Scenario(layout, seed=2)).run, tmp_path)
    (series,) = read_runs([str(tmp_path)])
    report = report_document(tmp_path)
    shares = [rank["exposed_comm_ms"] / rank["span_ms"] for rank in report["ranks"]]
    assert series.communication_share == pytest.approx(sum(shares) / len(shares))
    assert 0 < series.communication_share < 1
    assert series.step_ms.tolist() == [step["duration_ms"] for step in report["steps"]]
