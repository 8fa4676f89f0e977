"""Behind a real nginx, and with TLS of its own: prefix, page, live connection, who is believed."""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import urllib3
from fastapi.testclient import TestClient
from websockets.sync.client import connect

from marey.api.application import build_app
from marey.api.guard import Access
from marey.api.pages import BUNDLE, place_page
from marey.api.reverse_proxy import ProxyMiddleware, ProxyRules, make_proxy_rules
from marey.api.tls import CertificateFiles, ServerCertificate
from marey.app.assembly import check_transport
from marey.app.settings.configuration import ServerSettings, load_configuration
from marey.model.errors import InvalidInput
from tests.api.conftest import SmallService
from tests.api.running import running
from tests.deploy.nginx_rig import make_certificate, nginx_in_front
from tests.waiting import run_in_loop

ROOT = Path(__file__).resolve().parents[2]
NAME = "gpu.example.org"
FRONT = make_proxy_rules(["127.0.0.1"], "/marey")


@pytest.fixture(scope="module")
def small() -> Iterator[SmallService]:
    made = SmallService()
    made.tick(3)
    yield made
    made.service.stop()


@dataclass
class Proxied:
    """Marey below /marey of an nginx with TLS."""

    url: str
    pool: urllib3.PoolManager
    context: ssl.SSLContext

    def get(self, path: str, **headers: str) -> urllib3.BaseHTTPResponse:
        return self.pool.request(
            "GET", self.url + path, headers={"Host": NAME, **headers}, redirect=False
        )


@pytest.fixture(scope="module")
def proxied(
    small: SmallService,
    need_program: Callable[..., str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Proxied]:
    program = need_program("nginx")
    folder = tmp_path_factory.mktemp("nginx")
    with running(small.service, access=Access((NAME,)), front=FRONT) as behind:
        port = urlsplit(behind).port
        assert port is not None
        with nginx_in_front(program, folder, port) as (url, certificate):
            context = ssl.create_default_context(cafile=str(certificate))
            pool = urllib3.PoolManager(ca_certs=str(certificate))
            yield Proxied(url, pool, context)


def test_the_api_is_there_below_the_prefix_only(proxied: Proxied) -> None:
    answer = proxied.get("/marey/api/v1/clusters")
    assert answer.status == 200, answer.data
    assert answer.headers["strict-transport-security"]
    # nginx has no files of its own there.
    assert proxied.get("/api/v1/clusters").status in (403, 404)
    assert proxied.get("/marey").headers["location"].endswith("/marey/")


def test_the_page_and_everything_it_loads_come_from_below_the_prefix(proxied: Proxied) -> None:
    for address in ("/marey/", "/marey/workload?id=1", "/marey/traces/run"):
        page = proxied.get(address).data.decode()
        assert '<meta name="marey-prefix" content="/marey" />' in page
        loaded = re.findall(r'(?:src|href)="([^"]+)"', page)
        assert len(loaded) > 2
        for asset in loaded:
            assert asset.startswith("/marey/"), asset
            assert proxied.get(asset).status == 200, asset


def test_the_live_connection_passes_through_nginx(proxied: Proxied) -> None:
    url = proxied.url.replace("https:", "wss:") + "/marey/api/v1/live"
    origin: Any = proxied.url
    with connect(url, ssl=proxied.context, origin=origin, max_size=None, open_timeout=90) as live:
        live.send(json.dumps({"subscribe": ["util"]}))
        assert len(bytes(live.recv(60))) > 100


def test_a_redirect_of_the_server_stays_below_the_prefix(small: SmallService) -> None:
    app = build_app(small.service, Access((NAME,)), FRONT)
    client = TestClient(app, base_url=f"https://{NAME}", client=("127.0.0.1", 1))
    assert client.get("/marey", follow_redirects=False).headers["location"] == "/marey/"


class Seen:
    """An application that remembers what reached it."""

    def __init__(self) -> None:
        self.scopes: list[dict[str, object]] = []

    async def __call__(self, scope: dict[str, object], receive: object, send: object) -> None:
        self.scopes.append(scope)


@pytest.mark.parametrize(
    ("peer", "forwarded", "client", "scheme"),
    [
        ("127.0.0.1", "198.51.100.7", "198.51.100.7", "https"),
        # What the client added before the proxy's own entry is not believed.
        ("127.0.0.1", "10.0.0.1, 198.51.100.7", "198.51.100.7", "https"),
        ("127.0.0.1", "198.51.100.7, 127.0.0.1", "198.51.100.7", "https"),
        # Nobody else is believed at all.
        ("127.0.0.2", "198.51.100.7", "127.0.0.2", "http"),
    ],
)
def test_forwarded_headers_are_believed_from_the_proxy_only(
    peer: str, forwarded: str, client: str, scheme: str
) -> None:
    seen = Seen()
    scope = {
        "type": "http",
        "path": "/marey/api/v1/clusters",
        "raw_path": b"/marey/api/v1/clusters",
        "query_string": b"",
        "client": (peer, 4711),
        "scheme": "http",
        "headers": [
            (b"x-forwarded-for", forwarded.encode()),
            (b"x-forwarded-proto", b"https"),
        ],
    }
    run_in_loop(ProxyMiddleware(seen, FRONT)(scope, None, None))  # type: ignore[arg-type]
    (found,) = seen.scopes
    assert found["client"][0] == client  # type: ignore[index]
    assert found["scheme"] == scheme
    assert found["path"] == "/api/v1/clusters"
    assert bool(found["headers"]) == (scheme == "https")


def test_whoever_comes_past_the_proxy_over_the_network_is_refused(small: SmallService) -> None:
    front = make_proxy_rules(["10.0.0.5"])
    app = build_app(small.service, Access((NAME,)), front)
    client = TestClient(app, base_url=f"http://{NAME}", client=("10.0.0.9", 1))
    assert client.get("/api/v1/clusters").status_code == 403
    assert client.get("/healthz").status_code != 403
    near = TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 1))
    assert near.get("/api/v1/clusters").status_code == 200


