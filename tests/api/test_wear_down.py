"""Clients that would wear a server down: half-open, slow, huge, many; others are still answered."""

from __future__ import annotations

import contextlib
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient

from marey.api.limits import limited_protocol, requests
from marey.api.limits.connections import (
    WAITING_LIMIT,
    WAITING_PEER_LIMIT,
    CutReason,
    WaitingConnections,
)
from marey.api.routes import live_routes
from marey.api.routes.live_routes import LiveClients
from marey.model.access.identity import Identity, Role
from tests.api.conftest import SmallService
from tests.api.running import get_json, running
from tests.signed_in import OWNER_HEADERS, OWNER_KEY
from tests.waiting import until

HALF_OPEN = 540


@pytest.fixture(scope="module")
def url(small: SmallService) -> Iterator[str]:
    with running(small.service) as url:
        yield url


def connect(url: str) -> socket.socket:
    host, port = urlsplit(url).hostname, urlsplit(url).port
    assert host is not None
    assert port is not None
    return socket.create_connection((host, port), timeout=60)


def cut_clients(url: str, reason: CutReason) -> int:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    line = next(ln for ln in text.splitlines() if f'reason="{reason}"' in ln)
    return int(line.rpartition(" ")[2])


def read_all(connection: socket.socket) -> bytes:
    """Everything until the server ends it, by a goodbye or by force."""
    content = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            content += piece
    return content


