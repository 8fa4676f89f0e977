"""The parts of a diagnosis over the API: documents, bounds, and answers to difficult workloads."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.test_rest import get, problem

PARTS = ("", "/clusters", "/band", "/outliers", "/pairs", "/peers")


def test_the_diagnosis_has_life_events_and_progress(client: TestClient) -> None:
    found = get(client, "/diagnosis", workload="1")
    assert found["workload"]["gpus"] == ["n1:0", "n1:1", "n1:2", "n1:3"]
    assert found["life"]
    assert {span["phase"] for span in found["life"]} <= {
        "waiting", "initialisation", "training", "evaluation", "checkpoint", "pause", "stall",
    }  # fmt: skip
    assert isinstance(found["events"], list)
    assert isinstance(found["progress"], list)


@pytest.mark.parametrize("method", ["histogram", "euclidean", "correlation"])
def test_clusters_hold_every_gpu_once_with_its_plots(client: TestClient, method: str) -> None:
    found = get(client, "/diagnosis/clusters", workload="1", method=method, clusters=2)
    listed = [gpu for cluster in found["clusters"] for gpu in cluster["gpus"]]
    assert sorted(listed) == sorted(gpu["gpu"] for gpu in found["gpus"])
    assert len(found["tree"]["leaves"]) == 4
    for gpu in found["gpus"]:
        assert len(gpu["counts"]) == 32
        assert len(gpu["line"]) == len(found["line_time_ms"])
    assert found["unit"] == "%"


def test_a_narrower_window_has_fewer_samples(client: TestClient) -> None:
    whole = get(client, "/diagnosis/clusters", workload="1")
    middle = (whole["from_ms"] + whole["to_ms"]) / 2000
    half = get(client, "/diagnosis/clusters", workload="1", **{"from": middle})
    assert half["moments"] < whole["moments"]


def test_bands_enclose_the_median(client: TestClient) -> None:
    found = get(client, "/diagnosis/band", workload="1", metrics="util,power", points=10)
    for band in found["bands"]:
        # Ten bins, each with its least and its greatest.
        assert len(band["time_ms"]) <= 20
        for low, median, high in zip(band["low"], band["median"], band["high"], strict=True):
            assert low <= median <= high


def test_outliers_say_which_gpu_and_when(client: TestClient) -> None:
    found = get(client, "/diagnosis/outliers", workload="1", significance=0.2, robust=False)
    assert found["samples"] == len(found["points"]["x"])
    assert len(found["outliers"]["gpu"]) == found["outlier_count"]
    assert all(score > found["limit"] for score in found["outliers"]["score"])
    assert sum(row["outliers"] for row in found["gpus"]) == found["outlier_count"]


def test_peers_are_of_the_same_size(client: TestClient) -> None:
    found = get(client, "/diagnosis/peers", workload="1")
    assert found["same"]["gpus"] == 4
    assert found["metrics"][0]["metric"] == "util"
    assert found["metrics"][0]["own"] is not None


@pytest.mark.parametrize("part", PARTS)
def test_an_unknown_workload_is_named(client: TestClient, part: str) -> None:
    answer = client.get(f"/api/v1/diagnosis{part}", params={"workload": "no<b>such"})
    assert "no<b>such" in problem(answer, 404)["detail"]


def test_a_workload_that_waits_gets_a_verdict(client: TestClient) -> None:
    document = client.get("/api/v1/diagnosis", params={"workload": "2"}).json()
    assert document["workload"]["state"] == "pending"
    assert document["findings"][0]["kind"] == "waiting"


@pytest.mark.parametrize(
    ("part", "empty"), [("clusters", "gpus"), ("band", "bands"), ("pairs", "pairs")]
)
def test_a_workload_that_never_ran_has_nothing_to_draw(
    client: TestClient, part: str, empty: str
) -> None:
    answer = client.get(f"/api/v1/diagnosis/{part}", params={"workload": "2"})
    assert answer.status_code == 200
    assert answer.json()[empty] == []


def test_outliers_of_a_workload_without_samples_are_refused_with_the_reason(
    client: TestClient,
) -> None:
    answer = client.get("/api/v1/diagnosis/outliers", params={"workload": "2"})
    assert "no samples" in problem(answer, 422)["detail"]


@pytest.mark.parametrize(
    ("part", "wrong", "said"),
    [
        ("/clusters", {"metric": "nonsense"}, "nonsense"),
        ("/clusters", {"clusters": 1000}, "clusters"),
        ("/clusters", {"method": "magic"}, "method"),
        ("/outliers", {"x": "util", "y": "util"}, "two different"),
        ("/outliers", {"significance": 3}, "significance"),
        ("/clusters", {"metric": "host_cpu"}, "host"),
        ("/band", {"metrics": "xid"}, "counted"),
    ],
)
def test_wrong_values_are_refused_in_words(
    client: TestClient, part: str, wrong: dict[str, Any], said: str
) -> None:
    answer = client.get(f"/api/v1/diagnosis{part}", params={"workload": "1", **wrong})
    assert said in problem(answer, 422)["detail"]


def test_a_report_comes_as_a_page_as_markdown_and_within_json(client: TestClient) -> None:
    page = client.get("/api/v1/diagnosis/report", params={"workload": "1"})
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "sandbox" in page.headers["content-security-policy"]
    # Drawn by the web app's code where it was built, in words where it was not.
    assert 'data-picture="multiples"' in page.text or "was not built" in page.text
    text = client.get(
        "/api/v1/diagnosis/report", params={"workload": "1", "format": "markdown"}
    ).text
    assert text.startswith("# Diagnosis of ")
    headers = {"Accept": "application/json"}
    answer = client.get("/api/v1/diagnosis/report", params={"workload": "1"}, headers=headers)
    assert answer.json()["text"].startswith("<!doctype html>")


def test_lines_come_at_the_moments_of_the_band(client: TestClient) -> None:
    asked = {"workload": "1", "metrics": "util,power", "points": 10}
    band = get(client, "/diagnosis/band", **asked)
    found = get(client, "/diagnosis/lines", gpus="n1:0,n1:2", **asked)
    assert found["bin_ms"] == band["bin_ms"] == 60_000
    assert found["time_ms"] == band["bands"][0]["time_ms"]
    assert [row["gpu"] for row in found["metrics"][0]["lines"]] == ["n1:0", "n1:2"]
    for line in found["metrics"][0]["lines"]:
        for value, low, high in zip(
            line["value"], band["bands"][0]["low"], band["bands"][0]["high"], strict=True
        ):
            assert low <= value <= high


def test_what_is_appended_is_what_the_whole_would_have_said(client: TestClient) -> None:
    asked = {"workload": "1", "gpus": "n1:1", "points": 10}
    whole = get(client, "/diagnosis/lines", **asked)
    last = whole["time_ms"][-2]
    part = get(client, "/diagnosis/lines", **asked, **{"from": last / 1000}, bin=whole["bin_ms"])
    assert part["time_ms"] == whole["time_ms"][-2:]
    assert (
        part["metrics"][0]["lines"][0]["value"] == (whole["metrics"][0]["lines"][0]["value"][-2:])
    )


@pytest.mark.parametrize(
    ("gpus", "said"),
    [("n2:0", "no GPU of workload"), ("n1:0,,", "empty name"), ("n1:0," * 65 + "n1:1", "allowed")],
)
def test_lines_of_strange_gpus_are_refused(client: TestClient, gpus: str, said: str) -> None:
    # A window that no question before has read: the store is asked, not what is kept.
    answer = client.get(
        "/api/v1/diagnosis/lines", params={"workload": "1", "gpus": gpus, "metrics": "temp"}
    )
    assert answer.status_code in (413, 422)
    assert said in answer.json()["detail"]


def test_two_windows_of_a_workload_are_compared_on_one_axis(client: TestClient) -> None:
    whole = get(client, "/diagnosis/clusters", workload="1")
    middle = (whole["from_ms"] + whole["to_ms"]) / 2000
    found = get(client, "/diagnosis/comparison", workload="1", other_to=middle, **{"from": middle})
    assert found["before"]["window"]["to"] <= found["after"]["window"]["from"]
    assert len(found["distribution"]["before"]) == len(found["distribution"]["after"]) == 32
    assert sum(found["distribution"]["after"]) == pytest.approx(1.0, abs=1e-3)
    assert found["changed"]
    changes = [abs(row["change"] or 0) for row in found["metrics"]]
    assert changes == sorted(changes, reverse=True)


def test_comparing_a_thing_with_itself_or_with_nothing_is_refused(client: TestClient) -> None:
    answer = client.get("/api/v1/diagnosis/comparison", params={"workload": "1"})
    assert "Both sides are the same" in problem(answer, 422)["detail"]
    answer = client.get("/api/v1/diagnosis/comparison", params={"workload": "1", "other": "<x>"})
    assert "<x>" in problem(answer, 404)["detail"]
