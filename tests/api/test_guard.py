"""Closed by default: names, origins, tokens, headers, and the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from marey.api.application import build_app
from marey.api.guard import Access, Guard
from marey.api.pages import WebApp
from tests.api.conftest import SmallService
from tests.signed_in import owner_access


def test_another_host_name_is_refused_against_dns_rebinding(client: TestClient) -> None:
    for host in ("evil.example", "evil.example:8600", "127.0.0.1.evil.example", "[::1", ""):
        assert client.get("/api/v1/clusters", headers={"Host": host}).status_code == 421, host
    for host in ("localhost:8600", "127.0.0.1:1", "127.1.2.3", "[::1]:8600"):
        assert client.get("/api/v1/clusters", headers={"Host": host}).status_code == 200, host


def test_pages_of_other_origins_may_not_write_nor_read(client: TestClient) -> None:
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9999"):
        answer = client.put("/api/v1/views/x", json={}, headers={"Origin": origin})
        assert answer.status_code == 403
    answer = client.get("/api/v1/clusters", headers={"Origin": "http://127.0.0.1"})
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


def test_a_page_without_tls_is_another_origin_than_one_with_it(small: SmallService) -> None:
    app = build_app(small.service, owner_access(("GPU.Site",)))
    plain, safe = "http://gpu.site", "https://gpu.site"
    # The names of a site are those of the configuration in whatever case.
    for base, origin, status in (
        (safe, plain, 403), (safe, safe, 200), (plain, plain, 200), (plain, safe, 200),
    ):  # fmt: skip
        with TestClient(app, base_url=base) as client:
            answer = client.get("/api/v1/clusters", headers={"Origin": origin})
            assert answer.status_code == status, (base, origin)


def test_a_socket_from_another_origin_is_refused(client: TestClient) -> None:
    with (
        pytest.raises(WebSocketDisconnect),
        client.websocket_connect("/api/v1/live", headers={"Origin": "http://evil.example"}),
    ):
        pass


def test_a_form_post_without_json_is_refused(client: TestClient) -> None:
    answer = client.post(
        "/api/v1/progress", content='{"workload": "1"}', headers={"Content-Type": "text/plain"}
    )
    assert answer.status_code == 422


def test_every_answer_carries_the_security_headers(client: TestClient) -> None:
    for path in ("/api/v1/clusters", "/", "/api/v1/none"):
        headers = client.get(path).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]


def test_only_the_overview_and_only_named_origins_may_be_framed() -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await Response("page")(scope, receive, send)

    access = Access(("testserver",), frame_origins=("https://wall.example.org",))
    client = TestClient(Guard(answer, access))
    framed = client.get("/?wall=1").headers
    assert "frame-ancestors https://wall.example.org" in framed["content-security-policy"]
    assert "x-frame-options" not in framed
    for path in ("/jobs", "/api/v1/clusters", "/sign-in"):
        headers = client.get(path).headers
        assert headers["x-frame-options"] == "DENY", path
        assert "frame-ancestors 'none'" in headers["content-security-policy"], path


def test_the_page_is_given_for_every_address_inside_the_app(tmp_path: Path) -> None:
    from starlette.applications import Starlette

    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<title>page</title>")
    (tmp_path / "assets" / "a.js").write_text("1")
    (tmp_path.parent / "secret.txt").write_text("secret")
    app = Starlette()
    app.mount("/", WebApp(tmp_path))
    with TestClient(app) as client:
        assert "page" in client.get("/").text
        assert "page" in client.get("/workload/4711").text
        assert client.get("/assets/a.js").headers["cache-control"].startswith("public")
        assert client.get("/assets/b.js").status_code == 404
        for path in ("/..%2fsecret.txt", "/%2e%2e/secret.txt", "/assets/../../secret.txt"):
            assert "secret" not in client.get(path).text
        # An address of the page that a browser would take for another host's.
        assert client.get("http://testserver//evil.example").status_code == 404


def test_without_a_bundle_the_page_says_how_to_build_it(tmp_path: Path) -> None:
    from starlette.applications import Starlette

    app = Starlette()
    app.mount("/", WebApp(tmp_path / "none"))
    with TestClient(app) as client:
        assert "make setup" in client.get("/").text
