"""Whatever changes something, is refused or signs in is recorded, whichever route it is."""

from __future__ import annotations

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from marey.api.answers import TypedRoute
from marey.api.application import ROUTERS, build_app
from marey.api.audit.recording import flatten, hide_secrets, is_recorded
from marey.app.audit.audit_log import AuditFilter, AuditLog
from marey.model.access.identity import Identity, Permission, Role
from tests.api.conftest import SmallService
from tests.signed_in import OWNER_HEADERS, OWNER_KEY, make_token, owner_access

# Changing methods that are not recorded as changes: what scripts send all day, and signing in,
# which is recorded as that.
NOT_RECORDED = {"reportProgress", "signIn"}
RULE = {"when": "util mean < 5%", "title": "Idle"}


@pytest.fixture
def log(small: SmallService) -> AuditLog:
    small.service.audit = AuditLog()
    return small.service.audit


@pytest.fixture
def owner(small: SmallService, log: AuditLog) -> TestClient:
    app = build_app(small.service, owner_access(mode="token"))
    return TestClient(app, base_url="http://127.0.0.1", headers=OWNER_HEADERS)


def test_every_changing_route_is_recorded() -> None:
    changing = [
        (method, route)
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods - {"GET", "HEAD", "OPTIONS"}
    ]
    assert changing
    for method, route in changing:
        assert isinstance(route, TypedRoute), route.path
        asks = route.permission is Permission.READ
        expected = not asks and route.operation_id not in NOT_RECORDED
        assert is_recorded(method, route) == expected, route.path


def test_a_change_is_recorded_with_what_was_before_and_after(
    owner: TestClient, log: AuditLog
) -> None:
    owner.put("/api/v1/rules/audited", json=RULE)
    owner.put("/api/v1/rules/audited", json={**RULE, "when": "util mean < 9%"})
    owner.delete("/api/v1/rules/audited")
    deleted, changed, made = log.find(AuditFilter(kind="change"))
    assert made.route == "PUT /rules/{rule}"
    assert made.object == "rules/audited"
    assert made.before is None
    assert made.after is not None
    assert made.after["when"] == "util mean < 5%"
    assert changed.before is not None
    assert changed.after is not None
    assert (changed.before["when"], changed.after["when"]) == ("util mean < 5%", "util mean < 9%")
    # Both are the same document, so that only what was changed differs.
    assert set(changed.before) == set(changed.after)
    assert deleted.route == "DELETE /rules/{rule}"
    assert deleted.before is not None
    assert deleted.before["when"] == "util mean < 9%"
    assert deleted.user
    assert deleted.role == "admin"
    assert deleted.peer == "testclient"


def test_refusals_are_recorded_and_questions_are_not(owner: TestClient, log: AuditLog) -> None:
    token = make_token(owner.app, Role.VIEW_ONLY, "vera")
    mine = {"Authorization": f"Bearer {token}"}
    assert owner.get("/api/v1/workloads", headers=mine).status_code == 200
    assert owner.put("/api/v1/rules/x", json=RULE, headers=mine).status_code == 403
    assert owner.get("/api/v1/audit", headers=mine).status_code == 403
    wrong = {"Authorization": "Bearer nobody-has-this-token"}
    assert owner.get("/api/v1/workloads", headers=wrong).status_code == 401
    refused = list(log.find(AuditFilter()))
    assert [(e.kind, e.user, e.status) for e in refused] == [
        ("refusal", "", 401),
        ("refusal", "vera", 403),
        ("refusal", "vera", 403),
    ]


def test_refused_live_connections_are_recorded(owner: TestClient, log: AuditLog) -> None:
    with (
        pytest.raises(WebSocketDisconnect),
        owner.websocket_connect(
            "ws://127.0.0.1/api/v1/live", headers={"Origin": "http://evil.example"}
        ),
    ):
        pass
    (entry,) = log.find(AuditFilter())
    assert (entry.kind, entry.route, entry.object) == ("refusal", "live connection", "live")


def test_whoever_is_not_signed_in_cannot_fill_the_record(
    small: SmallService, log: AuditLog
) -> None:
    app = build_app(small.service, owner_access(mode="token"))
    with TestClient(app, base_url="http://127.0.0.1") as nobody:
        waiting = nobody.post("/api/v1/sign-in/commands", json={}).json()
        claim = {"code": waiting["code"], "command_secret": waiting["command_secret"]}
        assert nobody.post("/api/v1/sign-in/commands/token", json=claim).status_code == 200
        assert nobody.delete("/api/v1/session").status_code == 200
        assert list(log.find(AuditFilter())) == []
        begun = nobody.post("/api/v1/sign-in", json={"token": OWNER_KEY}).json()
        key = {"X-Marey-Key": begun["session_key"]}
        assert nobody.delete("/api/v1/session", headers=key).status_code == 200
    out, into = log.find(AuditFilter())
    assert (out.kind, out.route, bool(out.user)) == ("change", "DELETE /session", True)
    assert (into.kind, into.route) == ("sign-in", "sign in")


def test_sign_ins_are_recorded(owner: TestClient, log: AuditLog) -> None:
    identity = Identity("ada", Role.RESEARCHER)
    owner.app.state.access.sign_in(identity, peer="10.1.1.1")
    (entry,) = log.find(AuditFilter(kind="sign-in"))
    assert (entry.user, entry.role, entry.peer) == ("ada", "researcher", "10.1.1.1")


def test_admins_read_and_export_the_record(owner: TestClient, log: AuditLog) -> None:
    for _ in range(3):
        owner.put("/api/v1/views/mine", json={"layers": []})
    page = owner.get("/api/v1/audit", params={"limit": 2, "text": "views"}).json()
    assert len(page["rows"]) == 2
    rest = owner.get("/api/v1/audit", params={"cursor": page["next"]}).json()
    assert len(rest["rows"]) == 1
    table = owner.get("/api/v1/audit", params={"format": "csv"})
    assert table.text.count("\n") == 4
    lines = owner.get("/api/v1/audit", params={"format": "jsonl"})
    assert len(lines.text.splitlines()) == 3


def test_no_secret_gets_into_the_record() -> None:
    made = {"token": "s3cret", "name": "ci", "nested": [{"client_secret": "s3cret"}], "keys": 3}
    assert hide_secrets(made) == {
        "token": "…",
        "name": "ci",
        "nested": [{"client_secret": "…"}],
        "keys": 3,
    }


def test_every_value_of_a_document_stands_under_its_path() -> None:
    document = {"when": "a", "override": [{"project": "x", "enabled": False}], "kinds": []}
    assert flatten(document) == {
        "when": "a",
        "override.0.project": "x",
        "override.0.enabled": False,
        "kinds": "[]",
    }
