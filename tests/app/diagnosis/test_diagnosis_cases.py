"""Difficult workloads in a store: each gets a clear answer from the command line and the API."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marey.app.diagnosis.comparison import AskComparison
from marey.app.diagnosis.diagnosis_parts import AskClusters, AskOutliers
from marey.app.diagnosis.diagnosis_query import AskDiagnosis
from marey.app.diagnosis.over_time import AskBand
from marey.app.diagnosis.peers import AskPeers
from marey.app.queries.server_client import ask
from marey.cli import main
from marey.model.errors import InvalidInput
from marey.model.inventory import Gpu, Host, HostState, HostStatus
from marey.model.metrics import Entity
from marey.model.observation import Observation
from marey.model.samples import SampleBatch
from marey.model.workloads import Allocation, Workload, WorkloadState, WorkloadStatus
from marey.store.embedded.embedded_store import open_store

BEGIN_MS = 1_794_182_400_000
STEP_MS = 15_000
MOMENTS = 160
# Workload: its GPUs, and their utilization (a row each; NaN is no sample).
busy = np.random.default_rng(4).normal(85, 3, (4, MOMENTS)).clip(0, 100)
late = busy.copy()
late[2:, : MOMENTS // 2] = np.nan
gappy = np.where(np.arange(MOMENTS)[None, :] % 40 < 25, busy, np.nan)
idle = busy.copy()
idle[3] = 0.0
CASES: Mapping[str, np.ndarray] = {
    "nothing": np.full((4, MOMENTS), np.nan),
    "one-sample": np.where(np.arange(MOMENTS)[None, :] == 5, busy, np.nan),
    "one-gpu": busy[:1],
    "constant": np.full((4, MOMENTS), 50.0),
    "gaps": gappy,
    "mixed": busy,
    "late": late,
    "usual": busy,
    "wasteful": idle,
}


def gpus_of(case: str) -> list[str]:
    return [f"{case}:{i}" for i in range(len(CASES[case]))]


def inventory() -> Observation:
    """Every workload on a host of its own; "mixed" has two models of GPU."""
    return Observation(
        time_ms=BEGIN_MS,
        hosts=tuple(Host(case, "r1", "s1", case, ()) for case in CASES),
        gpus=tuple(
            Gpu(case, i, None, f"GPU-{case}-{i}", "H100" if case == "mixed" and i > 1 else "A100",
                400.0, 80_000.0)
            for case, values in CASES.items()
            for i in range(len(values))
        ),
        host_states=tuple(HostStatus(case, HostState.UP) for case in CASES),
        workloads=tuple(
            Workload(case, name=case, user="ada", gpus_requested=len(values), gpu_model="A100",
                     submit_ms=BEGIN_MS, start_ms=BEGIN_MS)
            for case, values in CASES.items()
        ),
        statuses=tuple(WorkloadStatus(case, WorkloadState.RUNNING) for case in CASES),
        allocations=tuple(
            Allocation(case, gpu, i, i) for case in CASES for i, gpu in enumerate(gpus_of(case))
        ),
        complete=True,
    )  # fmt: skip


def samples(case: str) -> SampleBatch:
    values = CASES[case]
    count, moments = values.shape
    batch = SampleBatch(
        np.tile(np.arange(moments, dtype=np.int64) * STEP_MS + BEGIN_MS, count),
        np.repeat(np.arange(count, dtype=np.int32), moments),
        gpus_of(case),
        {
            "util": values.ravel().astype(np.float32),
            "power": (100 + 2.5 * values).ravel().astype(np.float32),
        },
        workload=np.zeros(count * moments, np.int32),
        workloads=(case,),
    )
    known = ~np.isnan(batch.columns["util"])
    return replace(
        batch,
        time_ms=batch.time_ms[known],
        entity=batch.entity[known],
        columns={name: column[known] for name, column in batch.columns.items()},
        workload=batch.workload[known] if batch.workload is not None else None,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cases") / "site.duckdb"
    with open_store(path) as store:
        store.apply(inventory())
        for case in CASES:
            if len(samples(case)):
                store.append([samples(case)])
    return path


def command(*arguments: object) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main([str(argument) for argument in arguments])
    return status, out.getvalue(), err.getvalue()


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("nothing", "No samples of this workload are stored in this window"),
        ("one-sample", "Too short to tell"),
        ("one-gpu", "Nothing is wrong"),
        ("constant", "%"),
        ("gaps", "%"),
        ("mixed", "Nothing is wrong"),
        ("late", "%"),
    ],
)
def test_a_difficult_workload_gets_a_clear_answer_on_the_command_line(
    site: Path, case: str, said: str
) -> None:
    status, text, error = command("diagnose", case, "--store", site)
    assert (status, error) == (0, "")
    assert said in text
    status, text, _ = command("diagnose", case, "--store", site, "--json")
    assert status == 0
    found = json.loads(text)
    assert found["verdict"]
    assert sorted(found["workload"]["gpus"]) == gpus_of(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_part_answers_for_a_difficult_workload(site: Path, case: str) -> None:
    clusters = ask(site, AskClusters(case))
    listed = [gpu for cluster in clusters["clusters"] for gpu in cluster["gpus"]]
    assert sorted(listed) == (gpus_of(case) if case != "nothing" else [])
    bands = ask(site, AskBand(case))["bands"]
    assert bool(bands) == (case != "nothing")
    if case != "nothing":
        assert ask(site, AskOutliers(case))["samples"] == int(np.isfinite(CASES[case]).sum())


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_difficult_workload_gets_a_report(site: Path, case: str, tmp_path: Path) -> None:
    page, text = tmp_path / "report.html", tmp_path / "report.md"
    status, _, error = command(
        "diagnose", case, "--store", site, "--html", page, "--markdown", text
    )
    assert (status, error) == (0, "")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert text.read_text(encoding="utf-8").startswith("# Diagnosis of ")


def test_gaps_stay_gaps_and_never_become_zero(site: Path) -> None:
    (band, *_) = ask(site, AskBand("gaps"))["bands"]
    assert None in band["median"]
    assert min(value for value in band["low"] if value is not None) > 50


def test_efficiency_is_set_against_workloads_of_the_same_size_and_type(site: Path) -> None:
    found: dict[str, Any] = ask(site, AskPeers("wasteful"))
    assert found["same"] == {"gpus": 4, "gpu_model": "A100"}
    assert "usual" in found["peers"]
    assert "one-gpu" not in found["peers"], "another size is no peer"
    util = next(row for row in found["metrics"] if row["metric"] == "util")
    assert util["own"] == pytest.approx(CASES["wasteful"].mean(), abs=0.5)
    assert util["own"] < util["low"] <= util["peers"] <= util["high"]
    assert util["better_than"] < 0.5


def test_two_workloads_are_compared_by_command_and_question_alike(site: Path) -> None:
    question = AskComparison("wasteful", "usual")
    found = ask(site, question)
    assert found["findings"]["new"] == ["idle_gpus"]
    assert "New: idle GPUs." in found["changed"] or "New: idle gpus." in found["changed"]
    assert any(
        "GPU utilization down 25 %" in sentence.replace("\u2009", " ")
        for sentence in found["changed"]
    )
    status, text, _ = command("diagnose", "wasteful", "--against", "usual", "--store", site)
    assert status == 0
    for sentence in found["changed"]:
        assert sentence in text
    status, text, _ = command("diagnose", "usual", "--against", "usual", "--store", site)
    assert status != 0


def test_two_windows_of_one_workload_are_compared_on_the_command_line(site: Path) -> None:
    middle = (BEGIN_MS + MOMENTS // 2 * STEP_MS) / 1000
    status, text, error = command(
        "diagnose", "late", "--store", site, "--json", "--from", middle, "--against", "late",
        "--against-to", middle,
    )  # fmt: skip
    assert (status, error) == (0, "")
    found = json.loads(text)
    assert found["before"]["window"]["to"] <= found["after"]["window"]["from"]


def test_what_is_measured_of_hosts_is_drawn_over_time_and_told_among_the_means(
    tmp_path: Path,
) -> None:
    times = np.arange(0, MOMENTS, 2, dtype=np.int64) * STEP_MS + BEGIN_MS
    cpu = np.linspace(10, 90, len(times)).astype(np.float32)
    path = tmp_path / "site.duckdb"
    with open_store(path) as store:
        store.apply(inventory())
        entity = np.zeros(len(times), np.int32)
        of_host = SampleBatch(times, entity, ("usual",), {"host_cpu": cpu}, kind=Entity.HOST)
        store.append([samples("usual"), of_host])
    found = ask(path, AskBand("usual", metrics="host_cpu,util", points=20))
    host, util = found["bands"]
    assert (host["metric"], util["metric"]) == ("host_cpu", "util")
    assert max(host["high"]) == pytest.approx(90, abs=1)
    assert min(host["low"]) == pytest.approx(10, abs=1)
    # Both lie in bins of one width, so that one look sees both at the same moments.
    assert {time % found["bin_ms"] for time in host["time_ms"][::2]} == {0}
    means = {row["metric"]: row["mean"] for row in ask(path, AskDiagnosis("usual"))["metrics"]}
    assert means["host_cpu"] == pytest.approx(50, abs=1)
    with pytest.raises(InvalidInput, match="of a host"):
        ask(path, AskClusters("usual", metric="host_cpu"))


def test_memory_that_filled_up_is_seen_where_a_log_tells_its_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An nvidia-smi log with memory.total and the scheduler's word are enough."""
    lines = ["timestamp, index, utilization.gpu [%], memory.used [MiB], memory.total [MiB]"]
    for at in range(120):
        used = 40_000 + (at > 110) * (at - 110) * 4_600
        moment = f"2026/03/01 12:{at // 4:02d}:{15 * (at % 4):02d}.000"
        lines.append(f"{moment}, 0, 95 %, {min(used, 81_200)} MiB, 81920 MiB")
    (tmp_path / "n1.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "jobs.csv").write_text(
        "id,state,start,end,exit_code,gpus\n"
        "7,FAILED,2026-03-01T12:00:00Z,2026-03-01T12:30:00Z,1,n1:0\n"
    )
    store = str(tmp_path / "s.duckdb")
    files = ["--samples", str(tmp_path / "n1.csv"), "--workloads", str(tmp_path / "jobs.csv")]
    assert main(["import", *files, "--store", store]) == 0
    capsys.readouterr()
    assert main(["diagnose", "7", "--store", store, "--json"]) == 0
    top = json.loads(capsys.readouterr().out)["findings"][0]
    assert top["kind"] == "out_of_memory"
    assert "filled up" in top["summary"]
