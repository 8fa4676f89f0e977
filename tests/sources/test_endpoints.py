"""Endpoints that change while Marey runs, and exporters whose clock is off."""

from __future__ import annotations

import socket
import time
from email.utils import formatdate
from pathlib import Path

import pytest

from marey.model.errors import Unavailable
from marey.sources import http_fetch
from marey.sources.dcgm import DcgmSource, ScrapeRules
from marey.sources.endpoints import RESOLVE_EVERY_MS, EndpointList
from marey.sources.exporter_clocks import ExporterClock
from marey.sources.http_fetch import count_connections_to_keep
from tests.sources.exporters import Behaviour, exporter, saying

NOW_MS = 1_794_771_650_000
GOOD = b'DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="n1"} 61\n'


def urls(listed: EndpointList, now_ms: int = NOW_MS) -> list[str] | None:
    found = listed.addresses(now_ms)
    return None if found is None else [f"{a.host}:{a.port}" for a in found]


def test_a_file_is_read_again_when_it_changes_and_a_wrong_one_changes_nothing(
    tmp_path: Path,
) -> None:
    file = tmp_path / "list"
    file.write_text("n1\n")
    listed = EndpointList(["n0"], file)
    assert urls(listed) == ["n0:9400", "n1:9400"]
    assert urls(listed) is None
    file.write_text("n1\nn2:9500\n")
    assert urls(listed) == ["n0:9400", "n1:9400", "n2:9500"]
    file.write_text("n1\nwhat is this\n")
    assert urls(listed) is None
    assert "is not an endpoint" in listed.errors["file"]
    file.unlink()
    assert urls(listed) is None
    file.write_text("n9\n")
    assert urls(listed) == ["n0:9400", "n9:9400"]
    assert listed.errors == {}


def test_every_address_behind_a_name_is_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [["10.0.0.2", "10.0.0.1"], OSError("no such name"), ["10.0.0.3", "fd00::1"]]

    def resolve(host: str, port: int, **_: object) -> list[object]:
        assert (host, port) == ("exporters.site", 9500)
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in answer]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    listed = EndpointList(names=["exporters.site:9500"])
    assert urls(listed) == ["10.0.0.1:9500", "10.0.0.2:9500"]
    assert urls(listed, NOW_MS + RESOLVE_EVERY_MS - 1) is None
    assert urls(listed, NOW_MS + RESOLVE_EVERY_MS) is None
    assert "not resolved" in listed.errors["exporters.site:9500"]
    assert urls(listed, NOW_MS + 2 * RESOLVE_EVERY_MS) == ["10.0.0.3:9500", "fd00::1:9500"]
    assert listed.errors == {}


def test_a_real_name_is_resolved() -> None:
    found = urls(EndpointList(names=["localhost:9400"]))
    assert found
    assert set(found) <= {"127.0.0.1:9400", "::1:9400"}


def test_exporters_come_and_go_while_the_source_runs() -> None:
    hosts: list[str] = []
    listed = EndpointList(hosts=lambda: hosts)
    source = DcgmSource("gpus", listed, ScrapeRules(timeout_s=60, spread_s=0))
    with exporter(saying(GOOD)) as one, exporter(saying(GOOD.replace(b"n1", b"n2"))) as two:
        with pytest.raises(Unavailable, match="no endpoints yet"):
            source.poll(NOW_MS)
        hosts.append(one)
        first = source.poll(NOW_MS)[0].samples[0]
        kept = source.endpoints[0]
        hosts.append(two)
        both = source.poll(NOW_MS + 1)[0].samples[0]
        assert kept in source.endpoints
        hosts.remove(one)
        last = source.poll(NOW_MS + 2)[0].samples[0]
        assert [sorted(b.entities) for b in (first, both, last)] == [
            ["n1:0"],
            ["n1:0", "n2:0"],
            ["n2:0"],
        ]
    source.close()


def test_the_limit_of_open_files_is_raised_as_far_as_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = [(1024, 4096)]

    def change(_: int, wanted: tuple[int, int]) -> None:
        limits[0] = wanted

    monkeypatch.setattr(http_fetch.resource, "getrlimit", lambda _: limits[0])
    monkeypatch.setattr(http_fetch.resource, "setrlimit", change)
    assert (count_connections_to_keep(100), limits[0]) == (100, (1224, 4096))
    assert (count_connections_to_keep(10_000), limits[0]) == (2048, (4096, 4096))


# Clocks


def dated(body: str, off_s: float) -> Behaviour:
    """An exporter whose clock is off, and which stamps its lines by it."""

    def behave(connection: socket.socket, path: str) -> None:
        stamp = round((time.time() + off_s) * 1000)
        text = body.format(stamp).encode()
        date = formatdate(time.time() + off_s, usegmt=True)
        head = f"HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: {len(text)}\r\n\r\n"
        connection.sendall(head.encode() + text)

    return behave


@pytest.mark.parametrize("off_s", [-600, 600])
def test_an_exporter_whose_clock_is_ten_minutes_off_is_read_and_told(off_s: int) -> None:
    stamped = 'DCGM_FI_DEV_GPU_TEMP{{gpu="0",Hostname="n1"}} 61 {}\n'
    now_ms = round(time.time() * 1000)
    with exporter(dated(stamped, off_s)) as place:
        listed = EndpointList([place])
        source = DcgmSource("gpus", listed, ScrapeRules(timeout_s=60))
        (seen,) = source.poll(now_ms)
        offsets = source.clock_offsets()
        source.close()
    (batch,) = seen.samples
    # The value is of now, by our clock.
    assert batch.time_ms.tolist() == [now_ms]
    assert batch.columns["temp"].tolist() == [61.0]
    assert list(offsets.values()) == [pytest.approx(off_s * 1000, abs=3000)]


@pytest.mark.parametrize(
    ("off_s", "message"), [(-600, "values that are too old"), (600, "values of a time to come")]
)
def test_times_far_from_an_exporters_own_clock_are_refused(off_s: int, message: str) -> None:
    stamp = round((time.time() + off_s) * 1000)
    body = f'DCGM_FI_DEV_GPU_TEMP{{{{gpu="0",Hostname="n1"}}}} 61 {stamp}\n'
    with exporter(dated(body, 0)) as place:
        source = DcgmSource("gpus", EndpointList([place]), ScrapeRules(timeout_s=60))
        with pytest.raises(Unavailable, match=message):
            source.poll(round(time.time() * 1000))
        source.close()


@pytest.mark.parametrize("date", [b"", b"yesterday", b"\xff\xfe", b"Thu, 99 Foo 9999 99:99:99 GMT"])
def test_a_date_that_is_none_says_nothing(date: bytes) -> None:
    clock = ExporterClock()
    clock.note(date, NOW_MS)
    assert clock.ahead_ms == 0
