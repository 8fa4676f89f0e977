"""Every JSON answer is a typed document: declared by its route, described, and kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
import msgspec
import pytest
from fastapi.testclient import TestClient

from marey.api.answers import TypedRoute, component_schemas
from marey.api.application import ROUTERS, build_app
from marey.app.collect.simulated_cluster import SimulatedCluster, open_simulated
from marey.app.settings.source_settings import SimulatedSettings
from marey.model.times import format_time
from marey.store.embedded.embedded_store import open_store
from tests.api.conftest import SmallService
from tests.app.small_cluster import START_MS, TICK_MS
from tests.waiting import until

DOCUMENT: dict[str, Any] = build_app().openapi()
SCHEMAS: dict[str, dict[str, Any]] = DOCUMENT["components"]["schemas"]
DIAGNOSED = {"workload": "1"}
UPLOAD = {"owner": "trace:1", "file": "rank0.json"}
RULE = {
    "when": "util mean < $low",
    "title": "Idle",
    "fault": "stalled",
    "thresholds": {"low": "99%"},
    "override": [
        {"partition": "debug", "thresholds": {"low": "5%"}},
        {"project": "x", "enabled": False},
    ],
    "open_after": "1m",
}

# Path → the queries that it is asked with; names in braces are filled from what is there.
CASES: dict[str, list[dict[str, Any]]] = {
    "/clusters": [{}],
    "/metrics": [{}],
    "/faults": [{}],
    "/summary": [{}],
    "/search": [{"q": "n1"}, {"q": "n1:0"}, {"q": "ada"}],
    "/cluster": [{}, {"metrics": "util,power_share"}, {"at": "{past}"}],
    "/simulation": [{}],
    "/tasks": [{}],
    "/tasks/{task}": [{}],
    "/sources": [{}],
    "/conflicts": [{}],
    "/workloads": [{}, {"limit": 1}],
    "/entities/{kind}": [{"name": "ada"}],
    "/capacity": [{}, {"points": 2}],
    "/links/{kind}": [{"name": "ada"}],
    "/digest": [{}, {"kind": "user", "name": "ada"}],
    "/workloads/{workload}": [{}],
    "/progress": [DIAGNOSED],
    "/events": [{}],
    "/series": [DIAGNOSED],
    "/histograms": [DIAGNOSED],
    "/statistics": [DIAGNOSED],
    "/diagnosis": [DIAGNOSED, DIAGNOSED | {"to": "2000-01-01T00:00:00Z", "from": "1999-01-01"}],
    "/diagnosis/progress": [DIAGNOSED],
    "/diagnosis/clusters": [DIAGNOSED, DIAGNOSED | {"metric": "fan"}],
    "/diagnosis/band": [DIAGNOSED | {"metrics": "util,power"}],
    "/diagnosis/lines": [DIAGNOSED | {"gpus": "n1:0,n1:1"}],
    "/diagnosis/outliers": [DIAGNOSED | {"significance": 0.2, "robust": False}],
    "/diagnosis/pairs": [DIAGNOSED],
    "/diagnosis/comparison": [DIAGNOSED | {"other_to": "{past}"}],
    "/diagnosis/peers": [DIAGNOSED],
    "/diagnosis/report": [DIAGNOSED, DIAGNOSED | {"format": "markdown"}],
    "/rules": [{}],
    "/rules-language": [{}],
    "/rules-check": [{"when": "util mean < 5% and not (gpus > 3 or name = 'x')"}],
    "/rules-test": [{"when": "util mean < 99%"}, {"when": "gpus > 100"}],
    "/rules-backtest": [{"when": "util mean < 99%"}],
    "/rules/{rule}": [{}],
    "/verdicts": [{}, {"at": "{now}"}],
    "/life-statistics": [DIAGNOSED],
    "/findings": [{}],
    "/findings/{finding}": [{}],
    "/mutes": [{}],
    "/waste": [{}],
    "/notifications": [{}],
    "/uploads": [{"owner": "trace:1"}],
    "/views": [{}],
    "/views/{name}": [{}],
    "/views-list": [{}],
    "/my-notifications": [{}],
    "/me": [{}],
    "/tokens": [{}],
    "/people": [{}],
    "/audit": [{}, {"kind": "change", "limit": 2}],
}


@pytest.fixture(scope="module")
def names(client: TestClient, small: SmallService) -> dict[str, str]:
    """Something of every kind, and what it is called."""
    small.service.simulation = _simulated()
    assert client.put("/api/v1/rules/mine", json=RULE).status_code == 200
    _judge(small)
    assert client.put("/api/v1/views/mine", json=VIEW).status_code == 200
    assert client.put("/api/v1/uploads", params=UPLOAD, content=b"{}").status_code == 200
    token = {"name": "mine", "scopes": ["read"], "life": "1h"}
    assert client.post("/api/v1/tokens", json=token).status_code == 201
    mute = {"scope": "user", "value": "ada", "why": "known"}
    assert client.post("/api/v1/mutes", json=mute).status_code == 200
    finding = client.get("/api/v1/findings").json()["rows"][0]["id"]
    said = {"text": "seen"}
    assert client.post(f"/api/v1/findings/{finding}/comments", json=said).status_code == 200
    task = client.post("/api/v1/backtests", json={"rule": "mine"}).json()["id"]
    until(lambda: client.get(f"/api/v1/tasks/{task}").json()["state"] == "done", "a back-test")
    return {
        "task": task,
        "kind": "user",
        "workload": "1",
        "rule": "mine",
        "finding": finding,
        "name": "mine",
        "past": format_time(small.clock.now_ms() - 20 * TICK_MS),
        "now": format_time(small.clock.now_ms()),
    }


def _simulated() -> SimulatedCluster:
    settings = SimulatedSettings(gpus=8, history_hours=0, until_ms=START_MS)
    return open_simulated(settings, open_store(None), START_MS)


def _judge(small: SmallService) -> None:
    """Let the rules judge what was collected, here and now instead of in their thread."""
    watch = small.service.rule_watch
    watch.feed("default", small.clock.now_ms())
    watch.reload()
    small.tick(8)
    while watch._queue:
        watch.take(watch._queue.popleft())


def answers(client: TestClient, names: dict[str, str]) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Every case of every path with the server's answer."""
    for path, queries in CASES.items():
        for query in queries:
            asked = {key: str(value).format(**names) for key, value in query.items()}
            url = f"/api/v1{path.format(**names)}"
            answer = client.get(url, params=asked, headers={"Accept": "application/json"})
            assert answer.status_code == 200, (path, asked, answer.text)
            yield path, asked, answer.json()


