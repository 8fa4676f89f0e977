"""A real OpenID provider on loopback, and an app that people sign in to there."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.testclient import WebSocketTestSession

from marey.api.application import build_app
from marey.api.guard import Access
from marey.app.access.access_control import AccessControl
from marey.app.settings.access_settings import AccessSettings, OidcSettings
from tests.api.conftest import SmallService
from tests.signed_in import OWNER_KEY

WEB = Path(__file__).parents[3] / "web"
SCRIPT = Path(__file__).with_name("openid_provider.mjs")
SITE = "http://127.0.0.1:8600"
CALLBACK = "/api/v1/sign-in/callback"


@dataclass
class Provider:
    """The provider, and a way to tell it who comes next and to give it new keys."""

    issuer: str

    def tell(self, **asked: Any) -> None:
        httpx.post(f"{self.issuer}/control", json=asked).raise_for_status()

    def expect(self, user: str, *groups: str) -> None:
        account = {"sub": f"id-{user}", "preferred_username": user, "groups": list(groups)}
        self.tell(account=account)


@pytest.fixture(scope="session")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    process = subprocess.Popen(
        ["node", str(SCRIPT), str(WEB), SITE + CALLBACK],
        stdout=subprocess.PIPE,
        stderr=(tmp_path_factory.mktemp("provider") / "log").open("w"),
        text=True,
    )
    assert process.stdout is not None
    issuer = process.stdout.readline().strip()
    assert issuer.startswith("http://127.0.0.1:"), "the OpenID provider did not start"
    yield Provider(issuer)
    process.kill()
    process.wait()


def make_access(provider: Provider, secret: Path, **settings: Any) -> Access:
    """Access control of a site with this provider; its secret is in a file."""
    secret.write_text("marey-secret")
    oidc = OidcSettings(
        issuer=provider.issuer, client_id="marey", client_secret_file=str(secret), label="Tests"
    )
    roles = {"operator_groups": ("staff",), "admin_groups": ("root",), "view_only_groups": ("v",)}
    chosen = {"mode": "oidc", "public_url": SITE, **roles, **settings}
    control = AccessControl(
        mode="oidc", settings=AccessSettings(**chosen), oidc=oidc, owner_secrets=(OWNER_KEY,)
    )
    return Access((), control)


def receive_all(socket: WebSocketTestSession) -> None:
    """Read a live connection until it is closed."""
    while True:
        socket.receive_bytes()


@dataclass
class Browser:
    """A browser: one client for the site, one for the provider, cookies in both."""

    app: FastAPI
    site: TestClient = field(init=False)
    elsewhere: httpx.Client = field(default_factory=httpx.Client)
    key: str = ""

    def __post_init__(self) -> None:
        self.site = TestClient(self.app, base_url=SITE, raise_server_exceptions=False)
        self.site.follow_redirects = False

    def start(self, page: str = "/") -> str:
        """Begin to sign in; the provider's address with everything in it."""
        answer = self.site.get("/api/v1/sign-in/start", params={"page": page})
        assert answer.status_code == 303, answer.text
        return answer.headers["location"]

    def visit(self, url: str) -> str:
        """Let the provider sign its account in; the address that it sends the browser back to."""
        while not url.startswith(SITE):
            answer = self.elsewhere.get(url)
            assert answer.status_code in (302, 303), answer.text
            url = str(httpx.URL(url).join(answer.headers["location"]))
        return url

    def come_back(self, url: str) -> httpx.Response:
        return self.site.get(url.removeprefix(SITE))

    def sign_in(self, page: str = "/") -> dict[str, str]:
        """Sign in; what the page that follows is told in the fragment of its address."""
        answer = self.come_back(self.visit(self.start(page)))
        assert answer.status_code == 303, answer.text
        target = urlsplit(answer.headers["location"])
        assert target.path == "/sign-in"
        told = {name: values[0] for name, values in parse_qs(target.fragment).items()}
        renewed = self.site.post("/api/v1/session/key", headers=self.make_headers(told))
        assert renewed.status_code == 200, renewed.text
        self.key = renewed.json()["session_key"]
        return told

    def make_headers(self, told: dict[str, str] | None = None) -> dict[str, str]:
        return {"X-Marey-Key": told["session-key"] if told else self.key, "Origin": SITE}

    def ask_me(self) -> dict[str, Any]:
        document: dict[str, Any] = self.site.get("/api/v1/me").json()
        return document

    def save(self, **headers: str) -> int:
        """Try to change something; the status of the answer."""
        sent = {**self.make_headers(), **headers}
        return self.site.put("/api/v1/views/x", json={}, headers=sent).status_code


@pytest.fixture(scope="module")
def oidc_app(
    small: SmallService, provider: Provider, tmp_path_factory: pytest.TempPathFactory
) -> FastAPI:
    secret = tmp_path_factory.mktemp("oidc") / "secret"
    return build_app(small.service, make_access(provider, secret, default_role="researcher"))


@pytest.fixture
def person(oidc_app: FastAPI) -> Browser:
    control: AccessControl = oidc_app.state.access
    control.throttle.forget("testclient")
    return Browser(oidc_app)
