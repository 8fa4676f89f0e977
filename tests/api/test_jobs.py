"""The table of jobs and the pages about people and machines, over HTTP."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import zstandard
from fastapi.testclient import TestClient

from marey.api.compression import Encoding
from marey.api.pages import WebApp
from marey.app.people.peer_groups import sum_peer_groups
from marey.app.queries.workspace import SizeEfficiency
from marey.model.protocols import WorkloadQuery
from marey.model.times import HOUR_MS
from marey.model.workloads import WorkloadState
from tests.api.conftest import SmallService


def test_jobs_are_sorted_filtered_and_counted_on_the_server(client: TestClient) -> None:
    everyone = client.get("/api/v1/jobs", params={"sort": "gpus"}).json()
    sizes = [row["gpus"] for row in everyone["rows"]]
    assert sizes == sorted(sizes, reverse=True)
    assert everyone["total"] == len(everyone["rows"]) == sum(everyone["by_state"].values())
    user = everyone["rows"][0]["user"]
    where = json.dumps({"field": "user", "op": "eq", "value": user})
    mine = client.get("/api/v1/jobs", params={"where": where}).json()
    assert {row["user"] for row in mine["rows"]} == {user}
    assert mine["total"] == sum(row["user"] == user for row in everyone["rows"])


def test_a_page_of_jobs_begins_where_it_was_asked_to(client: TestClient) -> None:
    whole = client.get("/api/v1/jobs", params={"sort": "job", "descending": False}).json()["rows"]
    query = {"sort": "job", "descending": False, "offset": 1, "limit": 1}
    page = client.get("/api/v1/jobs", params=query).json()
    assert [row["workload"] for row in page["rows"]] == [whole[1]["workload"]]
    assert page["total"] == len(whole)


def test_an_unknown_sort_is_refused_with_what_is_allowed(client: TestClient) -> None:
    answer = client.get("/api/v1/jobs", params={"sort": "colour"})
    assert answer.status_code == 422
    assert "colour" in answer.json()["detail"]


def test_jobs_come_as_csv_and_as_parquet(client: TestClient) -> None:
    rows = client.get("/api/v1/jobs").json()["rows"]
    text = client.get("/api/v1/jobs", params={"format": "csv"}).text
    assert text.startswith("workload,name,user")
    assert len(text.splitlines()) == len(rows) + 1
    table = pq.read_table(io.BytesIO(client.get("/api/v1/jobs?format=parquet").content))
    assert table["workload"].to_pylist() == [row["workload"] for row in rows]


def test_users_projects_hosts_and_gpus_have_pages(client: TestClient, small: SmallService) -> None:
    job = next(r for r in client.get("/api/v1/jobs").json()["rows"] if r["state"] == "running")
    page = client.get("/api/v1/entities/user", params={"name": job["user"]}).json()
    assert page["running"] >= 1
    assert job["workload"] in [row["workload"] for row in page["rows"]]
    assert {one["kind"] for one in page["related"]} <= {"project", "partition"}
    held = client.get(f"/api/v1/workloads/{job['workload']}").json()["allocations"][0]["gpu"]
    for kind, name in (("gpu", held), ("host", held.rpartition(":")[0])):
        found = client.get(f"/api/v1/entities/{kind}", params={"name": name}).json()
        assert job["workload"] in [row["workload"] for row in found["rows"]]
        # A GPU cannot be used for longer than the week, whatever the size of the jobs on it.
        gpus = 1 if kind == "gpu" else 8
        assert 0 < found["gpu_hours"] <= gpus * 7 * 24
        assert found["wasted_gpu_hours"] <= found["gpu_hours"]
        assert sum(found["states"].values()) == len(found["gpus"])
        assert held in [one["gpu"] for one in found["gpus"]]
        assert (found["host"], found["partitions"]) == (held.rpartition(":")[0], [job["partition"]])
        assert len(found["found"]) == min(found["findings"], 10)


def test_a_partition_counts_its_gpus_by_state(client: TestClient) -> None:
    job = next(r for r in client.get("/api/v1/jobs").json()["rows"] if r["partition"])
    page = client.get("/api/v1/entities/partition", params={"name": job["partition"]}).json()
    assert page["state"] == ""
    assert sum(page["states"].values()) > 0
    assert page["states"].get("allocated", 0) == page["gpus_now"]


def test_nobody_of_that_name_is_not_found_and_no_such_kind_is_refused(client: TestClient) -> None:
    assert client.get("/api/v1/entities/user", params={"name": "nobody-x"}).status_code == 404
    assert client.get("/api/v1/entities/planet", params={"name": "x"}).status_code == 422


def unpack(answer: Any) -> bytes:
    """The content, also in an encoding that this client does not undo by itself."""
    content = answer.content
    if (
        answer.headers["content-encoding"] == Encoding.ZSTD
        and content[:4] == zstandard.FRAME_HEADER
    ):
        return zstandard.ZstdDecompressor().decompress(content)
    return bytes(content)


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ("gzip", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip;q=1.0, zstd;q=0", "gzip"),
        ("zstd", "zstd"),
    ],
)
def test_json_travels_compressed_where_the_client_takes_it(
    client: TestClient, accepted: str, chosen: str
) -> None:
    packed = client.get("/api/v1/metrics", headers={"Accept-Encoding": accepted})
    plain = client.get("/api/v1/metrics", headers={"Accept-Encoding": "identity"})
    assert packed.headers["content-encoding"] == chosen
    assert packed.headers["vary"] == "Accept-Encoding"
    assert "content-encoding" not in plain.headers
    assert unpack(packed) == plain.content
    assert int(packed.headers["content-length"]) < len(plain.content) / 3


@pytest.mark.parametrize("encoding", Encoding)
def test_files_of_the_page_travel_compressed_and_are_kept(
    tmp_path: Path, encoding: Encoding
) -> None:
    script = b"export const answer = 42;\n" * 200
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "index-1a2b.js").write_bytes(script)
    # Without its lifespan, which files have not.
    page = TestClient(WebApp(tmp_path))
    wanted = {"Accept-Encoding": f"{encoding}, identity"}
    for _ in range(2):
        packed = page.get("/assets/index-1a2b.js", headers=wanted)
        assert unpack(packed) == script
        assert packed.headers["content-encoding"] == encoding
        assert packed.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert int(packed.headers["content-length"]) < len(script) / 10


def test_a_job_is_held_against_jobs_of_its_size_and_type(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, small: SmallService
) -> None:
    job = next(r for r in client.get("/api/v1/jobs").json()["rows"] if r["state"] == "running")
    assert job["peer_efficiency"] is None, "too few to compare with"
    alike = {(job["gpu_model"], job["gpus"]): SizeEfficiency(0.75, 40)}
    monkeypatch.setattr(small.service.workspace, "find_peer_groups", lambda _: alike)
    rows = client.get("/api/v1/jobs").json()["rows"]
    same = [r for r in rows if (r["gpu_model"], r["gpus"]) in alike and r["efficiency"] is not None]
    assert {(r["peer_efficiency"], r["peers"]) for r in same} == {(0.75, 40)}
    assert all(r["peer_efficiency"] is None for r in rows if r not in same)
    by_peers = client.get("/api/v1/jobs", params={"sort": "peers"}).json()["rows"]
    assert [r["peers"] for r in by_peers] == [40] * len(same) + [0] * (len(rows) - len(same))


def test_peer_groups_are_summed_by_gpu_hours(
    small: SmallService, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = small.service.workspace
    monkeypatch.setattr("marey.app.people.peer_groups.LEAST_JOBS", 1)
    running = workspace.workloads(WorkloadQuery(states=(WorkloadState.RUNNING,))).to_pylist()
    groups = sum_peer_groups(workspace, "default")
    assert {(row["gpu_model"], row["gpus_requested"]) for row in running} <= set(groups)
    assert {group.efficiency for group in groups.values()} == {1.0}, "nobody has wasted anything"
    row = running[0]
    hours = row["gpus_requested"] * (workspace.now_ms() - row["start_ms"]) / HOUR_MS
    monkeypatch.setattr(
        "marey.app.people.peer_groups.sum_wasted_by_workload",
        lambda _: {row["workload"]: hours / 4},
    )
    groups = sum_peer_groups(workspace, "default")
    group = groups[row["gpu_model"], row["gpus_requested"]]
    assert group.jobs == 1
    assert group.efficiency == pytest.approx(0.75, abs=0.001)


@pytest.mark.parametrize("descending", ["true", "false"])
@pytest.mark.parametrize(
    ("sort", "column"),
    [
        ("efficiency", "efficiency"),
        ("waste", "wasted_gpu_hours"),
        ("util", "util"),
        ("findings", "findings"),
        ("gpu_type", "gpu_model"),
    ],
)
def test_every_column_of_jobs_can_be_sorted_by(
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    sort: str,
    column: str,
    descending: str,
) -> None:
    rows = client.get("/api/v1/jobs").json()["rows"]
    wasteful = [row for row in rows if row["gpu_hours"]][:3]
    found = {row["workload"]: [None] * (n + 1) for n, row in enumerate(wasteful)}
    hours = {row["workload"]: row["gpu_hours"] * (n + 1) / 5 for n, row in enumerate(wasteful)}
    monkeypatch.setattr("marey.app.people.jobs.group_by_workload", lambda _: found)
    monkeypatch.setattr(
        "marey.app.people.jobs.sum_wasted_hours",
        lambda each, *_: next((hours[name] for name in found if found[name] is each), 0.0),
    )
    monkeypatch.setattr("marey.app.people.jobs.count_open", len)
    query = {"sort": sort, "descending": descending}
    table = client.get("/api/v1/jobs", params=query).json()
    values = [row[column] for row in table["rows"]]
    known = [value for value in values if value is not None]
    assert table["total"] == len(rows) == len(values)
    assert known == sorted(known, reverse=descending == "true")
    assert values[len(known) :] == [None] * (len(values) - len(known))
    assert known
