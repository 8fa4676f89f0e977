"""Call graphs over HTTP: profiles are sent, and every view of them is a typed document."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

HOSTILE = "<img src=x onerror=alert(1)>"


def stacks(slow: int = 0) -> str:
    """Collapsed stacks of a program that calls itself and has a hostile name."""
    lines = {
        "main;load;read": 100 + slow,
        "main;solve;step;solve;step": 300,
        "main;solve;step": 200,
        f"main;{HOSTILE}": 50,
    }
    return "".join(f"{path} {value}\n" for path, value in lines.items())


@pytest.fixture(scope="module")
def sent(client: TestClient) -> TestClient:
    for run in range(4):
        answer = client.put(
            "/api/v1/uploads",
            params={"owner": "callgraph:nightly", "file": f"run{run}.txt"},
            content=stacks(400 if run == 2 else run),
        )
        assert answer.status_code == 200
    for run in range(4):
        client.put(
            "/api/v1/uploads",
            params={"owner": "callgraph:after", "file": f"run{run}.txt"},
            content=stacks(90 + run),
        )
    return client


def ask(client: TestClient, what: str, status: int = 200, **query: Any) -> Any:
    answer = client.get(
        f"/api/v1/callgraphs/{what}", params={"source": "callgraph:nightly", **query}
    )
    assert answer.status_code == status, answer.text
    return answer.json()


def test_sources_are_listed(sent: TestClient) -> None:
    listed = sent.get("/api/v1/callgraphs/sources").json()
    assert {row["source"]: row["files"] for row in listed} == {
        "callgraph:after": 4,
        "callgraph:nightly": 4,
    }


def test_an_ensemble_names_the_run_that_stands_out(sent: TestClient) -> None:
    document = ask(sent, "ensemble")
    assert document["suspects"][0]["path"] == ["main", "load", "read"]
    assert document["suspects"][0]["run"].startswith("run2")
    assert len(document["profiles"]) == 4


def test_a_sankey_marks_loops_and_the_targets_bin(sent: TestClient) -> None:
    document = ask(sent, "sankey", by="name", target=2, share=0)
    names = [node["name"] for node in document["nodes"]]
    assert [flow for flow in document["flows"] if flow["loop"]]
    read = document["nodes"][names.index("read")]["inclusive"]
    assert read["histogram"]["target_bin"] == 19
    assert read["of_target"] == 500
    assert sum(read["histogram"]["counts"]) == 4


def test_supernodes_beyond_the_cap_are_folded_and_split(sent: TestClient) -> None:
    folded = ask(sent, "sankey", by="name", cap=2)
    assert [node["name"] for node in folded["nodes"]][-1] == "(rest)"
    split = ask(sent, "sankey", by="name", split_by_caller="solve", share=0)
    assert {"main › solve", "step › solve"} <= {node["name"] for node in split["nodes"]}


def test_a_tree_keeps_the_heaviest_and_counts_the_rest(sent: TestClient) -> None:
    whole = ask(sent, "tree", target=2)
    assert whole["depth"][0] == 0
    assert whole["names"][whole["name"][0]] == "main"
    assert HOSTILE in whole["names"]
    assert whole["of_target"][0] == 1050
    part = ask(sent, "tree", limit=2)
    assert len(part["depth"]) == 2
    assert sum(part["hidden"]) == whole["nodes"] - 2


def test_profiles_are_mapped_and_chosen(sent: TestClient) -> None:
    points = ask(sent, "map")["profiles"]
    odd = points[2]["cluster"]
    assert [p["cluster"] == odd for p in points] == [False, False, True, False]
    assert len(ask(sent, "ensemble", profiles="0-1")["profiles"]) == 2


def test_a_query_gives_values_by_profile_and_a_portable_predicate(sent: TestClient) -> None:
    found = ask(sent, "query", where=json.dumps({"field": "name", "op": "eq", "value": "read"}))
    assert found["inclusive"]["by_profile"] == [100, 101, 500, 103]
    again = ask(sent, "query", where=found["query"])
    assert again["nodes"] == found["nodes"]
    other = sent.get(
        "/api/v1/callgraphs/query",
        params={"source": "callgraph:after", "where": found["query"]},
    ).json()
    assert [n["path"] for n in other["nodes"]] == [n["path"] for n in found["nodes"]]


def test_a_difference_states_its_test(sent: TestClient) -> None:
    found = ask(sent, "difference", **{"with": "callgraph:after"}, profiles="0,1,3")
    assert [change["path"] for change in found["slower"]] == [["main", "load", "read"]]
    assert found["slower"][0]["n"] == 3
    assert "Benjamini-Hochberg" in found["test"]
    two = ask(sent, "difference", **{"with": "callgraph:after"}, profiles="0,1")
    assert two["test"].startswith("not tested: n = 2")
    assert two["slower"][0]["p"] is None


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ({"source": "callgraph:none"}, 404, "no uploaded files"),
        ({"source": "/etc/passwd"}, 422, "is no source"),
        ({"profiles": "9"}, 422, "Unknown profile 9"),
        ({"profiles": "x"}, 422, "no number of a profile"),
        ({"target": "7"}, 422, "Unknown profile 7"),
    ],
)
def test_what_cannot_be_answered_is_said(
    sent: TestClient, query: dict[str, str], status: int, words: str
) -> None:
    assert words in ask(sent, "sankey", status, **query)["detail"]


def test_call_sites_scale_over_a_parameter_or_the_answer_says_why_not(sent: TestClient) -> None:
    nothing = ask(sent, "scaling")
    assert nothing["parameters"] == []
    assert nothing["reason"].startswith("No parameter has 3 different values")
    for batch in (8, 16, 32):
        sent.put(
            "/api/v1/uploads",
            params={"owner": "callgraph:sizes", "file": f"batch={batch}.txt"},
            content=stacks(10 * batch - 100),
        )
    document = ask(sent, "scaling", source="callgraph:sizes")
    assert (document["parameter"], document["values"]) == ("batch", [8, 16, 32])
    trends = {tuple(node["path"]): node for node in document["nodes"]}
    assert trends["main", "load", "read"]["exponent"] == pytest.approx(1.0)
    assert trends["main", "solve"]["trend"] == "no clear trend"
    problem = ask(sent, "scaling", 422, source="callgraph:sizes", parameter="colour")
    assert "allowed: ranks, batch" in problem["detail"]