def test_540_half_open_connections_keep_nobody_from_an_answer(
    url: str, small: SmallService
) -> None:
    before, ticks = cut_clients(url, CutReason.CROWDED_OUT), small.service.collector.counts.ticks
    with contextlib.ExitStack() as held:
        for number in range(HALF_OPEN):
            connection = held.enter_context(connect(url))
            with contextlib.suppress(ConnectionError):
                connection.sendall(b"GET /api/v1/clusters HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
            if number % 20 == 19:
                small.tick()
                assert get_json(f"{url}/api/v1/clusters")
                assert get_json(f"{url}/healthz")["status"] == "ok"
    assert cut_clients(url, CutReason.CROWDED_OUT) >= before + HALF_OPEN - WAITING_LIMIT
    assert small.service.collector.counts.ticks == ticks + HALF_OPEN // 20
    assert small.service.collector.counts.skipped_ticks == 0


def test_slow_bodies_keep_nobody_from_an_answer_and_are_ended(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited_protocol, "BODY_SECONDS", 0.5)
    before = cut_clients(url, CutReason.SLOW_BODY)
    head = (
        b"POST /api/v1/progress HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: 900000\r\nAuthorization: Bearer " + OWNER_KEY.encode() + b"\r\n\r\n["
    )
    with contextlib.ExitStack() as held:
        connections = [held.enter_context(connect(url)) for _ in range(40)]
        for connection in connections:
            connection.sendall(head)
        assert get_json(f"{url}/api/v1/clusters")
        for connection in connections:
            assert read_all(connection) == b""
    assert cut_clients(url, CutReason.SLOW_BODY) == before + 40


def test_a_large_body_that_arrives_slowly_but_steadily_is_taken(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited_protocol, "BODY_SECONDS", 0.3)
    monkeypatch.setattr(limited_protocol, "BODY_BYTES", 1)
    pieces = iter([b"x" * 1000] * 20)
    request = urllib.request.Request(
        f"{url}/api/v1/uploads?owner=import:slow&file=a.csv",
        data=pieces,
        method="PUT",
        headers={
            "Content-Length": "20000",
            "Content-Type": "application/octet-stream",
            **OWNER_HEADERS,
        },
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200


def test_a_head_that_never_ends_is_ended(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited_protocol, "HEAD_SECONDS", 0.3)
    before = cut_clients(url, CutReason.SLOW_HEAD)
    with connect(url) as silent, connect(url) as begun, connect(url) as second:
        begun.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        second.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /healthz HT")
        for connection in (silent, begun):
            assert read_all(connection).startswith(b"HTTP/1.1 408 ")
        assert read_all(second).startswith(b"HTTP/1.1 200 ")
    until(lambda: cut_clients(url, CutReason.SLOW_HEAD) >= before + 3, "three slow heads")


@pytest.mark.parametrize("one_line", [True, False])
def test_a_head_of_58_mb_is_refused_after_32_kb(url: str, one_line: bool) -> None:
    before = cut_clients(url, CutReason.LARGE_HEAD)
    piece = b"a" * 65536 if one_line else b"X-Header: value\r\n" * 4096
    with connect(url) as connection:
        sent = 0
        connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-First: ")
        with contextlib.suppress(ConnectionError):
            while sent < 58_000_000:
                connection.sendall(piece)
                sent += len(piece)
        assert sent < 58_000_000
    assert cut_clients(url, CutReason.LARGE_HEAD) == before + 1


def test_a_head_of_31_kb_is_read_and_one_of_33_is_not(url: str) -> None:
    for size, status in ((31_000, 200), (33_000, 431)):
        request = urllib.request.Request(f"{url}/healthz", headers={"X-Long": "a" * size})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                found = answer.status
        except urllib.error.HTTPError as error:
            found = error.code
            error.close()
        assert found == status, size


def test_a_client_that_does_not_read_its_answer_is_cut_off(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited_protocol, "READ_SECONDS", 0.3)
    before = cut_clients(url, CutReason.SLOW_READER)
    request = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with connect(url) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with contextlib.suppress(ConnectionError):
            connection.sendall(request * 40)
        until(lambda: cut_clients(url, CutReason.SLOW_READER) > before, "a reader that is cut off")


def test_requests_one_after_the_other_on_one_connection_are_all_answered(url: str) -> None:
    with contextlib.closing(HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
        connection.connect()
        first = connection.sock
        for _ in range(50):
            connection.request("GET", "/healthz")
            # Head and body may come in two pieces.
            answer = connection.getresponse()
            assert (answer.status, answer.read()[:9]) == (200, b'{"status"')
        assert connection.sock is first


def test_the_oldest_waiting_connection_gives_way_and_proxies_are_exempt() -> None:
    given_up: list[int] = []
    book = WaitingConnections(
        is_shared=lambda peer: peer == "10.0.0.1", waiting_limit=6, peer_limit=2
    )
    for number in range(4):
        book.wait(number, "192.0.2.1", lambda number=number: given_up.append(number))  # type: ignore[misc]
    assert given_up == [0, 1]
    for number in range(4, 10):
        book.wait(number, "10.0.0.1", lambda number=number: given_up.append(number))  # type: ignore[misc]
    assert given_up == [0, 1, 2, 3]
    assert book.waiting == 6
    assert WAITING_PEER_LIMIT < WAITING_LIMIT


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/rules-backtest?rule=low-utilisation&since=30d",
        "/api/v1/diagnosis?workload=1",
        "/api/v1/diagnosis/report?workload=1",
        "/api/v1/callgraphs/ensemble",
        "/api/v1/callgraphs/scaling?parameter=nodes",
        "/api/v1/queue-whatif?days=30",
        "/api/v1/traces/x/difference",
    ],
)
def test_foreign_pages_may_not_ask_expensive_questions(client: TestClient, path: str) -> None:
    for site in ("cross-site", "same-site", "anything"):
        answer = client.get(path, headers={"Sec-Fetch-Site": site})
        assert answer.status_code == 403, site
        assert answer.json()["code"] == "foreign_page"
    for headers in ({"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {}):
        assert client.get(path, headers=headers).status_code != 403


def test_questions_with_a_body_wait_in_line_and_changes_do_not() -> None:
    for method, path, expensive in (
        ("POST", "/api/v1/traces/x/what-if", True),
        ("POST", "/api/v1/traces/x/what-if/timeline", True),
        ("POST", "/api/v1/rules-preview", True),
        ("PUT", "/api/v1/predictions/x/measured", False),
        ("POST", "/api/v1/backtests", False),
    ):
        assert requests.is_expensive({"method": method, "path": path}) is expensive, path


def test_a_link_from_elsewhere_still_opens_the_page(client: TestClient) -> None:
    assert client.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


def test_one_user_cannot_take_every_place() -> None:
    book = requests.RunningRequests()
    book.running["user a"] = requests.REQUESTS_PER_USER
    assert not book.has_room("user a")
    assert book.has_room("user b")


def test_who_is_counted_is_the_user_then_the_peer() -> None:
    identity = Identity("ada", Role.RESEARCHER)
    scope = {"type": "http", "client": ("192.0.2.7", 1), "identity": identity}
    assert requests.get_requester(scope) == "user ada"
    assert requests.get_requester({**scope, "identity": None}) == "peer 192.0.2.7"
    assert requests.get_requester({"client": ("127.0.0.1", 1)}) == ""


def test_live_places_are_counted_by_user() -> None:
    clients = LiveClients()
    with contextlib.ExitStack() as held:
        for _ in range(live_routes.CLIENTS_PER_USER):
            assert clients.has_place("user a")
            held.enter_context(clients.hold_place("user a"))
        assert not clients.has_place("user a")
        assert clients.has_place("user b")
        assert clients.has_place("")
    assert clients.connected == 0
    assert clients.has_place("user a")
