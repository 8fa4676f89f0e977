"""The waiting line over HTTP: order, reasons with the blocker, room, and what is asked before
submitting.
"""

from __future__ import annotations

import json

import pytest
from fastapi.testclient import TestClient

ROOT = "/api/v1"


def test_the_line_stands_in_the_schedulers_order_with_reasons(client: TestClient) -> None:
    document = client.get(f"{ROOT}/queue").json()
    assert [row["workload"] for row in document["rows"]] == ["3", "2"]
    first, second = document["rows"]
    assert first["verdict"] == "starts"
    assert second["verdict"] == "blocked"
    assert document["total"] == 2


def test_the_line_can_be_asked_for_one_user_only(client: TestClient) -> None:
    document = client.get(f"{ROOT}/queue", params={"user": "bob"}).json()
    assert [(row["workload"], row["position"]) for row in document["rows"]] == [("2", 2)]


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ({"field": "user", "op": "eq", "value": "bob"}, ["2"]),
        ({"field": "gpus", "op": "ge", "value": 1}, ["3", "2"]),
        # A field of every table of workloads, and one that only the line knows.
        ({"field": "gpus_requested", "op": "ge", "value": 8}, ["2"]),
        ({"field": "verdict", "op": "eq", "value": "starts"}, ["3"]),
        ({"not": {"field": "workload", "op": "in", "value": ["2"]}}, ["3"]),
        ({"field": "attributes.lr", "op": "missing"}, ["3", "2"]),
        ({"field": "state", "op": "eq", "value": "running"}, []),
    ],
)
def test_the_line_takes_the_predicates_of_every_other_table(
    client: TestClient, where: dict[str, object], kept: list[str]
) -> None:
    document = client.get(f"{ROOT}/queue", params={"where": json.dumps(where)}).json()
    assert [row["workload"] for row in document["rows"]] == kept
    assert (document["total"], document["waiting"]) == (len(kept), 2)


@pytest.mark.parametrize(
    "where", ["{", '{"field": "mood", "op": "eq", "value": 1}', '{"field": "user", "op": "like"}']
)
def test_a_filter_that_makes_no_sense_is_refused(client: TestClient, where: str) -> None:
    assert client.get(f"{ROOT}/queue", params={"where": where}).status_code == 422


def test_positions_are_those_in_the_whole_line_whatever_the_filter(client: TestClient) -> None:
    where = json.dumps({"field": "user", "op": "eq", "value": "bob"})
    document = client.get(f"{ROOT}/queue", params={"where": where, "limit": 1}).json()
    assert [row["position"] for row in document["rows"]] == [2]


def test_the_blocking_host_and_workload_are_named(client: TestClient) -> None:
    document = client.get(f"{ROOT}/queue/2").json()
    sentence = document["sentences"][0]
    assert sentence.startswith("Needs 4 GPUs on each of 2 hosts; ")
    assert sentence.endswith("the next to have enough is n1, no time limit.")
    assert "1" in document["blocking_workloads"]
    assert document["ahead"]["jobs"] == 1
    assert document["start"]["method"].startswith("simulation")


def test_a_workload_that_does_not_wait_is_said_to_run_or_to_be_unknown(client: TestClient) -> None:
    running = client.get(f"{ROOT}/queue/1")
    assert running.status_code == 422
    assert "does not wait: it is running" in running.json()["detail"]
    assert client.get(f"{ROOT}/queue/nobody").status_code == 404


def test_what_is_free_counts_whole_hosts(client: TestClient) -> None:
    room = client.get(f"{ROOT}/queue-free").json()["rows"][0]
    assert room["gpus"] == 8
    assert room["free"] + room["out_of_service"] <= 4
    assert room["largest_on_one_host"] <= room["free"]


def test_a_request_that_never_fits_is_told_so_and_smaller_ones_are_offered(
    client: TestClient,
) -> None:
    document = client.get(f"{ROOT}/queue-ask", params={"gpus": 16, "time": "1h"}).json()
    assert document["asked"]["p50_s"] is None
    assert any(row["gpus"] < 16 for row in document["alternatives"])


def test_a_wrong_request_is_refused(client: TestClient) -> None:
    assert client.get(f"{ROOT}/queue-ask", params={"gpus": 0}).status_code == 422
    wrong = client.get(f"{ROOT}/queue-ask", params={"gpus": 1, "time": "soon"})
    assert wrong.status_code == 422
    assert client.get(f"{ROOT}/queue-ask", params={"gpus": 1, "type": "X9"}).status_code == 422


def test_use_is_told_against_share(client: TestClient) -> None:
    document = client.get(f"{ROOT}/queue-fairness").json()
    assert {row["project"] for row in document["rows"]} >= {"p1"}
    assert document["shares_from"] == "equal"
    assert document["sentence"] == "Equal shares: none configured, none from the scheduler."


def test_without_scored_forecasts_the_record_says_so(client: TestClient) -> None:
    record = client.get(f"{ROOT}/queue-record").json()
    assert "Not enough history" in record["sentence"]
    assert record["method"].startswith("simulation")


def test_the_trend_of_free_room_is_a_list_in_order_of_time(client: TestClient) -> None:
    times = [row["time_ms"] for row in client.get(f"{ROOT}/queue-trend").json()["rows"]]
    assert times == sorted(times)


def test_a_policy_is_not_replayed_on_too_little_history(client: TestClient) -> None:
    answer = client.get(f"{ROOT}/queue-whatif", params={"partition": "gpu", "order": "fifo"})
    assert answer.status_code == 422
    assert client.get(f"{ROOT}/queue-whatif", params={"days": 0}).status_code == 422
    wrong = client.get(f"{ROOT}/queue-whatif", params={"partition": "nowhere"})
    assert wrong.status_code == 422
    other = client.get(f"{ROOT}/queue-whatif", params={"partition": "gpu", "format": "pdf"})
    assert other.status_code == 422


def test_a_site_without_repeated_runs_says_so_instead_of_predicting(client: TestClient) -> None:
    document = client.get(f"{ROOT}/queue-performance").json()
    assert not document["gain_claimed"]
    assert "Not enough history" in document["sentence"]
    few = client.get(f"{ROOT}/queue-runtime", params={"workload": "1"}).json()
    assert few["p50_s"] is None
    assert "Not enough history" in few["sentence"]
    assert client.get(f"{ROOT}/queue-runtime", params={"workload": "nobody"}).status_code == 404


def test_too_far_back_in_line_is_said_and_no_start_is_promised(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("queue.waiting.simulated_starts", "app.queue.queue_queries"):
        monkeypatch.setattr(f"marey.{module}.LINE_LIMIT", 1)
    line = client.get(f"{ROOT}/queue").json()
    assert line["method"].endswith("; of the first 1 waiting jobs")
    first, second = (client.get(f"{ROOT}/queue/{n}").json()["start"] for n in ("3", "2"))
    assert first["p50_s"] is not None
    assert second["p50_s"] is None
    assert second["sentence"].startswith("No start forecast: too many jobs are ahead.")
