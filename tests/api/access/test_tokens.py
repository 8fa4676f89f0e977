"""Modes none and token: who is let in with what."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from marey.api.application import build_app
from marey.app.access.throttle import FAILURES
from marey.model.access.identity import Role
from tests.api.conftest import SmallService
from tests.signed_in import OWNER_HEADERS, make_token, owner_access

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
