"""Whatever goes wrong is answered with a problem document that says what is allowed."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from marey.app.queries.server_client import make_error
from marey.model.errors import Unavailable
from tests.api.conftest import SmallService
from tests.api.test_rest import problem


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/nothing", 404),
        ("/api/v1/workloads/none", 404),
        ("/api/v1/series", 422),
        ("/api/v1/series?gpus=n1:0&metrics=utl", 422),
        ("/api/v1/series?gpus=n1:0&workload=1", 422),
        ("/api/v1/series?gpus=here", 422),
        ("/api/v1/series?gpus=n1:0&points=3", 422),
        ("/api/v1/series?gpus=n1:0&from=later", 422),
        ("/api/v1/series?gpus=n1:0&from=2026-01-02&to=2026-01-01", 422),
        ("/api/v1/workloads?where={", 422),
        ("/api/v1/workloads?state=asleep", 422),
        ("/api/v1/workloads?cluster=none", 404),
        ("/api/v1/cluster?cluster=none", 404),
        ("/api/v1/histograms?gpus=n1:0&bins=0", 422),
        ("/api/v1/statistics?gpus=n1:0&quantiles=2", 422),
        ("/api/v1/statistics?gpus=n1:0&quantiles=nan", 422),
        ("/missing.js", 404),
    ],
)
def test_errors_are_problem_documents(client: TestClient, path: str, status: int) -> None:
    code = {404: "not_found", 422: "invalid_input"}[status]
    assert problem(client.get(path), status)["code"] == code


def test_the_code_of_an_error_reaches_the_client_and_comes_back_as_the_same_error() -> None:
    again = make_error(503, "The token expired.", "unauthorized")
    assert isinstance(again, Unavailable)
    assert again.code == "unauthorized"
    assert make_error(404, "There is none.").code == "not_found"


def test_a_wrong_method_is_a_problem_document_too(client: TestClient) -> None:
    found = problem(client.post("/api/v1/clusters"), 405)
    assert "GET" in found["detail"]
    assert found["code"] == "method_not_allowed"


def test_a_fault_of_ours_is_a_problem_document_without_a_traceback(
    client: TestClient, small: SmallService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(type(small.service), "sources", broken)
    found = problem(client.get("/api/v1/sources"), 500)
    assert "secret" not in found["detail"]
    assert found["code"] == "internal_server_error"


def test_an_unknown_metric_is_answered_with_the_nearest(client: TestClient) -> None:
    answer = client.get("/api/v1/series?gpus=n1:0&metrics=utl")
    assert "did you mean 'util'" in answer.json()["detail"]
