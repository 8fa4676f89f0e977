"""Sessions and tokens end: unused, after their life, and with the server that gave them."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from marey.api.application import build_app
from marey.api.guard import Access
from marey.api.routes import live_routes
from marey.app.access.access_control import AccessControl
from marey.app.access.api_tokens import ApiTokens
from marey.app.access.sessions import Sessions
from marey.app.settings.access_settings import AccessSettings, ProxySettings
from marey.model.access.identity import Identity, Role
from marey.model.times import HOUR_MS, MINUTE_MS
from tests.api.access.conftest import receive_all
from tests.api.conftest import SmallService
from tests.app.small_cluster import HandClock
from tests.signed_in import make_token, owner_access

ADA = Identity("ada", Role.RESEARCHER)
VIEW = "/api/v1/views/of-a-session"


def test_a_session_ends_when_it_is_not_used_and_after_its_life() -> None:
    clock = HandClock()
    sessions = Sessions(HOUR_MS, 10 * MINUTE_MS, clock.now_ms)
    left, used = sessions.begin(ADA), sessions.begin(ADA)
    for _ in range(11):
        clock.advance(5 * MINUTE_MS)
        assert sessions.find(used.cookie) is used.session
    assert sessions.find(left.cookie) is None
    assert not sessions.is_alive(left.session)
    clock.advance(5 * MINUTE_MS)
    assert sessions.find(used.cookie) is None
    assert sessions.list() == []


def test_a_token_ends_at_its_time_also_after_a_restart(tmp_path: Path) -> None:
    clock = HandClock()
    path = tmp_path / "tokens.json"
    text, _ = ApiTokens(path, clock.now_ms).create(ADA, "t", scopes=["read"], life_ms=HOUR_MS)
    assert text not in path.read_text()
    again = ApiTokens(path, clock.now_ms)
    token = again.find(text)
    assert token is not None
    assert again.is_alive(token)
    clock.advance(HOUR_MS)
    assert again.find(text) is None
    assert not again.is_alive(token)
    assert ApiTokens(path, clock.now_ms).find(text) is None


@pytest.mark.parametrize("mode", ["none", "token"])
def test_after_a_restart_an_old_cookie_leads_to_signing_in(small: SmallService, mode: str) -> None:
    before = build_app(small.service, owner_access(mode=mode))
    token = make_token(before, Role.RESEARCHER, "ada")
    with TestClient(before, base_url="http://127.0.0.1") as client:
        begun = client.post("/api/v1/sign-in", json={"token": token}).json()
        cookies, key = dict(client.cookies), {"X-Marey-Key": begun["session_key"]}
        assert client.get("/api/v1/me").json()["user"] == "ada"
    after = build_app(small.service, owner_access(mode=mode))
    token = make_token(after, Role.RESEARCHER, "ada")
    with TestClient(after, base_url="http://127.0.0.1", cookies=cookies) as client:
        # The page learns that nobody is signed in; what it shows then is no error.
        me = client.get("/api/v1/me", headers=key)
        assert (me.status_code, me.json()["by"]) != (200, "session")
        assert me.status_code == 200
        looked = client.get("/api/v1/clusters", headers=key)
        assert looked.status_code == (401 if mode == "token" else 200)
        if mode == "token":
            assert "Sign in" in looked.json()["detail"]
        assert client.put(VIEW, json={}, headers=key).status_code in (401, 403)
        assert client.get("/").status_code in (200, 503)
        again = client.post("/api/v1/sign-in", json={"token": token}, headers=key)
        assert again.status_code == 200
        key = {"X-Marey-Key": again.json()["session_key"]}
        assert client.get("/api/v1/me").json()["user"] == "ada"
        assert client.put(VIEW, json={}, headers=key).status_code == 200
        assert client.delete(VIEW, headers=key).status_code == 204


def begin_session(client: TestClient, token: str) -> dict[str, str]:
    """Sign in with a token; the headers that changes are sent with."""
    begun = client.post("/api/v1/sign-in", json={"token": token}).json()
    return {"X-Marey-Key": begun["session_key"]}


def test_a_session_ends_with_the_token_it_was_begun_with(small: SmallService) -> None:
    app = build_app(small.service, owner_access(mode="token"))
    control: AccessControl = app.state.access
    text, token = control.tokens.create(ADA, "t", scopes=["account"], life_ms=HOUR_MS)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        begin_session(client, text)
        assert client.get("/api/v1/me").json()["ends_ms"] <= token.expires_ms
        (session,) = control.sessions.list()
        assert control.is_alive(session, token)
        control.revoke_token(token.id)
        assert client.get("/api/v1/clusters").status_code == 401
        assert control.sessions.list() == []
        assert not control.is_alive(session, None)


def test_a_session_may_what_its_token_may_now(small: SmallService) -> None:
    app = build_app(small.service, owner_access(mode="token"))
    token = make_token(app, Role.OPERATOR, "olga")
    with TestClient(app, base_url="http://127.0.0.1") as client:
        begin_session(client, token)
        assert client.get("/api/v1/people").status_code == 200
        app.state.access.tokens.lower(Identity("olga", Role.VIEW_ONLY))
        assert client.get("/api/v1/people").status_code == 403


def test_no_token_outlives_the_one_it_was_made_by(small: SmallService) -> None:
    app = build_app(small.service, owner_access(mode="token"))
    text = make_token(app, Role.RESEARCHER, "ada")
    control: AccessControl = app.state.access
    (first,) = control.tokens.list("ada")
    body = {"name": "long", "scopes": ["account"], "life": "300d"}
    with TestClient(app, base_url="http://127.0.0.1") as client:
        bearer = {"Authorization": f"Bearer {text}"}
        for headers in (bearer, begin_session(client, text)):
            assert client.post("/api/v1/tokens", json=body, headers=headers).status_code == 201
            waiting = client.post("/api/v1/sign-in/commands", json={}, headers=headers).json()
            code = {"code": waiting["code"]}
            confirm = "/api/v1/sign-in/commands/confirm"
            assert client.post(confirm, json=code, headers=headers).status_code == 200
    made = control.tokens.list("ada")
    assert len(made) == 5
    assert max(token.expires_ms for token in made) < first.expires_ms + MINUTE_MS


def test_under_tls_only_the_cookie_that_nobody_else_could_set_counts(small: SmallService) -> None:
    app = build_app(small.service, owner_access(mode="token"))
    token = make_token(app, Role.RESEARCHER, "mallory")
    with TestClient(app, base_url="https://127.0.0.1") as client:
        begin_session(client, token)
        value = client.cookies["__Host-marey_session"]
        assert client.get("/api/v1/me").json()["user"] == "mallory"
    # A page of another host of the domain, or one without TLS, plants it in somebody's browser.
    planted = {"marey_session": value}
    with TestClient(app, base_url="https://127.0.0.1", cookies=planted) as client:
        assert client.get("/api/v1/me").json()["user"] == ""


def test_a_live_connection_by_the_proxys_word_is_asked_again(
    small: SmallService, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = AccessSettings(mode="proxy", session_ms=HOUR_MS)
    proxy = ProxySettings(peers=("10.0.0.0/8",))
    app = build_app(small.service, Access((), AccessControl("proxy", settings, proxy)))
    times = iter([0.0])
    monkeypatch.setattr(live_routes, "read_now_s", lambda: next(times, HOUR_MS / 1000))
    headers = {"X-Remote-User": "ada"}
    with (
        TestClient(app, base_url="http://127.0.0.1", client=("10.1.2.3", 1)) as client,
        client.websocket_connect("ws://127.0.0.1/api/v1/live", headers=headers) as socket,
    ):
        socket.send_text('{"subscribe": []}')
        with pytest.raises(WebSocketDisconnect) as closed:
            receive_all(socket)
    assert closed.value.code == 1008


@pytest.mark.parametrize("peers", [(), ("10.0.0.0/8",)])
def test_a_proxy_behind_a_unix_socket_is_believed(
    small: SmallService, peers: tuple[str, ...]
) -> None:
    control = AccessControl(
        mode="proxy",
        settings=AccessSettings(mode="proxy"),
        proxy=ProxySettings(peers=peers),
    )
    app = build_app(small.service, Access((), control))

    async def from_socket(scope, receive, send):  # type: ignore[no-untyped-def]
        # What a server says of a connection over a Unix socket: it has no address.
        await app({**scope, "client": None} if "client" in scope else scope, receive, send)

    with TestClient(from_socket, base_url="http://127.0.0.1") as client:
        me = client.get("/api/v1/me", headers={"X-Remote-User": "ada"}).json()
        assert (me["user"], me["by"]) == ("ada", "proxy")
