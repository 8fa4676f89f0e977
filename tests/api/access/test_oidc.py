"""Mode oidc against a real provider: who is let in, and who must not be."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from fastapi import FastAPI
from starlette.websockets import WebSocketDisconnect

from marey.api.application import build_app
from marey.app.access.access_control import AccessControl, check_access, read_now_ms
from marey.app.access.id_tokens import (
    KEYS_PAUSE_MS,
    Expected,
    ProviderKeys,
    SignInRefused,
    check_id_token,
)
from marey.app.access.sign_in_attempts import LIFE_MS, SignInAttempts, choose_page
from marey.app.access.throttle import FAILURES
from marey.app.settings.access_settings import AccessSettings, OidcSettings
from marey.app.settings.configuration import Configuration
from marey.model.errors import InvalidInput
from tests.api.access.conftest import SITE, Browser, Provider, make_access, receive_all
from tests.api.conftest import SmallService


def get_query(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


def test_somebody_signs_in_and_out(person: Browser, provider: Provider) -> None:
    provider.expect("ada", "staff", "vision")
    assert person.ask_me()["user"] == ""
    assert person.site.get("/api/v1/clusters").status_code == 401
    told = person.sign_in("/jobs?mine=1")
    assert told["page"] == "/jobs?mine=1"
    me = person.ask_me()
    assert (me["user"], me["role"], me["by"]) == ("ada", "operator", "session")
    assert me["groups"] == ["staff", "vision"]
    assert person.site.get("/api/v1/clusters").status_code == 200
    assert person.save() == 200
    # The key that was in the address is worthless once the page has exchanged it.
    assert person.save(**person.make_headers(told)) == 403
    out = person.site.delete("/api/v1/session", headers=person.make_headers())
    ended = get_query(out.json()["next"])
    assert out.json()["next"].startswith(f"{provider.issuer}/session/end")
    assert ended["post_logout_redirect_uri"] == f"{SITE}/sign-in"
    assert person.elsewhere.get(out.json()["next"]).status_code == 200
    assert person.site.get("/api/v1/clusters").status_code == 401


def test_groups_decide_the_role_and_nobody_else_gets_in(
    small: SmallService, provider: Provider, tmp_path: Path
) -> None:
    app = build_app(small.service, make_access(provider, tmp_path / "s", default_role="refused"))
    for groups, role in ((["v"], "view-only"), (["v", "root"], "admin")):
        provider.expect("eve", *groups)
        browser = Browser(app)
        browser.sign_in()
        assert browser.ask_me()["role"] == role
        assert browser.save() == (403 if role == "view-only" else 200)
    provider.expect("eve", "visitors")
    browser = Browser(app)
    refused = browser.come_back(browser.visit(browser.start()))
    assert refused.status_code == 403
    assert "may not use this server" in refused.text


def test_the_cookie_is_opaque_and_new_at_each_sign_in(person: Browser, provider: Provider) -> None:
    provider.expect("ada")
    # One that somebody else put there is worth nothing, and is replaced.
    person.site.cookies.set("marey_session", "fixed", domain="127.0.0.1")
    answer = person.come_back(person.visit(person.start()))
    cookies = [c for c in answer.headers.get_list("set-cookie") if c.startswith("marey_session=")]
    assert len(cookies) == 1
    for word in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert word in cookies[0]
    first = cookies[0].partition("=")[2].partition(";")[0]
    assert first != "fixed"
    person.sign_in()
    # The browser's session before is over: it does not stay valid beside the new one.
    control: AccessControl = person.app.state.access
    assert control.sessions.find(first) is None


def test_cookies_are_secure_under_tls(
    small: SmallService, provider: Provider, tmp_path: Path
) -> None:
    site = "https://marey.test"
    access = make_access(provider, tmp_path / "s", public_url=site)
    app = build_app(small.service, access)
    browser = Browser(app)
    answer = browser.site.get("/api/v1/sign-in/start")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-marey_attempt=")
    assert "Secure" in cookie
    assert get_query(answer.headers["location"])["redirect_uri"].startswith(site)


def test_a_code_counts_once_and_only_in_the_browser_that_asked(
    person: Browser, provider: Provider, oidc_app: FastAPI
) -> None:
    provider.expect("ada")
    back = person.visit(person.start())
    # Somebody else's browser, led here by a link: login CSRF.
    assert Browser(oidc_app).come_back(back).status_code == 401
    assert person.come_back(back).status_code == 303
    replayed = person.come_back(back)
    assert replayed.status_code == 401
    assert "started in another browser" in replayed.text
    # The code inside another attempt of the same browser: the provider itself refuses it.
    fresh = get_query(person.start())["state"]
    code = get_query(back)
    again = person.site.get(
        "/api/v1/sign-in/callback",
        params={"code": code["code"], "iss": code["iss"], "state": fresh},
    )
    assert again.status_code == 401
    assert "invalid_grant" in again.text


def test_wrong_state_issuer_nonce_and_challenge_are_refused(
    person: Browser, provider: Provider
) -> None:
    provider.expect("ada")
    back = person.visit(person.start())
    assert person.come_back(back.replace("state=", "state=x")).status_code == 401
    back = person.visit(person.start())
    assert "another provider" in person.come_back(back.replace("iss=", "iss=x")).text
    # What an attacker in front of the provider would change on the way there.
    start = person.start()
    changed = start.replace(get_query(start)["nonce"], "another")
    assert "another attempt" in person.come_back(person.visit(changed)).text
    start = person.start()
    changed = start.replace(get_query(start)["code_challenge"], "x" * 43)
    assert "invalid_grant" in person.come_back(person.visit(changed)).text
    denied = person.site.get(
        "/api/v1/sign-in/callback",
        params={"error": "<b>denied", "state": get_query(person.start())["state"]},
    )
    assert denied.status_code == 401
    assert "<b>" not in denied.text
    assert person.ask_me()["user"] == ""


def test_new_keys_of_the_provider_are_found_and_old_ones_forgotten(
    person: Browser, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.expect("ada")
    person.sign_in()
    control: AccessControl = person.app.state.access
    assert control.provider is not None
    kept = control.sessions.list()[0].id_token
    keys = control.provider._keys
    moved_ms = 0

    def tell_time() -> int:
        return read_now_ms() + moved_ms

    monkeypatch.setattr(keys, "now_ms", tell_time)
    provider.tell(rotate=True)
    moved_ms = KEYS_PAUSE_MS
    browser = Browser(person.app)
    browser.sign_in()
    assert browser.ask_me()["user"] == "ada"
    # The token from before is by a key that the provider no longer shows.
    expected = Expected(provider.issuer, "marey", "")
    with pytest.raises(SignInRefused, match="signature"):
        check_id_token(kept, keys, expected, read_now_ms())


def test_a_token_of_the_provider_must_be_for_us_now_and_for_this_attempt(
    person: Browser, provider: Provider
) -> None:
    provider.expect("ada")
    start = person.start()
    person.come_back(person.visit(start))
    control: AccessControl = person.app.state.access
    text, nonce = control.sessions.list()[0].id_token, get_query(start)["nonce"]
    keys = ProviderKeys(lambda: httpx.get(f"{provider.issuer}/jwks").json(), read_now_ms)
    right, now_ms = Expected(provider.issuer, "marey", nonce), read_now_ms()
    assert check_id_token(text, keys, right, now_ms)["sub"] == "id-ada"
    for wrong in (
        Expected("https://id.example.org", "marey", nonce),
        Expected(provider.issuer, "other", nonce),
        Expected(provider.issuer, "marey", "another"),
    ):
        with pytest.raises(SignInRefused):
            check_id_token(text, keys, wrong, now_ms)
    for moment_ms in (now_ms + 3_600_000, now_ms - 3_600_000):
        with pytest.raises(SignInRefused):
            check_id_token(text, keys, right, moment_ms)
    head, body, signature = text.split(".")
    for forged in (
        f"{head}.{body}.",
        f"eyJhbGciOiJub25lIn0.{body}.",
        f"{head}.{body}x.{signature}",
    ):
        with pytest.raises(SignInRefused):
            check_id_token(forged, keys, right, now_ms)


def test_changes_need_the_key_and_the_right_origin(person: Browser, provider: Provider) -> None:
    provider.expect("ada")
    person.sign_in()
    assert person.save() == 200
    # A page on another port gets the cookie too, and a foreign page may send it: neither has more.
    assert person.save(**{"X-Marey-Key": ""}) == 403
    assert person.save(Origin="http://127.0.0.1:9999") == 403
    assert person.save(Origin="https://evil.example") == 403
    # A name that somebody lets point at this machine (rebinding).
    assert person.save(Host="evil.example:8600", Origin="http://evil.example:8600") == 421
    assert person.site.get("/api/v1/me", headers={"Host": "evil.example"}).status_code == 421


def test_the_live_connection_ends_with_the_session(person: Browser, provider: Provider) -> None:
    provider.expect("ada")
    person.sign_in()
    control: AccessControl = person.app.state.access
    with person.site.websocket_connect(SITE.replace("http", "ws") + "/api/v1/live") as socket:
        socket.send_text('{"subscribe": ["util"]}')
        socket.receive_bytes()
        control.sessions.end_by_id(control.sessions.list()[0].id)
        person.app.state.service.collector.tick()
        with pytest.raises(WebSocketDisconnect) as closed:
            receive_all(socket)
        assert closed.value.code == 1008


def test_failed_sign_ins_are_slowed_down(person: Browser) -> None:
    params = {"state": "x", "code": "x"}
    seen = [person.site.get("/api/v1/sign-in/callback", params=params) for _ in range(FAILURES + 1)]
    assert [answer.status_code for answer in seen] == [401] * FAILURES + [429]
    assert person.site.get("/api/v1/sign-in/start").status_code == 429


@pytest.mark.parametrize(
    "page",
    [
        "//evil.example",
        "/.//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "/\t/evil",
        "\\\\e",
        "javascript:x",
    ],
)
def test_nobody_is_led_elsewhere_after_signing_in(page: str) -> None:
    assert choose_page(page) == "/"
    _, attempt = SignInAttempts(lambda: 0).begin(peer="p", page=page)
    assert attempt.page == "/"
    assert choose_page("/jobs?q=1#x") == "/jobs?q=1#x"


def test_an_attempt_is_over_after_ten_minutes() -> None:
    now = [0]
    attempts = SignInAttempts(lambda: now[0])
    cookie, attempt = attempts.begin(peer="p", page="/")
    now[0] = LIFE_MS
    assert attempts.end(cookie, attempt.state) is None


def test_a_provider_without_tls_or_one_that_is_incomplete_is_refused() -> None:
    def check(**oidc: str) -> None:
        settings = AccessSettings(mode="oidc", public_url="https://marey.test")
        check_access(Configuration(access=settings, oidc=OidcSettings(**oidc), sources=()))

    check(issuer="https://id.example.org", client_id="marey")
    for wrong in (
        {"issuer": "http://id.example.org", "client_id": "marey"},
        {"client_id": "marey"},
    ):
        with pytest.raises(InvalidInput):
            check(**wrong)
