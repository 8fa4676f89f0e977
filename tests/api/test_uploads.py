"""Files sent to a server: bounded, atomic, under harmless names; traces and imports from them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from marey.app.history.uploads import Uploads
from marey.model.errors import InvalidInput, NotFound, TooLarge
from tests.cli.processes import demo_arguments, end, owner_headers, run, serving
from tests.waiting import PATIENCE_S, until

SAMPLES = "time,host,gpu,util\n1767225600,n1,0,50\n1767225660,n1,0,60\n"
WORKLOADS = "id,start,gpus\n7,2026-01-01,n1:0\n"


def put(uploads: Uploads, owner: str, name: str, content: bytes) -> None:
    with uploads.receiving(owner, name) as receiver:
        receiver.write(content)


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "a/b/../c", "..", "rank_3.json.gz", "ü" * 200]
)
def test_hostile_names_stay_inside_the_folder(tmp_path: Path, name: str) -> None:
    uploads = Uploads(tmp_path / "files")
    put(uploads, "trace:1", name, b"x")
    found = uploads.file("trace:1", name)
    assert found.path.read_bytes() == b"x"
    assert found.path.resolve().is_relative_to((tmp_path / "files").resolve())
    named = uploads.as_named("trace:1", name)
    assert named.resolve().is_relative_to((tmp_path / "files").resolve())
    assert [file.name for file in uploads.files("trace:1")] == [name]


def test_a_failed_upload_leaves_nothing(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "files", file_limit=10)
    with pytest.raises(TooLarge, match="10 bytes"):
        put(uploads, "trace:1", "big", b"x" * 11)
    assert uploads.files("trace:1") == []
    assert [p for p in uploads.folder("trace:1").iterdir() if p.name != "index.json"] == []


def test_all_uploads_together_are_bounded(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "files", file_limit=10, total_limit=15)
    put(uploads, "trace:1", "a", b"x" * 10)
    with pytest.raises(TooLarge, match="5 bytes"):
        put(uploads, "trace:2", "b", b"x" * 6)


def test_unknown_files_and_empty_names_are_said(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "files")
    with pytest.raises(NotFound):
        uploads.remove("trace:1")
    with pytest.raises(NotFound):
        uploads.file("trace:1", "a")
    with pytest.raises(InvalidInput):
        put(uploads, "trace:1", "", b"")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("server")
    store = folder / "site.duckdb"
    with serving(*demo_arguments(store, "--speed", 1, hours=0.2)) as (process, url):
        yield url, store
        end(process)


def finished(url: str, task: dict[str, Any]) -> dict[str, Any]:
    def over() -> bool:
        task.update(ask("GET", f"{url}/api/v1/tasks/{task['id']}").json())
        return task["state"] not in ("waiting", "running")

    until(over, "the end of the task")
    return task


def ask(method: str, url: str, **about: Any) -> httpx.Response:
    """One request, which may take its time on a busy machine."""
    owner = owner_headers(url.partition("/api/")[0])
    headers = {**owner, **about.pop("headers", {})}
    return httpx.request(method, url, timeout=PATIENCE_S, headers=headers, **about)


@pytest.mark.slow
def test_import_into_a_held_store_goes_through_the_server(
    server: tuple[str, Path], tmp_path: Path
) -> None:
    url, store = server
    samples, workloads = tmp_path / "s.csv", tmp_path / "w.csv"
    samples.write_text(SAMPLES)
    workloads.write_text(WORKLOADS)
    words = ["import", "--samples", str(samples), "--workloads", str(workloads), "--json"]
    held = run(*words, "--store", str(store))
    assert held.returncode == 0, held.stderr
    free = run(*words, "--store", str(tmp_path / "own.duckdb"))
    ours, theirs = json.loads(held.stdout), json.loads(free.stdout)
    assert ours.pop("store") != theirs.pop("store")
    assert ours == theirs
    assert ask("GET", f"{url}/api/v1/workloads/7").json()["state"] == "running"

    samples.write_text(SAMPLES + "never,n1,0,1\n")
    held = run(*words, "--store", str(store))
    free = run(*words, "--store", str(tmp_path / "own.duckdb"))
    assert held.returncode == free.returncode == 2
    assert "s.csv, line 4: 'never' is not a time" in held.stderr
    assert held.stderr == free.stderr


@pytest.mark.slow
def test_traces_are_attached_to_a_workload_and_analysed(server: tuple[str, Path]) -> None:
    url, _ = server
    rows = ask("GET", f"{url}/api/v1/workloads?limit=1").json()["rows"]
    owner = f"trace:{rows[0]['workload']}"
    for rank in range(2):
        trace = {
            "distributedInfo": {"rank": rank, "world_size": 2, "backend": "nccl"},
            "traceEvents": [
                {"ph": "X", "cat": "kernel", "name": "gemm", "pid": rank, "tid": 7,
                 "ts": 10 + 20 * i, "dur": 15, "args": {"device": 0, "stream": 7, "correlation": i}}
                for i in range(20)
            ],
        }  # fmt: skip
        answer = ask(
            "PUT",
            f"{url}/api/v1/uploads",
            params={"owner": owner, "file": f"rank{rank}.json"},
            content=json.dumps(trace),
        )
        assert answer.status_code == 200, answer.text
    listed = ask("GET", f"{url}/api/v1/uploads", params={"owner": owner}).json()
    assert [entry["file"] for entry in listed] == ["rank0.json", "rank1.json"]
    name = owner.partition(":")[2]
    task = ask("POST", f"{url}/api/v1/traces/report", params={"workload": name}).json()
    done = finished(url, task)
    assert done["state"] == "done", done["error"]
    assert [rank["rank"] for rank in done["result"]["ranks"]] == [0, 1]
    gone = ask("DELETE", f"{url}/api/v1/uploads", params={"owner": owner})
    assert gone.json() == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PUT", "/uploads?owner=nobody&file=x", 422),
        ("PUT", "/uploads?owner=trace:no-such-workload&file=x", 404),
        ("POST", "/traces/report?workload=no-such-workload", 404),
        ("DELETE", "/uploads?owner=trace:none", 404),
    ],
)
def test_bad_requests_are_problems(
    server: tuple[str, Path], method: str, path: str, status: int
) -> None:
    answer = ask(method, f"{server[0]}/api/v1{path}", content=b"")
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("application/problem+json")
