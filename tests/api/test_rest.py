"""The REST API: every list of the contract, tables both ways, errors as problem documents."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from marey.api.replies import ARROW, SNAPSHOT
from marey.live import wire_format
from marey.model.faults import FaultKind
from marey.model.metrics import catalogue
from marey.model.times import format_time
from tests.api.conftest import TICKS, SmallService
from tests.app.small_cluster import GPUS, START_MS, TICK_MS, samples
from tests.waiting import until


def get(client: TestClient, path: str, **parameters: Any) -> Any:
    answer = client.get(f"/api/v1{path}", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


def arrow(client: TestClient, path: str, **parameters: Any) -> pa.Table:
    answer = client.get(f"/api/v1{path}", params=parameters, headers={"Accept": ARROW})
    assert answer.headers["content-type"] == ARROW
    return pa.ipc.open_stream(answer.content).read_all()


def problem(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document["status"] == status
    assert set(document) >= {"type", "title", "status", "code", "detail"}
    return document


def test_clusters_say_their_time_and_span(client: TestClient) -> None:
    (cluster,) = get(client, "/clusters")
    assert cluster["cluster"] == "default"
    assert cluster["first_ms"] == START_MS
    assert cluster["last_ms"] == START_MS + (TICKS - 1) * TICK_MS


def test_the_catalogue_states_the_live_resolution(client: TestClient) -> None:
    metrics = {metric["metric"]: metric for metric in get(client, "/metrics")}
    assert list(metrics) == list(catalogue())
    assert metrics["sm_active"]["live"] == {"offset": 0.0, "step": 0.5, "levels": 200}
    assert metrics["energy"]["live"] is None


def test_fault_kinds_are_listed_with_their_meaning(client: TestClient) -> None:
    kinds = [fault["kind"] for fault in get(client, "/faults")]
    assert set(kinds) == {kind.value for kind in FaultKind}
    assert "healthy" in kinds


def test_workloads_come_in_pages(client: TestClient) -> None:
    first = get(client, "/workloads", limit=2)
    second = get(client, "/workloads", limit=2, cursor=first["next"])
    ids = [row["workload"] for row in first["rows"] + second["rows"]]
    assert ids == ["3", "2", "1"]
    assert second["next"] is None
    assert second["rows"][0]["attributes"] == {"lr": "0.1"}


def test_workloads_are_filtered_by_state_and_predicate(client: TestClient) -> None:
    where = json.dumps({"field": "user", "op": "eq", "value": "ada"})
    rows = get(client, "/workloads", state="pending", where=where)["rows"]
    assert [row["workload"] for row in rows] == ["3"]


def test_ended_stands_beside_other_states(client: TestClient) -> None:
    everything = [row["workload"] for row in get(client, "/workloads")["rows"]]
    rows = get(client, "/workloads", state="pending,running,ended")["rows"]
    assert [row["workload"] for row in rows] == everything
    refused = problem(client.get("/api/v1/workloads?state=asleep"), 422)
    assert "ended" in refused["detail"]


def test_one_workload_has_its_intervals(client: TestClient) -> None:
    workload = get(client, "/workloads/1")
    assert workload["state"] == "running"
    assert len(workload["allocations"]) == 4


def test_series_of_a_workload_are_those_of_its_gpus(client: TestClient) -> None:
    document = get(client, "/series", workload="1", metrics="util,power", points=1000)
    assert document["approximate"] is False
    assert {row["entity"] for row in document["rows"]} == {"n1:0", "n1:1", "n1:2", "n1:3"}
    assert len(document["rows"]) == 4 * 2 * TICKS
    values = {
        row["time_ms"]: row["value"]
        for row in document["rows"]
        if (row["entity"], row["metric"]) == ("n1:2", "util")
    }
    for tick in range(TICKS):
        expected = samples(START_MS + tick * TICK_MS).columns["util"][2]
        assert values[START_MS + tick * TICK_MS] == pytest.approx(expected)


def test_arrow_and_json_carry_the_same_table(client: TestClient) -> None:
    rows = get(client, "/series", gpus="n1:0,n2:3", metrics="util")["rows"]
    table = arrow(client, "/series", gpus="n1:0,n2:3", metrics="util")
    assert table.to_pylist() == rows
    assert table.schema.metadata[b"approximate"] == b"false"


def test_downsampling_keeps_extremes(client: TestClient) -> None:
    everything = get(client, "/series", gpus="n1:0", metrics="power", points=10_000)["rows"]
    fewer = get(client, "/series", gpus="n1:0", metrics="power", points=8)["rows"]
    assert len(fewer) <= 8
    for pick in (min, max):
        assert pick(r["value"] for r in fewer) == pick(r["value"] for r in everything)


def test_derived_shares_follow_from_the_gpus_limit(client: TestClient) -> None:
    power = get(client, "/series", gpus="n1:1", metrics="power")["rows"]
    share = get(client, "/series", gpus="n1:1", metrics="power_share")["rows"]
    assert len(share) == TICKS
    assert [r["value"] for r in share] == pytest.approx(
        [r["value"] / 10.0 for r in power], abs=1e-3
    )


def test_histograms_count_every_sample_also_of_derived_metrics(client: TestClient) -> None:
    document = get(client, "/histograms", workload="1", metrics="util,mem_share", bins=10)
    assert len(document["rows"]) == 8
    for row in document["rows"]:
        assert sum(row["counts"]) + row["missing"] == TICKS
        assert (row["low"], row["high"]) == pytest.approx((0.0, 100.0))


def test_statistics_are_exact(client: TestClient) -> None:
    document = get(
        client, "/statistics", gpus="n2:1", metrics="temp,power_share", quantiles="0,0.5,1"
    )
    rows = {row["metric"]: row for row in document["rows"]}
    values = [samples(START_MS + t * TICK_MS).columns["temp"][5] for t in range(TICKS)]
    assert rows["temp"]["count"] == TICKS
    assert rows["temp"]["mean"] == pytest.approx(np.mean(values))
    assert rows["temp"]["quantiles"] == pytest.approx(np.quantile(values, [0, 0.5, 1]), abs=1.0)
    power = [samples(START_MS + t * TICK_MS).columns["power"][5] / 10.0 for t in range(TICKS)]
    assert rows["power_share"]["max"] == pytest.approx(max(power))


def test_a_span_narrows_the_samples(client: TestClient) -> None:
    begin, end = format_time(START_MS + 2 * TICK_MS), format_time(START_MS + 5 * TICK_MS)
    rows = get(client, "/series", gpus="n1:0", **{"from": begin, "to": end})["rows"]
    assert [row["time_ms"] for row in rows] == [START_MS + t * TICK_MS for t in (2, 3, 4)]


def test_progress_is_taken_from_scripts_and_given_back(client: TestClient) -> None:
    single = {"workload": "1", "step": 10, "throughput": 5.0, "loss": 2.5, "unit": "tokens"}
    assert client.post("/api/v1/progress", json=single).json() == {"kept": 1}
    moment = format_time(START_MS + 60_000)
    several = [{"workload": "1", "step": n, "time": moment} for n in (11, 12)]
    assert client.post("/api/v1/progress", json=several).status_code == 202
    rows = get(client, "/progress", workload="1")["rows"]
    assert {row["step"] for row in rows} >= {1, 10}


def test_progress_told_twice_is_kept_once(client: TestClient) -> None:
    report = {"workload": "1", "step": 77, "time": START_MS / 1000 + 90}
    for _ in range(2):
        client.post("/api/v1/progress", json=report)
    rows = get(client, "/progress", workload="1")["rows"]
    assert [row["step"] for row in rows].count(77) == 1


@pytest.mark.parametrize(
    "body",
    [
        '{"workload": "1", "loss": NaN}',
        '{"workload": "1", "loss": 1e999}',
        '{"workload": "1", "throughput": -Infinity}',
        '{"workload": "1", "step": -1}',
        '{"workload": "1", "color": "red"}',
        '{"workload": "1", "time": "yesterday"}',
        "[" * 5000,
        '"\\ud800"',
        "{",
    ],
)
def test_nonsense_progress_is_refused_with_a_reason(client: TestClient, body: str) -> None:
    answer = client.post(
        "/api/v1/progress", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code in (400, 422)
    assert answer.json()["detail"]


def test_a_name_of_a_million_characters_is_refused_not_swallowed(client: TestClient) -> None:
    long = "x" * 990_000
    document = problem(client.post("/api/v1/progress", json={"workload": long}), 422)
    assert len(document["detail"]) < 1000
    problem(client.post("/api/v1/progress", json={"workload": "x" * 1_100_000}), 413)
    problem(client.get("/api/v1/search", params={"q": "x" * 50_000}), 422)


def test_progress_of_a_workload_nobody_knows_is_refused(client: TestClient) -> None:
    assert (
        "nobody"
        in problem(client.post("/api/v1/progress", json={"workload": "nobody"}), 404)["detail"]
    )


def test_events_come_in_order_of_time(client: TestClient) -> None:
    rows = get(client, "/events")["rows"]
    assert rows[0]["kind"] == "xid"
    # Hostile text is data: it is given back as it came, never as markup.
    assert rows[0]["text"] == "<b>xid</b>"


def test_events_can_be_asked_for_by_kind(client: TestClient) -> None:
    rows = get(client, "/events")["rows"]
    kinds = {row["kind"] for row in rows}
    for kind in kinds:
        chosen = get(client, f"/events?kinds={kind}")["rows"]
        assert chosen == [row for row in rows if row["kind"] == kind]
    wrong = client.get("/api/v1/events?kinds=xid,nonsense")
    assert wrong.status_code == 422
    assert "nonsense" in wrong.json()["detail"]
    assert "node_down" in wrong.json()["detail"]


def test_views_are_saved_listed_replaced_and_deleted(client: TestClient) -> None:
    document = {"filter": {"field": "user", "op": "eq", "value": "ada"}, "größe": 3}
    name = "Ada's view ✓"
    assert client.put(f"/api/v1/views/{name}", json=document).json() == document
    assert get(client, f"/views/{name}") == document
    assert client.put(f"/api/v1/views/{name}", json={"b": 2}).json() == {"b": 2}
    assert name in get(client, "/views")
    assert client.delete(f"/api/v1/views/{name}").status_code == 204
    problem(client.get(f"/api/v1/views/{name}"), 404)
    problem(client.delete(f"/api/v1/views/{name}"), 404)


def test_a_view_may_not_be_too_large_nor_hold_nan(client: TestClient) -> None:
    problem(client.put("/api/v1/views/a", json={"a": "x" * 300_000}), 413)
    headers = {"Content-Type": "application/json"}
    problem(client.put("/api/v1/views/a", content='{"a": NaN}', headers=headers), 422)
    problem(client.put("/api/v1/views/a", content='{"a": "\\ud800"}', headers=headers), 422)


def test_search_finds_workloads_people_hosts_and_gpus(client: TestClient) -> None:
    def kinds(text: str) -> set[tuple[str, str]]:
        return {(hit["kind"], hit["id"]) for hit in get(client, "/search", q=text)}

    assert ("user", "ada") in kinds("ad")
    assert ("workload", "1") in kinds("TRAIN")
    assert ("host", "n1") in kinds("n1")
    assert ("gpu", "n2:3") in kinds("n2:3")
    assert kinds("%_'\";--") == set()


def test_the_summary_counts_gpus_and_waiting_work(client: TestClient) -> None:
    row = get(client, "/summary")["rows"][-1]
    # Two of the four that nobody holds are in use all the same: unclaimed, neither idle nor broken.
    assert (row["gpus"], row["allocated"], row["idle"], row["broken"]) == (8, 4, 2, 0)
    assert (row["running"], row["waiting"], row["waiting_gpus"]) == (1, 2, 10)
    assert 0 <= row["util"] <= 100


def test_sources_say_how_they_are(client: TestClient) -> None:
    (source,) = get(client, "/sources")["rows"]
    assert source["name"] == "small"
    assert source["state"] == "fresh"


def test_the_shared_table_is_offered_now(client: TestClient, small: SmallService) -> None:
    document = get(client, "/cluster", metrics="util,power_share")
    units = {unit["gpu"]: unit for unit in document["units"]}
    assert len(units) == len(GPUS)
    expected = samples(START_MS + (TICKS - 1) * TICK_MS).columns["util"]
    assert units["n1:3"]["util"] == expected[3]
    assert [w["id"] for w in document["workloads"]] == ["1", "2", "3"]
    table = arrow(client, "/cluster", table="workloads")
    assert table["queue_position"].to_pylist() == [None, 2, 1]


def test_the_shared_table_is_offered_for_any_past_moment(client: TestClient) -> None:
    moment = START_MS + 10 * TICK_MS
    at = format_time(moment)
    units = {u["gpu"]: u for u in get(client, "/cluster", at=at, metrics="util")["units"]}
    assert units["n1:3"]["util"] == samples(moment).columns["util"][3]
    answer = client.get("/api/v1/cluster", params={"at": at}, headers={"Accept": SNAPSHOT})
    header, parts = wire_format.split_message(answer.content)
    assert header["type"] == "snapshot"
    assert wire_format.read_table(parts["units"]).num_rows == len(GPUS)


def test_before_there_was_a_cluster_the_table_is_empty(client: TestClient) -> None:
    document = get(client, "/cluster", at="2001-01-01")
    assert document["units"] == []


@pytest.mark.parametrize("path", ["/cluster", "/verdicts"])
@pytest.mark.parametrize(
    "at",
    ["", "yesterday", "NaN", "1e99", "2026-13-01", "0", "-5", "9999-01-01", "2026-11-16T25:00Z"],
)
def test_a_moment_that_is_none_is_refused_in_one_sentence(
    client: TestClient, path: str, at: str
) -> None:
    told = problem(client.get(f"/api/v1{path}", params={"at": at}), 422)
    assert "is not a time; write ISO-8601" in told["detail"]


def test_a_server_without_simulation_says_so(client: TestClient) -> None:
    answer = client.get("/api/v1/simulation")
    assert (answer.status_code, answer.json()) == (200, None)
    problem(client.put("/api/v1/simulation", json={"policy": "fifo"}), 404)


def test_background_work_can_be_watched_and_cancelled(
    client: TestClient, small: SmallService
) -> None:
    reached = threading.Event()

    def work(job: Any) -> str:
        for step in range(1_000_000):
            job.progress(step, 1_000_000)
            reached.set()
            threading.Event().wait(0.001)
        return "never"

    job = small.service.background.start("counting", work)
    assert reached.wait(60)
    assert get(client, f"/tasks/{job.id}")["state"] == "running"
    client.delete(f"/api/v1/tasks/{job.id}")
    until(lambda: job.over, "the end of the work")
    assert get(client, f"/tasks/{job.id}")["state"] == "cancelled"
    problem(client.get("/api/v1/tasks/99"), 404)


def test_health_and_own_metrics(client: TestClient) -> None:
    assert client.get("/healthz").json()["status"] == "ok"
    text = client.get("/metrics").text
    assert "# TYPE marey_ticks_total counter" in text
    assert f"marey_ticks_total {TICKS}" in text
    assert 'marey_source_up{source="small"} 1' in text
    assert "marey_resident_bytes" in text


def test_every_operation_has_an_id_a_summary_and_described_parameters(client: TestClient) -> None:
    document = client.get("/api/v1/openapi.json").json()
    ids = []
    for path, methods in document["paths"].items():
        for operation in methods.values():
            ids.append(operation["operationId"])
            assert operation["summary"], path
            for parameter in operation.get("parameters", []):
                if parameter["name"] != "task":
                    assert parameter.get("description"), (path, parameter["name"])
    assert len(ids) == len(set(ids)) >= 20
