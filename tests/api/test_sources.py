"""Where the facts come from, over HTTP: the state of each source, reload, and /metrics."""

from __future__ import annotations

import jsonschema
from starlette.testclient import TestClient

from marey.api.application import build_app


def test_sources_are_described_as_the_document_says(client: TestClient) -> None:
    answer = client.get("/api/v1/sources")
    described = build_app().openapi()
    operation = described["paths"]["/api/v1/sources"]["get"]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    document = answer.json()
    jsonschema.validate(document, {**schema, "components": described["components"]})
    (row,) = document["rows"]
    assert set(row) == set(described["components"]["schemas"]["SourceDocument"]["properties"])
    assert row["values"] > 0
    assert row["rate_per_s"] > 0
    assert row["lag_ms"] >= 0
    assert document["reloads"] is False


def test_a_service_without_a_file_refuses_to_reload(client: TestClient) -> None:
    answer = client.post("/api/v1/sources/reload")
    assert answer.status_code == 409
    assert "configuration file" in answer.json()["detail"]


def test_a_page_from_elsewhere_cannot_reload(client: TestClient) -> None:
    answer = client.post("/api/v1/sources/reload", headers={"Origin": "http://evil.example"})
    assert answer.status_code == 403


def test_metrics_tell_of_every_source(client: TestClient) -> None:
    text = client.get("/metrics").text
    (row,) = client.get("/api/v1/sources").json()["rows"]
    for name, value in (
        ("up", 1),
        ("polls_total", row["polls"]),
        ("failures_total", 0),
        ("values_total", row["values_total"]),
        ("backoff_seconds", 0),
    ):
        assert f'marey_source_{name}{{source="small"}} {value}\n' in text
    for name in ("lag_seconds", "age_seconds", "last_success_timestamp_seconds", "poll_seconds"):
        assert f'marey_source_{name}{{source="small"}} ' in text
