"""Accounting: what ``sacct --json`` and slurmdbd wrote, read as jobs that have ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from marey.app.history.imports import ImportRequest, check_import, write_import
from marey.model.errors import InvalidInput, Unavailable
from marey.model.protocols import WorkloadQuery
from marey.model.workloads import WorkloadState
from marey.sources.slurm.history import NO_INDICES, list_ended_jobs, parse_history, read_history
from marey.store.embedded.embedded_store import open_store


def test_ended_jobs_of_22_05_are_what_sacct_printed(data_dir: Path) -> None:
    folder = data_dir / "slurm/22.05"
    seen = {s.workload.workload: s for s in read_history((folder / "sacct.json").read_bytes(), "s")}
    head, *lines = (folder / "sacct_all.psv").read_text().splitlines()
    names = head.split("|")
    rows = {
        row["JobID"]: row for row in (dict(zip(names, li.split("|"), strict=False)) for li in lines)
    }
    over = [j for j, row in rows.items() if j in seen and row["End"] != "Unknown"]
    assert len(over) == 13
    for job in over:
        workload, row = seen[job].workload, rows[job]
        assert seen[job].status.state.value.upper() == row["State"].split()[0]
        assert (workload.user, workload.partition) == (row["User"], row["Partition"])
    first = seen["1"].workload
    assert (first.gpus_requested, first.gpus_per_host, first.gpu_model) == (16, 8, "a100")
    assert (first.project, first.experiment) == ("llm-70b", "exp-0042")
    assert (first.attributes["nodes"], first.attributes["gpu_indices"]) == (
        "gpua[02-03]",
        NO_INDICES,
    )
    assert first.exit_code == 128 + 15
    # A failed job whose JSON says 0: that is a fault of 22.05, and not known is the truth.
    assert (seen["25"].status.state, seen["25"].workload.exit_code) == (WorkloadState.FAILED, None)


@pytest.mark.parametrize("version", ["24.11/0.0.41", "25.05/0.0.43"])
def test_ended_jobs_of_later_versions_read(data_dir: Path, version: str) -> None:
    path = data_dir / "slurm/rest" / version / "slurmdb-job-failed.json"
    (seen,) = list_ended_jobs(parse_history(path.read_bytes()), gpu_only=False)
    assert seen.status.state is WorkloadState.FAILED
    assert seen.workload.end_ms is not None
    assert seen.allocations == ()


def test_steps_nodes_and_cancellers_of_accounting_are_told() -> None:
    """What a step or another field knows of the end is kept with the job."""
    job = {
        "job_id": 7, "nodes": "gpu[01-02]", "failed_node": "gpu02", "kill_request_user": "",
        "state": {"current": ["FAILED"], "reason": "None"},
        "time": {"start": 1762942460, "end": 1762942462},
        "tres": {"allocated": [{"type": "gres", "name": "gpu:4090", "count": 4}]},
        "steps": [{"state": ["COMPLETED"]}, {"state": ["OUT_OF_MEMORY"]}],
    }  # fmt: skip
    cancelled = {
        **job, "job_id": 8, "failed_node": "", "kill_request_user": "root", "steps": "odd",
        "state": {"current": "CANCELLED"},
    }  # fmt: skip
    body = json.dumps({"jobs": [job, cancelled]}).encode()
    first, second = list_ended_jobs(parse_history(body))
    assert (first.workload.gpus_requested, first.workload.gpu_model) == (4, "4090")
    assert first.workload.attributes["scheduler_state"] == "OUT_OF_MEMORY"
    assert first.workload.attributes["failed_node"] == "gpu02"
    assert "cancelled_by" not in first.workload.attributes
    assert second.workload.attributes["cancelled_by"] == "root"
    assert "scheduler_state" not in second.workload.attributes


def test_history_is_imported_as_ended_workloads(data_dir: Path) -> None:
    path = data_dir / "slurm/22.05/sacct.json"
    with open_store(None) as store:
        summary = write_import(check_import(ImportRequest(workloads=path)), store)
        rows = store.workloads(WorkloadQuery(limit=100)).to_pylist()
    assert summary.workloads == len(rows) == 14
    assert {row["state"] for row in rows} <= {"failed", "cancelled", "completed", "timeout"}
    kept = {row["workload"]: row for row in rows}["1"]
    assert (kept["resource_type"], kept["gpus_requested"]) == ("A100-8", 16)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"jobs": 3}', b"{}", b"\xff"])
def test_what_is_no_history_is_said(body: bytes) -> None:
    with pytest.raises(Unavailable):
        parse_history(body)
    with pytest.raises(InvalidInput, match=r"jobs\.json"):
        read_history(body, "jobs.json")
