"""What an editor of rules and the waste page rely on in the answers."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from marey.model.times import DAY_MS, HOUR_MS
from tests.api.conftest import SmallService


def test_a_wrong_rule_is_answered_with_its_place_in_characters(client: TestClient) -> None:
    text = "name = '😀' and utl mean < 5%"
    answer = client.get("/api/v1/rules-check", params={"when": text})
    assert answer.status_code == 422
    place = answer.json()["place"]
    assert text[place["start"] : place["end"]] == "utl"
    assert (place["line"], place["column"]) == (1, text.index("utl") + 1)
    assert "did you mean 'util'" in place["reason"]


def test_another_problem_has_no_place(client: TestClient) -> None:
    assert "place" not in client.get("/api/v1/rules/nothing").json()


def test_the_language_names_kinds_of_fault_and_severities(client: TestClient) -> None:
    language = client.get("/api/v1/rules-language").json()
    assert "stalled" in language["faults"]
    assert language["severities"] == ["info", "warning", "critical"]
    assert "any_node" in language["reaches"]


@pytest.mark.parametrize(("since", "length_ms"), [("", 7 * DAY_MS), ("24h", 24 * HOUR_MS)])
def test_waste_says_which_period_it_summed(client: TestClient, since: str, length_ms: int) -> None:
    found = client.get("/api/v1/waste", params={"since": since}).json()
    assert found["to_ms"] - found["from_ms"] == length_ms
    assert client.get("/api/v1/waste", params={"since": "soon"}).status_code == 422
    table = client.get("/api/v1/waste", params={"since": since}, headers={"Accept": "text/csv"})
    assert table.headers["content-type"].startswith("text/csv")
    assert table.text == found["csv"]
    assert table.text.startswith("user,gpu_hours,")


def test_a_rule_on_a_metric_without_samples_judges_nobody_and_says_so(
    client: TestClient, small: SmallService
) -> None:
    saved = client.put("/api/v1/rules/deaf", json={"when": "not fan mean < 5%"})
    assert saved.status_code == 200
    small.service.rule_watch.feed("default", small.clock.now_ms())
    small.service.rule_watch.reload()
    small.tick(8)
    while small.service.rule_watch._queue:
        small.service.rule_watch.take(small.service.rule_watch._queue.popleft())
    rows = {row["rule"]: row for row in client.get("/api/v1/verdicts").json()["rules"]}
    assert rows["deaf"]["not_judged"] == ["1"]
    assert rows["deaf"]["life"]["workloads"] == rows["deaf"]["now"]["workloads"] == []


@pytest.mark.parametrize(
    ("parameter", "value", "nearest"),
    [("metrics", "util,utl", "util"), ("statistics", "mean,medain", "median")],
)
def test_an_unknown_word_in_life_statistics_is_refused_with_the_nearest(
    client: TestClient, parameter: str, value: str, nearest: str
) -> None:
    answer = client.get("/api/v1/life-statistics", params={"workload": "1", parameter: value})
    assert answer.status_code == 422
    assert f"did you mean '{nearest}'" in answer.json()["detail"]


def test_a_rule_says_what_is_in_force_where(client: TestClient) -> None:
    rule = {
        "when": "util mean < $low",
        "thresholds": {"low": "15%"},
        "override": [{"partition": "debug", "thresholds": {"low": "5%"}}],
    }
    assert client.put("/api/v1/rules/mine", json=rule).status_code == 200
    document = client.get("/api/v1/rules/mine").json()
    assert document["in_force"] == "util mean < 15%"
    assert document["in_force_where"] == [
        {"partition": "debug", "project": None, "when": "util mean < 5%"}
    ]
