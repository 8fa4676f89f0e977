"""Training progress of workloads compared over HTTP."""

from __future__ import annotations

from fastapi.testclient import TestClient

from marey.model.workloads import Progress
from tests.api.conftest import SmallService


def test_workloads_are_compared_by_what_they_reported(
    client: TestClient, small: SmallService
) -> None:
    listed = client.get("/api/v1/workloads").json()["rows"]
    workload = listed[0]["workload"] if "workload" in listed[0] else listed[0]["id"]
    now = small.clock.now_ms()
    reports = [
        Progress(workload, now - 1000 * (40 - n), n + 1, 64.0, "samples/s", 4.0 / (n + 1))
        for n in range(40)
    ]
    small.service.report_progress("default", reports)
    answer = client.get("/api/v1/comparison", params={"run": f"base={workload}", "loss": 0.5})
    assert answer.status_code == 200, answer.text
    document = answer.json()
    assert document["baseline"] == "base"
    figures = document["groups"][0]["figures"]
    assert figures["throughput"]["mean"] == 64.0
    assert document["test"].startswith("not tested")
    assert document["runs"][0]["curve"]["loss"][0] == 4.0
    missing = client.get("/api/v1/comparison", params={"run": "nobody"})
    assert missing.status_code == 404
