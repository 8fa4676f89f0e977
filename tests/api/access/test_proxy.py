"""Mode proxy: the names in its headers count from the proxy alone."""

from __future__ import annotations

import socket
import struct
import urllib.request

import pytest
from fastapi.testclient import TestClient

from marey.api.application import build_app
from marey.api.guard import Access
from marey.api.serving import address, listen
from marey.app.access.access_control import AccessControl
from marey.app.settings.access_settings import AccessSettings, ProxySettings
from marey.model.access.identity import Identity, Role
from marey.model.times import HOUR_MS
from tests.api.conftest import SmallService
from tests.api.running import running

TOLD = {"X-Remote-User": "ada", "X-Remote-Groups": "staff, vision"}


def make_client(small: SmallService, peer: str, mode: str = "proxy") -> TestClient:
    control = AccessControl(
        mode=mode,
        settings=AccessSettings(mode=mode, operator_groups=("staff",)),
        proxy=ProxySettings(peers=("10.0.0.0/8",)),
    )
    app = build_app(small.service, Access((), control))
    return TestClient(app, base_url="http://127.0.0.1", client=(peer, 1))


def test_the_proxy_names_the_user_and_the_groups(small: SmallService) -> None:
    with make_client(small, "10.1.2.3") as client:
        me = client.get("/api/v1/me", headers=TOLD).json()
        assert (me["user"], me["role"], me["by"]) == ("ada", "operator", "proxy")
        assert client.get("/api/v1/clusters", headers=TOLD).status_code == 200
        assert client.get("/api/v1/clusters").status_code == 401


@pytest.mark.parametrize("place", ["", "/oauth2/sign_out"])
def test_there_is_signing_out_where_the_proxy_has_a_place_for_it(
    small: SmallService, place: str
) -> None:
    proxy = ProxySettings(peers=("10.0.0.0/8",), logout_url=place)
    control = AccessControl(mode="proxy", settings=AccessSettings(mode="proxy"), proxy=proxy)
    app = build_app(small.service, Access((), control))
    with TestClient(app, base_url="http://127.0.0.1", client=("10.1.2.3", 1)) as client:
        assert client.get("/api/v1/me", headers=TOLD).json()["sign_in"]["signs_out"] is bool(place)
        assert client.delete("/api/v1/session", headers=TOLD).json() == {"next": place}


@pytest.mark.parametrize(("peer", "mode"), [("192.0.2.7", "proxy"), ("10.1.2.3", "token")])
def test_spoofed_headers_are_not_heard(small: SmallService, peer: str, mode: str) -> None:
    with make_client(small, peer, mode) as client:
        spoofed = {**TOLD, "X-Forwarded-For": "10.1.2.3"}
        assert client.get("/api/v1/me", headers=spoofed).json()["user"] == ""
        assert client.get("/api/v1/clusters", headers=spoofed).status_code == 401


@pytest.mark.parametrize("name", ["X-Remote-User", "X-Remote-Groups"])
def test_a_header_that_a_browser_sent_beside_the_proxys_own_spoils_both(
    small: SmallService, name: str
) -> None:
    with make_client(small, "10.1.2.3") as client:
        twice = [("X-Remote-User", "ada"), ("X-Remote-Groups", "vision"), (name, "staff")]
        assert client.get("/api/v1/me", headers=twice).json()["user"] == ""
        assert client.get("/api/v1/clusters", headers=twice).status_code == 401


def test_who_resets_a_connection_does_not_pass_for_a_unix_socket(small: SmallService) -> None:
    """A connection that is reset while it waits to be accepted has no peer, but a request."""
    proxy = ProxySettings(peers=("10.0.0.0/8",))
    control = AccessControl(mode="proxy", settings=AccessSettings(mode="proxy"), proxy=proxy)
    listener = listen("127.0.0.1", 0)
    place = listener.getsockname()
    head = (
        f"GET /api/v1/clusters HTTP/1.1\r\nHost: 127.0.0.1:{place[1]}\r\n"
        "X-Remote-User: mallory\r\n\r\n"
    )
    for _ in range(3):
        with socket.create_connection(place) as hostile:
            hostile.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            hostile.sendall(head.encode())
    with running(small.service, access=Access((), control), listener=listener) as url:
        assert url == address(listener)
        # Accepted in order: by now all three were.
        for _ in range(3):
            urllib.request.urlopen(f"{url}/api/v1/me", timeout=60).close()
    assert [person.identity.user for person in control.people.list()] == []


def test_tokens_permit_what_the_proxy_says_of_their_owner_now(small: SmallService) -> None:
    with make_client(small, "10.1.2.3") as client:
        control: AccessControl = client.app.state.access  # type: ignore[attr-defined]
        ada = Identity("ada", Role.OPERATOR, ("staff", "vision"))
        text, _ = control.tokens.create(ada, "t", scopes=["operate"], life_ms=HOUR_MS)
        shown = {"Authorization": f"Bearer {text}"}
        assert client.get("/api/v1/people", headers=shown).status_code == 200
        client.get("/api/v1/me", headers=TOLD)
        assert client.get("/api/v1/people", headers=shown).status_code == 200
        client.get("/api/v1/me", headers={**TOLD, "X-Remote-Groups": "vision"})
        assert client.get("/api/v1/people", headers=shown).status_code == 403
