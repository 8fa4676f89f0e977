"""Asking a running server: whose address is believed, where a token is sent, what TLS shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from marey.api.tls import CertificateFiles, ServerCertificate
from marey.app.queries.server_client import TOKEN_VARIABLE, is_on_this_machine, request_server
from marey.model.errors import Unavailable
from marey.store.holder import StoreHolder
from tests.api.conftest import SmallService
from tests.api.running import running
from tests.deploy.nginx_rig import make_certificate
from tests.sources.exporters import exporter, raw


@pytest.fixture(scope="module")
def small() -> Iterator[SmallService]:
    made = SmallService()
    made.tick(2)
    yield made
    made.service.stop()


def test_a_token_is_sent_to_this_machine_only() -> None:
    for url in ("http://127.0.0.1:8600", "https://localhost:1", "http://[::1]:8600"):
        assert is_on_this_machine(url)
    for url in ("http://192.0.2.1:8600", "http://evil.example", "http://127.0.0.1.evil.example"):
        assert not is_on_this_machine(url)


def test_a_redirect_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "secret-of-this-user")
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 2\r\n\r\n{}"
    with exporter(raw(moved)) as place, pytest.raises(Unavailable):
        request_server(StoreHolder(f"http://{place}", 1), "GET", "/clusters")


def test_a_server_with_tls_is_known_by_the_fingerprint_it_wrote_down(
    small: SmallService, tmp_path: Path
) -> None:
    certificate, key = make_certificate(tmp_path)
    shown = ServerCertificate(CertificateFiles(certificate, key))
    told: list[str] = []
    shown.tell = told.append
    with running(small.service, certificate=shown) as url:
        assert request_server(StoreHolder(url, 1, shown.fingerprint), "GET", "/clusters")
        with pytest.raises(Unavailable):
            request_server(StoreHolder(url, 1, "0" * 64), "GET", "/clusters")
        another, its_key = make_certificate(tmp_path, "other.example.org")
        certificate.write_bytes(another.read_bytes())
        key.write_bytes(its_key.read_bytes())
        assert shown.reload()
        assert told == [shown.fingerprint]
        assert request_server(StoreHolder(url, 1, told[0]), "GET", "/clusters")
