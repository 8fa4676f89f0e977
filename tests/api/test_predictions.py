"""A prediction that is kept is scored when the trace of the changed run arrives."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.test_traces import LONGEST_WAIT_S, ROOT, convert, make_run, send

RUNS = Path(__file__).resolve().parents[3] / "shared" / "data" / "recordings" / "what-if"


@pytest.fixture(scope="module", autouse=True)
def traces(small: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Runs and predictions of this module in a folder of its own."""
    if not RUNS.is_dir():
        pytest.skip("real data not found through MAREY_DATA (recorded runs)")
    folder = tmp_path_factory.mktemp("traces")
    small.service.traces.root = folder
    small.service.replays.book.path = folder / "predictions.json"


def _send_run(client: TestClient, name: str) -> str:
    run = make_run(client, name=name)
    for file in sorted((RUNS / name).glob("*.gz")):
        assert send(client, run, file.name, file.read_bytes()).json()["state"] == "complete"
    assert convert(client, run)["state"] == "ready"
    return run


def _wait_until_measured(client: TestClient) -> dict[str, Any]:
    """Return the predictions once one is measured: a job in the background does that."""
    until = time.monotonic() + LONGEST_WAIT_S
    while time.monotonic() < until:
        listed: dict[str, Any] = client.get("/api/v1/predictions").json()
        if listed["measured"]:
            return listed
        time.sleep(0.2)
    raise AssertionError("nothing was scored")


@pytest.mark.slow
def test_the_arrival_of_the_changed_run_scores_the_prediction(client: TestClient) -> None:
    before = _send_run(client, "ddp-bucket25")
    body = {"changes": ["bucket=1MB"], "plain_step_ms": 520.65, "keep": True}
    made = client.post(f"{ROOT}/{before}/what-if", json=body).json()
    kept = client.get("/api/v1/predictions", params={"run": before}).json()
    assert kept["predictions"][0]["id"] == made["kept"]
    assert kept["measured"] == 0
    after = _send_run(client, "ddp-bucket1")
    scored = _wait_until_measured(client)
    assert scored["predictions"][0]["measured_run"] == after
    assert abs(scored["predictions"][0]["error"]) < 0.05
