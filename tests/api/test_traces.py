"""Runs of traces over HTTP: sent in pieces, converted, looked at, deleted; and what goes wrong."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from marey.app.traces.received_files import ReceivedFiles
from marey.cli import main
from marey.trace.views.cells import HEADER

ROOT = "/api/v1/traces"
PP = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces" / "torch-cpu" / "pp"
LONGEST_WAIT_S = 600


@pytest.fixture(scope="module", autouse=True)
def traces(small: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Runs of this module in a folder of its own."""
    small.service.traces.root = tmp_path_factory.mktemp("traces")


def make_run(client: TestClient, **wish: str) -> str:
    """Return the id of a new run."""
    answer = client.post(ROOT, json={"name": "a run", **wish})
    assert answer.status_code == 201
    return str(answer.json()["id"])


def send(client: TestClient, run: str, name: str, content: bytes) -> Any:
    """Send a whole file."""
    return client.put(
        f"{ROOT}/{run}/files", params={"file": name, "bytes": len(content)}, content=content
    )


def convert(client: TestClient, run: str) -> dict[str, Any]:
    """Convert a run and return its summary when that is over."""
    assert client.post(f"{ROOT}/{run}/convert").status_code == 200
    return wait_for_end(client, run)


def wait_for_end(client: TestClient, run: str) -> dict[str, Any]:
    """Return a run's summary when nothing is being done with it any more."""
    until = time.monotonic() + LONGEST_WAIT_S
    while time.monotonic() < until:
        summary: dict[str, Any] = client.get(f"{ROOT}/{run}").json()["run"]
        if summary["state"] not in ("waiting", "converting"):
            return summary
        time.sleep(0.2)
    raise AssertionError("the conversion did not end")


def test_an_upload_goes_on_where_it_broke_off(client: TestClient) -> None:
    run = make_run(client)
    content = b"x" * 1000
    parameters: dict[str, Any] = {"file": "rank0.json", "bytes": 1000}
    first = client.put(f"{ROOT}/{run}/files", params=parameters, content=content[:300]).json()
    assert (first["state"], first["received"]) == ("partial", 300)
    refused = client.put(
        f"{ROOT}/{run}/files", params={**parameters, "offset": 100}, content=content[100:]
    )
    assert (refused.status_code, refused.json()["code"]) == (409, "wrong_offset")
    assert client.post(f"{ROOT}/{run}/convert").status_code == 409
    rest = client.put(
        f"{ROOT}/{run}/files", params={**parameters, "offset": 300}, content=content[300:]
    )
    assert rest.json()["state"] == "complete"
    (listed,) = client.get(f"{ROOT}/{run}/files").json()
    assert (listed["file"], listed["received"]) == ("rank0.json", 1000)
    assert client.get(f"{ROOT}/{run}/files", params={"file": "rank0.json"}).json() == [listed]
    assert client.get(f"{ROOT}/{run}/files", params={"file": "rank1.json"}).json() == []
    assert client.delete(f"{ROOT}/{run}/files", params={"file": "rank0.json"}).json() == []


def test_more_than_was_announced_is_refused(client: TestClient) -> None:
    run = make_run(client)
    parameters: dict[str, Any] = {"file": "a.json", "bytes": 3}
    answer = client.put(f"{ROOT}/{run}/files", params=parameters, content=b"12345")
    assert answer.status_code == 422
    limit = client.get(f"{ROOT}/limits").json()["file_bytes"]
    answer = client.put(
        f"{ROOT}/{run}/files", params={"file": "b", "bytes": limit + 1}, content=b""
    )
    assert answer.status_code == 413


def test_a_run_that_holds_no_trace_fails_and_says_why(client: TestClient) -> None:
    run = make_run(client)
    send(client, run, "rank0.json", b'{"traceEvents": [{"ph": "X", "na')
    summary = convert(client, run)
    assert summary["state"] == "failed"
    assert "given: rank0.json: " in summary["error"]
    answer = client.get(f"{ROOT}/{run}/rows")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_converted")


@pytest.mark.slow
def test_files_are_called_as_they_were_when_they_were_sent(client: TestClient) -> None:
    run = make_run(client)
    whole = make_kineto(0)
    send(client, run, "node a/rank 0.json", whole)
    send(client, run, "node b/notes [1].txt", b"no trace")
    assert convert(client, run)["state"] == "ready"
    notes = client.get(f"{ROOT}/{run}").json()["notes"]
    assert any(note.startswith("node b/notes [1].txt") for note in notes), notes


