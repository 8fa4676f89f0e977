"""Modes none and token: who is let in with what."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from marey.api.application import build_app
from marey.app.access.throttle import FAILURES
from marey.model.access.identity import Role
from tests.api.conftest import SmallService
from tests.signed_in import OWNER_HEADERS, OWNER_KEY, make_token, owner_access

VIEW = "/api/v1/views/mine"


def test_with_tokens_nothing_is_answered_without_one(small: SmallService) -> None:
    app = build_app(small.service, owner_access(("gpu.site",), mode="token"))
    with TestClient(app, base_url="http://gpu.site") as client:
        assert client.get("/api/v1/clusters").status_code == 401
        assert client.get("/metrics").status_code == 401
        assert client.get("/healthz").status_code == 200
        wrong = {"Authorization": "Bearer wrong"}
        assert client.get("/api/v1/clusters", headers=wrong).status_code == 401
        right = {"Authorization": f"Bearer {make_token(app, Role.VIEW_ONLY)}"}
        assert client.get("/api/v1/clusters", headers=right).status_code == 200
        assert client.put(VIEW, json={}, headers=right).status_code == 403
        assert client.put(VIEW, json={}, headers=OWNER_HEADERS).status_code == 200
        # Neither the address nor a cookie is a place for a token.
        token = make_token(app, Role.ADMIN)
        assert client.get(f"/api/v1/clusters?token={token}").status_code == 401
        client.cookies.set("marey_session", token)
        assert client.get("/api/v1/clusters").status_code == 401


def test_without_sign_in_everybody_looks_and_only_the_owner_changes(small: SmallService) -> None:
    app = build_app(small.service, owner_access())
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert client.get("/api/v1/clusters").status_code == 200
        refused = client.put(VIEW, json={})
        assert refused.status_code == 403
        assert refused.json()["code"] == "not_permitted"
        assert client.put(VIEW, json={}, headers=OWNER_HEADERS).status_code == 200
        with client.websocket_connect("ws://127.0.0.1/api/v1/live"):
            pass


def test_failed_attempts_are_slowed_down_but_never_the_right_token(small: SmallService) -> None:
    app = build_app(small.service, owner_access(mode="token"))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        wrong = {"Authorization": "Bearer wrong"}
        seen = [client.get("/api/v1/clusters", headers=wrong) for _ in range(FAILURES + 2)]
        assert [answer.status_code for answer in seen] == [401] * FAILURES + [429] * 2
        assert int(seen[-1].headers["retry-after"]) > 0
        assert client.get("/api/v1/clusters", headers=OWNER_HEADERS).status_code == 200


def test_the_live_connection_is_refused_without_a_token(small: SmallService) -> None:
    from starlette.websockets import WebSocketDisconnect

    app = build_app(small.service, owner_access(mode="token"))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        with (
            pytest.raises(WebSocketDisconnect),
            client.websocket_connect("ws://127.0.0.1/api/v1/live"),
        ):
            pass
        with client.websocket_connect("ws://127.0.0.1/api/v1/live", headers=OWNER_HEADERS):
            pass


def test_a_session_is_begun_with_a_token_and_is_never_the_token(small: SmallService) -> None:
    app = build_app(small.service, owner_access(mode="token"))
    token = make_token(app, Role.RESEARCHER, "ada")
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert client.post("/api/v1/sign-in", json={"token": "wrong"}).status_code == 401
        begun = client.post("/api/v1/sign-in", json={"token": token})
        assert begun.json()["me"]["user"] == "ada"
        assert token not in begun.headers["set-cookie"]
        assert client.get("/api/v1/me").json()["by"] == "session"
        assert client.put(VIEW, json={}).status_code == 403
        key = {"X-Marey-Key": begun.json()["session_key"]}
        assert client.put(VIEW, json={}, headers=key).status_code == 200
        assert client.delete("/api/v1/session", headers=key).json() == {"next": ""}
        assert client.get("/api/v1/clusters").status_code == 401
        wrong = [
            client.post("/api/v1/sign-in", json={"token": "wrong"}) for _ in range(FAILURES + 1)
        ]
        assert wrong[-1].status_code == 429


def test_the_owner_signs_in_although_an_old_key_was_tried_many_times(small: SmallService) -> None:
    app = build_app(small.service, owner_access())
    with TestClient(app, base_url="http://127.0.0.1") as client:
        stale = {"token": "owner_of_the_start_before"}
        seen = [client.post("/api/v1/sign-in", json=stale) for _ in range(FAILURES + 1)]
        assert [answer.status_code for answer in seen] == [401] * FAILURES + [429]
        begun = client.post("/api/v1/sign-in", json={"token": OWNER_KEY})
        assert begun.status_code == 200
        # Whoever has signed in starts anew.
        assert client.post("/api/v1/sign-in", json=stale).status_code == 401


def test_people_make_list_and_revoke_their_own_tokens(small: SmallService) -> None:
    app = build_app(small.service, owner_access(mode="token"))
    ada = {"Authorization": f"Bearer {make_token(app, Role.RESEARCHER, 'ada')}"}
    ben = {"Authorization": f"Bearer {make_token(app, Role.RESEARCHER, 'ben')}"}
    admin = {"Authorization": f"Bearer {make_token(app, Role.ADMIN, 'root')}"}
    with TestClient(app, base_url="http://127.0.0.1") as client:
        body = {"name": "nightly", "scopes": ["read"], "life": "30d"}
        made = client.post("/api/v1/tokens", json=body, headers=ada).json()
        used = {"Authorization": f"Bearer {made['token']}"}
        assert client.get("/api/v1/me", headers=used).json()["permissions"] == ["read"]
        # A token without the scope `account` makes no further ones.
        assert client.post("/api/v1/tokens", json=body, headers=used).status_code == 403
        # One made by a token ends with it at the latest.
        own = client.get("/api/v1/tokens", headers=ada).json()
        assert {row["name"] for row in own} == {"nightly", "tests"}
        assert len({row["expires_ms"] // 60_000 for row in own}) == 1
        more = {**body, "scopes": ["operate"]}
        assert client.post("/api/v1/tokens", json=more, headers=ada).status_code == 422
        where = f"/api/v1/tokens/{made['row']['id']}"
        assert client.delete(where, headers=ben).status_code == 404
        assert client.get("/api/v1/people", headers=ada).status_code == 403
        people = client.get("/api/v1/people", headers=admin).json()
        assert {row["user"] for row in people["people"]} == {"ada", "ben", "root"}
        assert "digest" not in str(people)
        assert client.delete(where, headers=admin).status_code == 204
        assert client.get("/api/v1/me", headers=used).status_code == 401


def test_progress_is_reported_by_its_owner_or_a_token_for_the_workload(
    small: SmallService,
) -> None:
    app = build_app(small.service, owner_access(mode="token"))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        ada = {"Authorization": f"Bearer {make_token(app, Role.RESEARCHER, 'ada')}"}
        ben = {"Authorization": f"Bearer {make_token(app, Role.RESEARCHER, 'ben')}"}
        bound = {"name": "run", "scopes": ["progress:write"], "workload": "1"}
        token = client.post("/api/v1/tokens", json=bound, headers=ada).json()["token"]
        script = {"Authorization": f"Bearer {token}"}
        for headers, workload, status in (
            (ada, "1", 202), (ben, "1", 403), (script, "1", 202), (script, "2", 403),
        ):  # fmt: skip
            report = {"workload": workload, "step": 1}
            answer = client.post("/api/v1/progress", json=report, headers=headers)
            assert answer.status_code == status, (workload, answer.text)
        assert client.get("/api/v1/clusters", headers=script).status_code == 403


def test_a_command_signs_in_once_its_user_has_confirmed_the_code(small: SmallService) -> None:
    app = build_app(small.service, owner_access(mode="token"))
    ada = {"Authorization": f"Bearer {make_token(app, Role.RESEARCHER, 'ada')}"}
    with TestClient(app, base_url="http://127.0.0.1") as client:
        waiting = client.post("/api/v1/sign-in/commands", json={"place": "login1"}).json()
        claim = {"code": waiting["code"], "command_secret": waiting["command_secret"]}
        take = "/api/v1/sign-in/commands/token"
        assert client.post(take, json=claim).json() == {"token": ""}
        code = {"code": waiting["code"]}
        assert client.post("/api/v1/sign-in/commands/confirm", json=code).status_code == 401
        found = client.post("/api/v1/sign-in/commands/find", json=code, headers=ada).json()
        assert found["place"] == "login1"
        client.post("/api/v1/sign-in/commands/confirm", json=code, headers=ada)
        stranger = {**claim, "command_secret": "x"}
        assert client.post(take, json=stranger).status_code == 404
        token = client.post(take, json=claim).json()["token"]
        assert client.post(take, json=claim).status_code == 404
        me = client.get("/api/v1/me", headers={"Authorization": f"Bearer {token}"}).json()
        assert (me["user"], me["role"]) == ("ada", "researcher")


def test_the_author_is_whoever_is_signed_in(small: SmallService) -> None:
    app = build_app(small.service, owner_access(mode="token"))
    operator = {"Authorization": f"Bearer {make_token(app, Role.OPERATOR, 'olga')}"}
    with TestClient(app, base_url="http://127.0.0.1") as client:
        body = {"scope": "user", "value": "ada", "why": "known", "by": "somebody-else"}
        made = client.post("/api/v1/mutes", json=body, headers=operator).json()
        assert made["by"] == "olga"
        client.delete(f"/api/v1/mutes/{made['id']}", headers=operator)


def test_views_are_of_a_person_a_project_or_the_site(small: SmallService) -> None:
    app = build_app(small.service, owner_access(mode="token"))

    def as_user(role: Role, user: str, *projects: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {make_token(app, role, user, projects=projects)}"}

    ada, bea = as_user(Role.RESEARCHER, "ada", "p1"), as_user(Role.RESEARCHER, "bea", "p1")
    ben, olga = as_user(Role.RESEARCHER, "ben", "p2"), as_user(Role.OPERATOR, "olga", "p3")
    with TestClient(app, base_url="http://127.0.0.1") as client:

        def save(who: dict[str, str], scope: str, value: int) -> int:
            return client.put(
                "/api/v1/views/shared", params={"scope": scope}, json={"v": value}, headers=who
            ).status_code

        assert save(ada, "site", 1) == 403
        assert save(olga, "", 1) == 200
        assert save(ada, "project", 2) == 200
        assert save(ada, "", 3) == 200
        seen = [
            client.get("/api/v1/views/shared", headers=who).json() for who in (ada, bea, ben, olga)
        ]
        assert seen == [{"v": 3}, {"v": 2}, {"v": 1}, {"v": 1}]
        rows = client.get("/api/v1/views-list", headers=ada).json()
        scopes = [(r["scope"], r["may_change"]) for r in rows if r["name"] == "shared"]
        assert scopes == [("personal", True), ("project", True), ("site", False)]
        for who, status in ((ada, 204), (ada, 204), (ada, 403), (ben, 403), (olga, 204)):
            assert client.delete("/api/v1/views/shared", headers=who).status_code == status