# What other programs decide the form of: the only objects without a type of their own.
# Parts whose routes need runs, queues or files of their own, and have tests of their own.
TESTED_APART = (
    "/traces",
    "/callgraphs",
    "/queue",
    "/replay",
    "/predictions",
    "/comparison",
    "/jobs",
    "/sign-in",
)
VIEW = {"version": 1, "layers": [{"by": "host", "layout": "pack"}]}
OPEN = {
    # Conditions are predicates.
    "SavedView.filter",
    "SourceDocument.details",
    "RuleLanguage.schema",
    "CallGraphSelection.query",
    "JobDocument.result",
    "AuditEntry.before",
    "AuditEntry.after",
}


def answers_described() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Operation, status and JSON content of every good answer in the document."""
    for methods in DOCUMENT["paths"].values():
        for operation in methods.values():
            for status, response in operation["responses"].items():
                content = response.get("content", {})
                if status.startswith("2") and status != "204" and not has_other_form_only(content):
                    yield operation["operationId"], status, content.get("application/json", {})


def has_other_form_only(content: dict[str, Any]) -> bool:
    """Whether an answer is a picture or a page, never JSON."""
    return bool(content) and "application/json" not in content


def is_typed(schema: dict[str, Any]) -> bool:
    """Whether a schema says what is inside, all the way down to its components."""
    if "$ref" in schema:
        return schema["$ref"].removeprefix("#/components/schemas/") in SCHEMAS
    if "anyOf" in schema:
        return all(is_typed(one) for one in schema["anyOf"])
    if "enum" in schema or "prefixItems" in schema:
        return True
    if schema.get("type") == "array":
        return is_typed(schema.get("items", {}))
    if schema.get("type") == "object":
        inside = [*schema.get("properties", {}).values(), schema.get("additionalProperties")]
        listed = [one for one in inside if isinstance(one, dict)]
        return bool(listed) and all(is_typed(one) for one in listed)
    return "type" in schema


def test_every_answer_is_a_typed_document() -> None:
    untyped = {
        name
        for name, _, content in answers_described()
        if not is_typed(content.get("schema", {})) and name not in OPEN
    }
    assert not untyped, "declare what these answer with: -> Answer[YourDocument]"


def test_every_route_declares_what_it_answers_with() -> None:
    routes = [route for router in ROUTERS for route in router.routes]
    undeclared = [
        route.path
        for route in routes
        if not isinstance(route, TypedRoute)
        or (
            route.answer_type is None
            and route.status_code not in (204, 303)
            and not has_other_form_only(route.responses.get(200, {}).get("content", {}))
        )
    ]
    assert not undeclared


def test_no_document_has_a_field_without_a_type() -> None:
    answered = component_schemas(_answer_types())
    untyped = {
        f"{name}.{key}"
        for name, schema in answered.items()
        for key, inside in schema.get("properties", {}).items()
        if not is_typed(inside)
    }
    assert untyped <= OPEN


def _answer_types() -> list[Any]:
    routes = [route for router in ROUTERS for route in router.routes]
    return [r.answer_type for r in routes if isinstance(r, TypedRoute) and r.answer_type]


def test_two_documents_of_one_name_are_refused() -> None:
    first = msgspec.defstruct("Same", [("a", int)])
    second = msgspec.defstruct("Same", [("b", int)])
    with pytest.raises(ValueError, match="'Same'"):
        component_schemas([first, second])


def test_what_has_a_default_is_always_answered_and_what_is_unset_need_not_be() -> None:
    kind = msgspec.defstruct(
        "Some", [("a", int, 1), ("b", int | msgspec.UnsetType, msgspec.UNSET), ("c", str, "")]
    )
    assert component_schemas([kind])["Some"]["required"] == ["a", "c"]


def test_the_cases_below_ask_every_get_route() -> None:
    described = {
        path.removeprefix("/api/v1")
        for path, methods in DOCUMENT["paths"].items()
        if "get" in methods
    }
    own = {path for path in described if path.startswith(TESTED_APART)}
    assert described - own == set(CASES)


@pytest.mark.slow
def test_every_answer_is_as_it_is_described(client: TestClient, names: dict[str, str]) -> None:
    for path, asked, document in answers(client, names):
        operation = DOCUMENT["paths"][f"/api/v1{path}"]["get"]
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        closed = {**schema, "components": {"schemas": SCHEMAS}}
        errors = sorted(jsonschema.Draft202012Validator(closed).iter_errors(document), key=str)
        assert not errors, (path, asked, errors[0].message, list(errors[0].absolute_path))
        if path != "/cluster":
            assert not set(_undescribed(document, schema)), (path, asked)


def _undescribed(document: Any, schema: dict[str, Any]) -> Iterator[str]:
    """Keys of an answer that its description does not have."""
    if "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].removeprefix("#/components/schemas/")]
    if isinstance(document, list):
        for item in document[:20]:
            yield from _undescribed(item, schema.get("items") or {})
    elif isinstance(document, dict) and "properties" in schema:
        for key, value in document.items():
            if key not in schema["properties"]:
                yield key
            else:
                yield from _undescribed(value, schema["properties"][key])
