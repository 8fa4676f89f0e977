"""Scraping exporters that hang, lie, flood, babble or repeat old news; real sockets on loopback."""

from __future__ import annotations

import asyncio
import gzip
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from marey.model.errors import InvalidInput, Unavailable
from marey.model.events import ClusterEventKind
from marey.model.metrics import Entity
from marey.model.observation import Observation
from marey.sources.dcgm import DcgmSource, ScrapeRules
from marey.sources.endpoints import read_endpoint_addresses
from marey.sources.host_rates import HostRates
from marey.sources.http_fetch import parse_address, unpack_body
from tests.sources.exporters import (
    Behaviour,
    answer,
    endless,
    exporter,
    hanging,
    raw,
    saying,
)

NOW_MS = 1_794_771_650_000
GOOD = b'DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="good"} 61\n'


@contextmanager
def source(*behaviours: Behaviour, **given: object) -> Iterator[DcgmSource]:
    with ExitStack() as stack:
        names = [stack.enter_context(exporter(behave)) for behave in behaviours]
        rules = ScrapeRules(**{"timeout_s": 60.0, "spread_s": 0.0, **given})
        made = DcgmSource("gpus", read_endpoint_addresses(names), rules)
        stack.callback(made.close)
        yield made


def values(observation: Observation, kind: Entity = Entity.GPU) -> dict[str, dict[str, float]]:
    return {
        batch.entities[code]: {m: round(float(c[row]), 3) for m, c in batch.columns.items()}
        for batch in observation.samples
        if batch.kind is kind
        for row, code in enumerate(batch.entity.tolist())
    }


def test_every_exporter_is_asked_over_a_kept_connection() -> None:
    asked: list[int] = []
    behave = saying(lambda: (asked.append(1), GOOD)[1])
    with source(behave) as made:
        for tick in range(3):
            (seen,) = made.poll(NOW_MS + tick)
            assert values(seen) == {"good:0": {"temp": 61.0}}
        assert len(asked) == 3
        assert [e.last_ms for e in made.endpoints] == [NOW_MS + 2]


