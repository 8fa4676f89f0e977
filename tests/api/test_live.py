"""The live connection, over real sockets: snapshot, ticks, subscriptions, and clients that fail."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from marey.api.routes import live_routes
from marey.api.routes.live_routes import parse_subscription
from marey.app.collect.loop import CollectRules
from marey.app.service import Parts, Service
from marey.live import wire_format
from marey.live.quantise import live_scales
from marey.model.errors import InvalidInput
from marey.model.inventory import Gpu, Host
from marey.model.metrics import EVERYDAY, metric_named
from marey.model.observation import Observation
from marey.model.samples import SampleBatch
from marey.store.embedded.embedded_store import open_store
from tests.api.conftest import SmallService
from tests.api.running import running
from tests.app.small_cluster import GPUS, START_MS, TICK_MS, HandClock, SmallSource, samples
from tests.waiting import until


@pytest.fixture
def lively() -> Iterator[tuple[SmallService, str]]:
    made = SmallService()
    made.tick(2)
    with running(made.service) as url:
        yield made, url
    made.service.stop()


def live(url: str) -> ClientConnection:
    address = f"{url.replace('http', 'ws')}/api/v1/live"
    return connect(address, max_size=None, open_timeout=90, legacy=True)


def subscribe(client: ClientConnection, *metrics: str, cluster: str = "default") -> None:
    client.send(json.dumps({"subscribe": metrics, "cluster": cluster}))


def read(client: ClientConnection) -> tuple[dict[str, Any], dict[str, bytes]]:
    data = client.recv(timeout=60)
    assert isinstance(data, bytes)
    return wire_format.split_message(data)


def test_a_client_gets_a_snapshot_and_then_ticks(lively: tuple[SmallService, str]) -> None:
    small, url = lively
    with live(url) as client:
        subscribe(client, "util")
        header, parts = read(client)
        assert header["type"] == "snapshot"
        assert header["rows"] == len(GPUS)
        assert [part["name"] for part in header["parts"]] == ["units", "workloads", "metric:util"]
        assert header["sources"][0]["state"] == "fresh"
        codes = wire_format.read_full_column(parts["metric:util"])
        small.tick()
        tick, parts = read(client)
        assert (tick["type"], tick["seq"]) == ("tick", header["seq"] + 1)
        codes = wire_format.read_changed_column(parts["metric:util"], codes)
        expected = samples(START_MS + 2 * TICK_MS).columns["util"]
        assert np.array_equal(live_scales()["util"].values(codes), expected)


def test_a_new_column_comes_complete_and_then_as_differences(
    lively: tuple[SmallService, str],
) -> None:
    small, url = lively
    with live(url) as client:
        subscribe(client, "util")
        read(client)
        subscribe(client, "util", "power")
        header, parts = read(client)
        assert header["type"] == "columns"
        assert list(parts) == ["metric:power"]
        codes = wire_format.read_full_column(parts["metric:power"])
        small.tick()
        header, parts = read(client)
        # (GPUs that nobody claims change their state with their use: their units come too.)
        encodings = {p["name"]: p["encoding"] for p in header["parts"] if p["name"] != "units"}
        assert encodings == {
            "metric:util": wire_format.ZIGZAG_PLANES,
            "metric:power": wire_format.ZIGZAG_PLANES,
        }
        codes = wire_format.read_changed_column(parts["metric:power"], codes)
        expected = samples(START_MS + 2 * TICK_MS).columns["power"]
        assert np.abs(live_scales()["power"].values(codes) - expected).max() <= 1.0
        subscribe(client, "power")
        until(lambda: small.service.feed.subscribed("default") == ["power"], "the subscription")
        small.tick()
        header, _ = read(client)
        assert {part["name"] for part in header["parts"]} - {"units"} == {"metric:power"}


def test_a_bad_subscription_is_answered_and_harms_nothing(
    lively: tuple[SmallService, str],
) -> None:
    small, url = lively
    with live(url) as client:
        client.send("{")
        header, _ = read(client)
        assert header["type"] == "error"
        read(client)
        client.send(json.dumps({"subscribe": ["utl"]}))
        header, _ = read(client)
        assert "did you mean 'util'" in header["detail"]
        small.tick()
        assert read(client)[0]["type"] == "tick"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '"x"',
        '{"subscribe": "util"}',
        '{"subscribe": [1]}',
        '{"subscribe": ["energy"]}',
        '{"cluster": 3}',
        '{"cluster": ""}',
        '{"x": 1}',
        json.dumps({"subscribe": ["util"] * 100}),
    ],
)
def test_subscriptions_are_checked(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_subscription(text)


def test_a_client_that_says_too_much_is_cut_off(lively: tuple[SmallService, str]) -> None:
    _, url = lively
    with live(url) as client:
        client.send("x" * 200_000)
        with pytest.raises(ConnectionClosed):
            [client.recv(timeout=60) for _ in range(100)]


def test_a_client_that_is_behind_gets_a_snapshot_instead_of_what_it_missed(
    lively: tuple[SmallService, str],
) -> None:
    small, url = lively
    with live(url) as client:
        subscribe(client, "util")
        read(client)
        state = live_routes.Client(sent_cluster="default", sent_seq=1, metrics=("util",))
        small.tick(10)
        messages = live_routes.next_messages(small.service.feed, state, live_routes.LiveClients())
        assert [wire_format.split_message(m)[0]["type"] for m in messages] == ["snapshot"]


def test_encoding_is_shared_by_all_clients(
    lively: tuple[SmallService, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small, url = lively
    encoded: list[int] = []
    plain = wire_format.changed_column

    def counted(now: Any, before: Any) -> bytes:
        encoded.append(1)
        return plain(now, before)

    monkeypatch.setattr("marey.live.frames.changed_column", counted)
    clients = [live(url) for _ in range(5)]
    for client in clients:
        subscribe(client, "util", "power")
        read(client)
    small.tick()
    for client in clients:
        assert read(client)[0]["type"] == "tick"
        client.close()
    assert len(encoded) == 2


# Of a server's sockets; the kernel takes twice this, and would take megabytes were it not told.
SEND_BUFFER = 200_000


class NoisySource(SmallSource):
    """Values that no compressor makes small."""

    def poll(self, now_ms: int) -> Sequence[Observation]:
        noise = np.random.default_rng(now_ms)

        def noisy(batch: SampleBatch) -> SampleBatch:
            columns = {
                name: noise.uniform(0, metric_named(name).maximum, len(batch)).astype(np.float32)
                for name in batch.columns
            }
            return replace(batch, columns=columns)

        return [
            replace(o, samples=tuple(noisy(batch) for batch in o.samples))
            for o in super().poll(now_ms)
        ]


def large_service(gpus: int) -> tuple[Service, HandClock]:
    """A service whose messages are large enough to fill any socket's buffer."""
    clock = HandClock()
    hosts = tuple(Host(f"h{i}") for i in range(gpus // 8))
    units = tuple(Gpu(host.host, index) for host in hosts for index in range(8))
    source = NoisySource([unit.gpu for unit in units])
    source.extra = [Observation(START_MS, hosts=hosts, gpus=units)]
    rules = CollectRules(TICK_MS, 20_000, 60_000)
    service = Service(Parts(open_store(None), [source], clock, rules))
    return service, clock


def stuck_client(url: str, *metrics: str) -> socket.socket:
    """A client that subscribes and then reads nothing."""
    host, port = url.removeprefix("http://").split(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    client.connect((host, int(port)))
    client.sendall(
        f"GET /api/v1/live HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        "Sec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    # The handshake is the last thing it reads.
    assert client.recv(1000).startswith(b"HTTP/1.1 101")
    text = json.dumps({"subscribe": metrics}).encode()
    # A masked text frame with a mask of zeros.
    client.sendall(b"\x81" + bytes([0x80 | 126]) + len(text).to_bytes(2) + bytes(4) + text)
    return client


def own_metric(url: str, name: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith(f"marey_{name} ")).split()[1])


def known_clients(url: str) -> float:
    return own_metric(url, "clients") + own_metric(url, "clients_dropped_total")


@pytest.mark.slow
def test_a_client_that_never_reads_costs_bounded_memory_and_harms_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_routes, "SEND_SECONDS", 5.0)
    service, clock = large_service(16_000)
    metrics = EVERYDAY
    service.collector.tick()
    with running(service, send_buffer=SEND_BUFFER) as url:
        stuck = [stuck_client(url, *metrics) for _ in range(3)]
        with live(url) as well:
            subscribe(well, *metrics)
            assert read(well)[0]["type"] == "snapshot"
            # On a slow machine the first of them may have been cut off already.
            until(lambda: known_clients(url) == 4, "every client")
            sent_before = own_metric(url, "live_bytes_total")
            seqs, sizes = [], []
            for _ in range(30):
                clock.advance()
                service.collector.tick()
                data = well.recv(timeout=60)
                assert isinstance(data, bytes)
                sizes.append(len(data))
                seqs.append(wire_format.split_message(data)[0]["seq"])
            assert seqs == list(range(seqs[0], seqs[0] + 30))
            # What was taken on for those that do not read: no more than the kernel's buffers of
            # their sockets and one message.
            taken_on = own_metric(url, "live_bytes_total") - sent_before - sum(sizes)
            most = 4 * SEND_BUFFER + 2 * max(sizes)
            assert taken_on < 3 * most < 3 * sum(sizes)
            # Sooner or later those that do not read are cut off.
            until(lambda: own_metric(url, "clients_dropped_total") == 3)
            until(lambda: own_metric(url, "clients") == 1)
            clock.advance()
            service.collector.tick()
            assert read(well)[0]["type"] == "tick"
        for client in stuck:
            client.close()
    service.stop()


def test_a_client_that_goes_without_a_word_is_forgotten(lively: tuple[SmallService, str]) -> None:
    small, url = lively
    client = live(url)
    subscribe(client, "util")
    read(client)
    assert small.service.feed.subscribed("default") == ["util"]
    client.socket.close()
    until(lambda: small.service.feed.subscribed("default") == [])