@pytest.mark.slow
@pytest.mark.parametrize("is_known", [True, False])
def test_a_recording_belongs_to_the_workload_that_it_names_if_there_is_one(
    client: TestClient, is_known: bool
) -> None:
    known = client.get("/api/v1/workloads?limit=1").json()["rows"][0]["workload"]
    named = known if is_known else "nobody knows it"
    run = make_run(client)
    send(client, run, "rank0.json", make_kineto(0, labels={"workload": named}))
    assert convert(client, run)["workload"] == (known if is_known else "")
    of_workload = client.get(ROOT, params={"workload": known}).json()["runs"]
    assert (run in {one["id"] for one in of_workload}) == is_known
    assert client.delete(f"{ROOT}/{run}").status_code == 204


def test_a_conversion_is_cancelled_and_begun_again(client: TestClient) -> None:
    run = make_run(client)
    send(client, run, "rank0.json", make_kineto(0))
    begun = client.post(f"{ROOT}/{run}/convert").json()
    # A process was only just started: it is far from done.
    assert begun["state"] in ("waiting", "converting")
    assert client.post(f"{ROOT}/{run}/cancel").status_code == 200
    assert wait_for_end(client, run)["state"] == "cancelled"
    assert client.get(f"{ROOT}/{run}/rows").status_code == 404
    assert convert(client, run)["state"] == "ready"


def make_kineto(rank: int, labels: dict[str, str] | None = None) -> bytes:
    """Return a small trace of one rank, with what `marey.record` writes into it."""
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 5}
    events = [{**kernel, "ts": 1 + 10 * n, "args": {"stream": 7}} for n in range(20)]
    about = {"rank": rank, "world_size": 1}
    record = {"version": 1, "rank": rank, "world_size": 1, "labels": labels or {}}
    document = {"distributedInfo": about, "mareyRecord": record, "traceEvents": events}
    return json.dumps(document).encode()


def test_a_run_is_attached_by_hand_and_only_to_what_exists(client: TestClient) -> None:
    run = make_run(client)
    assert client.patch(f"{ROOT}/{run}", json={"workload": "nobody"}).status_code == 404
    known = client.get("/api/v1/workloads?limit=1").json()["rows"][0]["workload"]
    changed = client.patch(f"{ROOT}/{run}", json={"workload": known, "name": "mine"}).json()
    assert (changed["workload"], changed["name"]) == (known, "mine")
    listed = client.get(ROOT, params={"workload": known}).json()["runs"]
    assert [entry["id"] for entry in listed] == [run]
    assert client.patch(f"{ROOT}/{run}", json={"workload": ""}).json()["workload"] == ""