def test_the_prefix_is_in_the_page_as_text() -> None:
    page = place_page((BUNDLE / "index.html").read_text(), '/"><script>')
    assert "<script>" not in page.replace('<script type="module"', "")
    assert ProxyRules().prefix == ""


def test_tls_by_files_and_their_replacement_while_it_runs(
    small: SmallService, tmp_path: Path
) -> None:
    first, key = make_certificate(tmp_path, "first.example.org")
    shown = ServerCertificate(CertificateFiles(first, key))
    with running(small.service, certificate=shown) as url:
        assert url.startswith("https://")
        port = urlsplit(url).port
        before = first.read_text()
        assert ssl.get_server_certificate(("127.0.0.1", port or 0)) == before
        pool = urllib3.PoolManager(ca_certs=str(first))
        assert pool.request("GET", f"{url}/api/v1/clusters").status == 200
        assert not shown.reload()
        first.write_text("not a certificate")
        with pytest.raises(InvalidInput, match="cannot be used"):
            shown.reload()
        assert ssl.get_server_certificate(("127.0.0.1", port or 0)) == before
        second, second_key = make_certificate(tmp_path, "second.example.org")
        first.write_bytes(second.read_bytes())
        key.write_bytes(second_key.read_bytes())
        assert shown.reload()
        assert ssl.get_server_certificate(("127.0.0.1", port or 0)) == second.read_text()


def test_a_handshake_that_never_ends_keeps_nobody_from_an_answer(
    small: SmallService, tmp_path: Path
) -> None:
    certificate, key = make_certificate(tmp_path)
    shown = ServerCertificate(CertificateFiles(certificate, key))
    with running(small.service, certificate=shown) as url:
        port = urlsplit(url).port
        silent = [socket.create_connection(("127.0.0.1", port or 0)) for _ in range(200)]
        pool = urllib3.PoolManager(ca_certs=str(certificate))
        assert pool.request("GET", f"{url}/api/v1/clusters").status == 200
        for connection in silent:
            connection.close()


def test_beyond_loopback_neither_a_certificate_nor_a_proxy_means_refused() -> None:
    with pytest.raises(InvalidInput, match=r"Refused to listen on 0\.0\.0\.0 without TLS"):
        check_transport(ServerSettings(host="0.0.0.0"))
    with pytest.raises(InvalidInput, match="together"):
        check_transport(ServerSettings(certificate="a.pem"))
    check_transport(ServerSettings())
    check_transport(ServerSettings(host="0.0.0.0", behind_proxy=("10.0.0.0/8",)))
    check_transport(ServerSettings(host="0.0.0.0", certificate="a.pem", private_key="a.key"))


def test_the_recipe_for_open_ondemand_is_one_that_the_server_reads() -> None:
    settings = load_configuration(ROOT / "deploy" / "openondemand" / "marey.toml").server
    check_transport(settings)
    front = make_proxy_rules(settings.behind_proxy, settings.path_prefix)
    assert front.is_proxy("10.0.0.5")
    assert settings.path_prefix == f"/node/gpu-monitor.example.org/{settings.port}"
