"""Mode proxy: the names in its headers count from the proxy alone."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from marey.api.application import build_app
from marey.api.guard import Access
from marey.app.access.access_control import AccessControl
from marey.app.settings.access_settings import AccessSettings, ProxySettings
from tests.api.conftest import SmallService

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