def test_unknown_and_deleted_runs_are_not_found(client: TestClient) -> None:
    run = make_run(client)
    assert client.delete(f"{ROOT}/{run}").status_code == 204
    for path in ("", "/files", "/rows", "/cells", "/bands", "/flow", "/verdicts", "/steps"):
        answer = client.get(f"{ROOT}/{run}{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert client.get(f"{ROOT}/..%2f..%2fetc").status_code in (404, 422)


def test_runs_in_allowed_folders_are_listed_and_never_deleted(
    client: TestClient, small: Any, tmp_path: Path
) -> None:
    (tmp_path / "job7").mkdir()
    (tmp_path / "job7" / "rank0.json").write_text("{}")
    (tmp_path / "outside").symlink_to("/etc")
    library = small.service.traces
    before = library.settings
    library.settings = type(before)(folders=(str(tmp_path),))
    try:
        found = [r for r in client.get(ROOT).json()["runs"] if r["origin"] == "folder"]
        assert [(r["name"], r["state"]) for r in found] == [("job7", "found")]
        client.delete(f"{ROOT}/{found[0]['id']}")
        assert (tmp_path / "job7" / "rank0.json").exists()
    finally:
        library.settings = before


@pytest.fixture(scope="module")
def pipeline(client: TestClient, traces: None) -> str:
    """A real pipeline run, sent and converted; its id."""
    if not PP.is_dir():
        pytest.skip("real data not found through MAREY_DATA (recorded runs)")
    run = make_run(client)
    for file in sorted(PP.glob("*.gz")):
        assert send(client, run, file.name, file.read_bytes()).json()["state"] == "complete"
    assert convert(client, run)["state"] == "ready"
    return run


@pytest.mark.slow
def test_a_real_run_answers_every_question(client: TestClient, pipeline: str) -> None:
    detail = client.get(f"{ROOT}/{pipeline}").json()
    assert (detail["run"]["ranks"], detail["run"]["steps"]) == (4, 4)
    assert detail["parallelism"]["stages"] == 4
    assert client.get(f"{ROOT}/{pipeline}/verdicts").json()["verdicts"]
    for table in (
        *("steps", "breakdown", "collectives", "waits", "communication", "communication/nodes"),
        *("memory", "kernels", "operators", "critical-path", "bands", "spans", "rows"),
    ):
        answer = client.get(f"{ROOT}/{pipeline}/{table}")
        assert answer.status_code == 200, table
        assert answer.json()["rows"], table
    assert client.get(f"{ROOT}/{pipeline}/steps", params={"where": "colour=1"}).status_code == 422
    sorted_ms = client.get(f"{ROOT}/{pipeline}/kernels", params={"sort": "-max_us", "limit": 3})
    values = [row["max_us"] for row in sorted_ms.json()["rows"]]
    assert values == sorted(values, reverse=True)


@pytest.mark.slow
def test_one_selection_means_the_same_here_and_on_the_command_line(
    client: TestClient, pipeline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = "rank=1,3 and step=2"
    rows = client.get(f"{ROOT}/{pipeline}/steps", params={"where": where}).json()["rows"]
    assert main(["trace", "steps", str(PP), "--where", where, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)["steps"]
    both = [{(row["rank"], row["step"]) for row in answer} for answer in (rows, printed)]
    assert both == [{(1, 2), (3, 2)}] * 2


@pytest.mark.slow
def test_the_flow_has_edges_by_tensors_where_an_execution_trace_lies_beside(
    client: TestClient, pipeline: str
) -> None:
    flow = client.get(f"{ROOT}/{pipeline}/flow", params={"stage": 0}).json()
    evidence = {edge["evidence"] for edge in flow["edges"]}
    assert {"tensor", "order"} <= evidence
    assert {node["stage"] for node in flow["nodes"]} == {0}


def test_cells_say_what_they_show(client: TestClient, pipeline: str) -> None:
    answer = client.get(f"{ROOT}/{pipeline}/cells", params={"width": 50, "ranks": "3,99,0"})
    head = np.frombuffer(answer.content[:40], HEADER)[0]
    assert (head["rows"], head["columns"], head["ranks"]) == (3, 50, 3)
    planes = np.frombuffer(answer.content[40 + 4 * 4 :], np.uint8).reshape(2, 3, 50)
    assert planes[0][0].any()
    assert not planes[0][1].any()
    empty = client.get(f"{ROOT}/{pipeline}/cells", params={"from": 5, "to": 5})
    assert empty.status_code == 422


@pytest.mark.parametrize(
    ("path", "question", "said"),
    [
        ("cells", {"first": 3, "last": 1}, "positions 3 to 1"),
        ("cells", {"first": 4000}, "positions 0-4"),
        ("cells", {"ranks": "3-1"}, "ranks has '3-1'"),
        ("bands", {"ranks": "0-999999"}, "ranks names more than"),
        ("difference", {"with": "RUN", "steps": "x"}, "steps has 'x'"),
        ("difference", {"with": "RUN", "with_steps": "4-3"}, "with_steps has '4-3'"),
    ],
)
def test_what_no_row_can_be_is_refused_by_its_name(
    client: TestClient, pipeline: str, path: str, question: dict[str, object], said: str
) -> None:
    asked = {key: pipeline if value == "RUN" else value for key, value in question.items()}
    answer = client.get(f"{ROOT}/{pipeline}/{path}", params=asked)
    assert answer.status_code == 422
    assert said in answer.json()["detail"]


@pytest.mark.slow
def test_a_run_compares_with_itself(client: TestClient, pipeline: str) -> None:
    question = {"with": pipeline, "steps": "3", "with_steps": "4"}
    found = client.get(f"{ROOT}/{pipeline}/difference", params=question).json()
    assert (found["a_steps"], found["b_steps"]) == ([3], [4])
    assert found["changes"]


def test_a_run_is_compared_with_others_by_its_steps(client: TestClient, pipeline: str) -> None:
    named = {"run": [f"base=trace:{pipeline}", f"new=trace:{pipeline}"]}
    compared = client.get("/api/v1/comparison", params=named).json()
    steps = client.get(f"{ROOT}/{pipeline}").json()["steps"]
    assert [run["label"] for run in compared["runs"]] == ["base", "new"]
    step_ms = compared["groups"][0]["figures"]["step_ms"]["mean"]
    durations = [step["dur_ns"] / 1e6 for step in steps]
    assert min(durations) <= step_ms <= max(durations)
    lost = client.get("/api/v1/comparison", params={"run": "trace:nowhere"})
    assert lost.status_code == 404


def test_files_sent_at_once_all_arrive_and_none_is_listed_for_another(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(client)
    listed = []
    monkeypatch.setattr(
        ReceivedFiles, "list_files", lambda files: listed.append(files.folder) or []
    )
    names = [f"rank{rank}.json" for rank in range(24)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda name: send(client, run, name, b"{}"), names))
    assert [answer.json()["state"] for answer in answers] == ["complete"] * 24
    # Not for the audit either, which asks what was there before and after.
    assert listed == []