BAD: dict[str, tuple[Behaviour, str]] = {
    "hangs": (hanging, "no answer within 3 s"),
    "announces more than it sends": (
        raw(answer(GOOD, length=len(GOOD) + 50)),
        "of .* announced",
    ),
    "announces a gigabyte": (raw(answer(b"", length=1 << 30), close=False), "announces 1073741824"),
    "sends a gigabyte": (endless, "sends more than 16777216 bytes"),
    "sends garbage for HTTP": (raw(b"\x00\xff" * 500), "is no HTTP"),
    "sends garbage for text": (saying(b"\xff\xfe\x00 {{{ \n" * 50), "no metric of the catalogue"),
    "closes at once": (raw(b""), "ended the connection"),
    "fails": (saying(b"boom", status="500 Internal Server Error"), "status 500: boom"),
    "sends an old time": (
        saying(b'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 61 1000000000000\n'),
        "too old",
    ),
    "has many headers": (
        raw(b"HTTP/1.1 200 OK\r\n" + b"".join(b"H%d: x\r\n" % n for n in range(300)) + b"\r\n"),
        "headers",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_an_exporter_that_misbehaves_is_named_and_holds_up_no_other(what: str) -> None:
    behave, message = BAD[what]
    # Long enough for the good one on a busy machine, also where somebody must be waited for.
    with source(behave, saying(GOOD), timeout_s=3.0 if what == "hangs" else 60.0) as made:
        (seen,) = made.poll(NOW_MS)
        assert values(seen) == {"good:0": {"temp": 61.0}}
        bad, good = made.endpoints
        assert good.error == ""
        assert re.search(message, bad.error), bad.error


def test_more_than_announced_is_cut_off_and_the_connection_dropped() -> None:
    with source(raw(answer(GOOD, length=len(GOOD)) + b"junk junk", close=False)) as made:
        made.poll(NOW_MS)
        (seen,) = made.poll(NOW_MS + 1)
        assert values(seen) == {"good:0": {"temp": 61.0}}


def test_an_answer_may_be_chunked_packed_or_without_a_length() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
    packed = gzip.compress(GOOD)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    for data in (
        chunked % (len(GOOD), GOOD),
        head + packed,
        b"HTTP/1.0 200 OK\r\n\r\n" + GOOD,
    ):
        with source(raw(data)) as made:
            (seen,) = made.poll(NOW_MS)
            assert values(seen) == {"good:0": {"temp": 61.0}}


def test_an_exporter_that_hangs_on_a_kept_connection_is_given_up_in_time() -> None:
    asked: list[int] = []

    def behave(connection: socket.socket, path: str) -> None:
        asked.append(1)
        (hanging if len(asked) == 2 else saying(GOOD))(connection, path)

    with source(behave, saying(GOOD), timeout_s=2.0) as made:
        made.poll(NOW_MS)
        # It would hang for ever.
        made.poll(NOW_MS + 1)
        assert made.endpoints[0].error == "no answer within 2 s"
        made.poll(NOW_MS + 2)
        assert made.endpoints[0].error == ""


def test_no_more_exporters_than_allowed_are_asked_at_once_and_all_are_asked() -> None:
    busy: list[int] = []
    most: list[int] = []

    def behave(number: int) -> Behaviour:
        def answer_slowly(connection: socket.socket, path: str) -> None:
            busy.append(number)
            most.append(len(busy))
            time.sleep(0.02)
            # Off before the answer: the next request may follow it at once.
            busy.remove(number)
            saying(b'DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="n%d"} 50\n' % number)(connection, path)

        return answer_slowly

    with source(*map(behave, range(9)), at_once=3, spread_s=0.05) as made:
        (seen,) = made.poll(NOW_MS)
        # In the order in which they are listed, whatever the order in which they were asked.
        assert list(values(seen)) == [f"n{number}:0" for number in range(9)]
    assert max(most) <= 3


@pytest.mark.parametrize("missing", [False, True])
def test_exporters_are_scraped_with_and_without_uvloop(
    missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    with source(hanging, saying(GOOD), raw(b""), timeout_s=2.0) as made:
        (seen,) = made.poll(NOW_MS)
        assert values(seen) == {"good:0": {"temp": 61.0}}
        assert isinstance(made._loop, asyncio.SelectorEventLoop) is missing


def test_a_packed_flood_is_not_unpacked() -> None:
    bomb = gzip.compress(b"\0" * (4 << 20))
    with pytest.raises(Unavailable, match="packed"):
        unpack_body(bomb, 1 << 20)
    with pytest.raises(Unavailable, match="not gzip"):
        unpack_body(b"abc", 1 << 20)


def test_when_no_exporter_answers_the_source_is_unavailable() -> None:
    silent = pytest.raises(Unavailable, match=r"None of 1 exporters answers; http://127")
    with source(raw(b"")) as made, silent:
        made.poll(NOW_MS)


def test_silence_and_return_of_an_exporter_are_events_once_and_it_is_asked_less() -> None:
    state = {"up": False, "asked": 0}

    def behave(connection: object, path: str) -> None:
        state["asked"] += 1
        if state["up"]:
            saying(b'DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="n2"} 50\n')(connection, path)
        else:
            raw(b"")(connection, path)

    with source(behave, saying(GOOD)) as made:
        events = [e for tick in range(6) for o in made.poll(NOW_MS + tick * 1000) for e in o.events]
        assert [e.kind for e in events] == [ClusterEventKind.SOURCE_STALE]
        assert state["asked"] == 3
        state["up"] = True
        (seen,) = made.poll(NOW_MS + 60_000)
        assert [e.kind for e in seen.events] == [ClusterEventKind.SOURCE_BACK]
        assert "n2:0" in values(seen)


def test_only_a_change_of_an_xid_is_an_event() -> None:
    xids = iter([79, 79, 31, 31, 0, 31])
    text = 'DCGM_FI_DEV_XID_ERRORS{{gpu="0",Hostname="n"}} {}\n'
    with source(saying(lambda: text.format(next(xids)).encode())) as made:
        told = [
            [(e.kind, e.gpu, e.value) for e in made.poll(NOW_MS + tick)[0].events]
            for tick in range(6)
        ]
    event = (ClusterEventKind.XID, "n:0", 31.0)
    assert told == [[], [], [event], [], [], [event]]


def test_hosts_and_gpus_are_announced_once_and_only_where_no_scheduler_does() -> None:
    text = b'DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="n",UUID="GPU-a",modelName="H100"} 1\n'
    with source(saying(text)) as made:
        (first,), (second,) = made.poll(NOW_MS), made.poll(NOW_MS + 1)
        assert [(g.gpu, g.uuid, g.model) for g in first.gpus] == [("n:0", "GPU-a", "H100")]
        assert [h.host for h in first.hosts] == ["n"]
        assert second.gpus == second.hosts == ()
    with source(saying(text), announces=False) as made:
        assert made.poll(NOW_MS)[0].gpus == ()


def test_two_exporters_that_name_one_gpu_give_it_once() -> None:
    with source(saying(GOOD), saying(GOOD)) as made:
        (seen,) = made.poll(NOW_MS)
        assert [len(batch) for batch in seen.samples] == [1]


def test_links_of_amd_become_rates_and_a_reset_is_no_value() -> None:
    totals = iter([1_000_000, 3_000_000, 5, 1_000_005])
    labels = '{{gpu_id="0",hostname="n"}}'
    text = f"gpu_xgmi_link_tx{labels} {{}}\ngpu_gfx_activity{labels} 5\n"
    with source(saying(lambda: text.format(next(totals)).encode())) as made:
        seen = [values(made.poll(NOW_MS + tick * 10_000)[0])["n:0"] for tick in range(4)]
    assert [found.get("nvlink_tx") for found in seen] == [None, 200.0, None, 100.0]


NODE = """node_load1 {load}
node_memory_MemTotal_bytes 1048576000
node_memory_MemAvailable_bytes 262144000
node_cpu_seconds_total{{cpu="0",mode="idle"}} {idle}
node_cpu_seconds_total{{cpu="0",mode="user"}} {user}
node_network_receive_bytes_total{{device="lo"}} {lo}
node_network_receive_bytes_total{{device="eth0"}} {eth}
"""


def test_node_exporter_counters_become_levels_of_the_host() -> None:
    texts = iter(
        [
            NODE.format(load=1, idle=100, user=100, lo=0, eth=0),
            NODE.format(load=2, idle=102.5, user=107.5, lo=10**12, eth=50_000_000),
            NODE.format(load=3, idle=1, user=1, lo=0, eth=7),
        ]
    )
    with source(saying(lambda: next(texts).encode())) as made:
        seen = [values(made.poll(NOW_MS + t * 10_000)[0], Entity.HOST) for t in range(3)]
    memory = {"host_mem_share": 75.0, "host_mem_used": 750.0}
    assert seen[0] == {"127.0.0.1": {"host_load": 1.0, **memory}}
    assert seen[1] == {
        "127.0.0.1": {"host_load": 2.0, **memory, "host_cpu": 75.0, "host_net_rx": 5.0}
    }
    assert seen[2] == {"127.0.0.1": {"host_load": 3.0, **memory}}


def test_a_device_that_appears_is_no_jump() -> None:
    rates = HostRates()
    name = "node_disk_read_bytes_total"
    rates.levels({name: {'device="sda"': 0.0}}, 0)
    found = rates.levels({name: {'device="sda"': 1e6, 'device="sdb"': 1e15}}, 1000)
    assert found == {"host_fs_read": 1.0}


def test_endpoints_come_from_a_list_and_a_file(tmp_path: Path) -> None:
    file = tmp_path / "endpoints"
    file.write_text("# rack 1\nnode2\nnode3:9500  # odd port\n\nnode2\n")
    found = read_endpoint_addresses(["https://node1/x"], file)
    assert [(a.host, a.port, a.path, a.secure) for a in found] == [
        ("node1", 443, "/x", True),
        ("node2", 9400, "/metrics", False),
        ("node3", 9500, "/metrics", False),
    ]
    with pytest.raises(InvalidInput, match="allowed: 1 to"):
        read_endpoint_addresses([])
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_endpoint_addresses([], tmp_path / "none")


@pytest.mark.parametrize("text", ["ftp://x", "http://", "a b", "http://[::1", "x:99999", "nöde"])
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not an endpoint"):
        parse_address(text)
