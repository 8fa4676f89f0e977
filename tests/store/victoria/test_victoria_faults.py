"""VictoriaMetrics down, killed, slow, refusing; the spill full, damaged, held; Marey killed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marey.model.errors import Conflict, InvalidInput, StoreError, Unavailable
from marey.model.protocols import Selection
from marey.model.samples import SampleBatch
from marey.store.victoria.delivery.delivery_state import DeliveryRules
from marey.store.victoria.delivery.spill import read_aside
from marey.store.victoria.http_server import ServerAddress
from marey.store.victoria.victoria_store import VictoriaSettings, VictoriaStore, open_victoria
from tests.conftest import ROOT
from tests.store.victoria.victoria_rig import Relay, VictoriaRig
from tests.store.victoria.victoria_writer import GPUS, T0, TICK, tick
from tests.waiting import until

EVERYTHING = Selection(("util", "power"), 0, T0 + 10**9)
# The servers of these tests show at once what they were sent (see ``prompt``).
QUICK = DeliveryRules(settle_s=0.3, visible_s=0.8)


@pytest.fixture(scope="module")
def server(
    need_program: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VictoriaRig]:
    """A server that lives on."""
    rig = VictoriaRig(
        need_program("victoria-metrics"), tmp_path_factory.mktemp("vm"), prompt=True
    ).start()
    yield rig
    rig.stop()


@pytest.fixture
def mortal(need_program: Callable[..., str], tmp_path: Path) -> Iterator[VictoriaRig]:
    """A server of the test's own, not started yet."""
    rig = VictoriaRig(need_program("victoria-metrics"), tmp_path / "mortal", prompt=True)
    yield rig
    rig.stop()


@pytest.fixture
def relay(server: VictoriaRig) -> Iterator[Relay]:
    """A way to the server that misbehaves as told."""
    made = Relay(server)
    yield made
    made.close()


def opened(url: str, folder: Path, **more: Any) -> VictoriaStore:
    """A store with a site of its own, by the name of the test's folder."""
    deliver = more.pop("deliver", True)
    address = ServerAddress(
        url, timeout_s=more.pop("timeout_s", 30.0), secret=more.pop("secret", "")
    )
    site = f"{folder.parent.name}/{folder.name}"
    rules = more.pop("delivery", QUICK)
    settings = VictoriaSettings(address, folder / "spill", site=site, delivery=rules, **more)
    return open_victoria(settings, deliver=deliver)


def confirmed(store: VictoriaStore) -> None:
    until(lambda: store.delivery.queue.waiting() == (0, 0), "confirmation")


def assert_holds(store: VictoriaStore, ticks: range) -> None:
    """Every GPU has every tick once, with its value."""
    table = store.statistics(EVERYTHING).table
    assert set(table["count"].to_pylist()) == {len(ticks)}
    assert table.num_rows == 2 * len(GPUS)
    seen: dict[int, set[float]] = {}
    for batch in store.scan(EVERYTHING):
        for time_ms in np.unique(batch.time_ms):
            at = batch.time_ms == time_ms
            assert at.sum() == len(GPUS)
            seen.setdefault(int(time_ms), set()).update(batch.columns["util"][at].tolist())
    assert seen == {T0 + k * TICK: {float(k % 101)} for k in ticks}


def raw_counts(rig: VictoriaRig, store: VictoriaStore, name: str = "marey_util") -> set[int]:
    """How many samples the server itself holds per series."""
    rig.flush()
    site = store.delivery._sender._writer._site
    series = rig.exported(f'{{__name__="{name}",marey="{site}"}}')
    assert len(series) == len(GPUS)
    return {len(one["values"]) for one in series}


def test_a_server_that_is_down_at_the_start_gets_everything_once_when_it_comes(
    mortal: VictoriaRig, tmp_path: Path
) -> None:
    with opened(mortal.url, tmp_path) as store:
        for k in range(5):
            store.append([tick(k)])
        until(lambda: not store.delivery.state.reachable, "the failure")
        assert "does not answer" in store.state()["error"]
        assert store.state()["waiting_rows"] == 5 * len(GPUS)
        with pytest.raises(Unavailable, match=rf"VictoriaMetrics at {mortal.url} does not answer"):
            store.series(EVERYTHING, 10)
        assert store.clusters() == ["default"]
        mortal.start()
        confirmed(store)
        assert store.state()["error"] == ""
        assert_holds(store, range(5))
        assert raw_counts(mortal, store) == {5}


def test_a_server_killed_in_the_middle_of_writes_loses_and_doubles_nothing(
    mortal: VictoriaRig, tmp_path: Path
) -> None:
    mortal.start()
    written = 0
    stop = threading.Event()
    # A kill loses what came in the last 5 s: nothing younger may count as confirmed.
    rules = DeliveryRules(settle_s=8.0, visible_s=0.8)
    with opened(mortal.url, tmp_path, delivery=rules) as store:

        def write() -> None:
            nonlocal written
            while not stop.is_set():
                store.append([tick(written)])
                written += 1
                time.sleep(0.01)

        writer = threading.Thread(target=write)
        writer.start()
        state = store.delivery.state
        for more in (40, 25):
            until(lambda: state.reachable, "the server's answer")
            enough, failures = written + more, state.failures
            until(lambda enough=enough: written >= enough, "more writes")
            mortal.kill()
            until(lambda failures=failures: state.failures > failures, "a failure")
            mortal.start()
        enough = written + 25
        until(lambda: written >= enough, "more writes")
        stop.set()
        writer.join()
        confirmed(store)
        assert_holds(store, range(written))
        assert raw_counts(mortal, store) == {written}


def test_what_a_killed_server_had_shown_but_not_kept_is_sent_again(
    mortal: VictoriaRig, tmp_path: Path
) -> None:
    mortal.start()
    # Killed before it is looked for, and before the server puts it on disk, which takes it 5 s.
    with opened(mortal.url, tmp_path, delivery=DeliveryRules(settle_s=4.0, visible_s=4.0)) as store:
        store.append([tick(0)])
        until(lambda: store.delivery.state.delivered_samples > 0, "the delivery")
        mortal.kill()
        mortal.start()
        confirmed(store)
        assert store.delivery.state.resent_samples > 0
        assert_holds(store, range(1))


def test_an_answer_that_is_lost_on_the_way_doubles_nothing(
    relay: Relay, server: VictoriaRig, tmp_path: Path
) -> None:
    with opened(relay.url, tmp_path) as store:
        relay.behaviour = "lose the answer"
        store.append([tick(0)])
        until(lambda: store.delivery.state.failures >= 1, "the failure")
        relay.behaviour = "pass"
        store.append([tick(1)])
        confirmed(store)
        assert_holds(store, range(2))
        assert raw_counts(server, store) == {2}


def test_a_slow_server_is_waited_for_no_longer_than_told(
    relay: Relay, server: VictoriaRig, tmp_path: Path
) -> None:
    with opened(relay.url, tmp_path, timeout_s=0.4) as store:
        relay.behaviour = "slow"
        store.append([tick(0)])
        until(lambda: "timed out" in store.state()["error"], "the failure")
        relay.behaviour = "pass"
        confirmed(store)
    with opened(server.url, tmp_path) as store:
        assert_holds(store, range(1))


def test_a_write_never_waits_for_the_server(relay: Relay, tmp_path: Path) -> None:
    with opened(relay.url, tmp_path, timeout_s=30.0) as store:
        relay.behaviour = "hold"
        store.append([tick(0)])
        until(lambda: relay.writes > 0, "the import")
        store.append([tick(1)])
        assert relay.held_out == 0
        relay.let_go.set()
        relay.behaviour = "pass"
        confirmed(store)
        assert_holds(store, range(2))


def test_a_refused_secret_is_named_and_nothing_is_given_up(relay: Relay, tmp_path: Path) -> None:
    relay.behaviour = 401
    with opened(relay.url, tmp_path, secret="me:wrong") as store:
        store.append([tick(0)])
        until(lambda: "401" in store.state()["error"], "the refusal")
        assert "store.token_env" in store.state()["error"]
        assert relay.authorization == "Basic bWU6d3Jvbmc="
        assert store.state()["refused_samples"] == 0
        relay.behaviour = "pass"
        confirmed(store)
        assert_holds(store, range(1))


def test_a_delivery_that_is_refused_for_itself_is_set_aside_with_the_reason(
    relay: Relay, tmp_path: Path
) -> None:
    relay.behaviour = 400
    with opened(relay.url, tmp_path) as store:
        store.append([tick(0)])
        until(lambda: store.state()["refused_samples"] > 0, "the refusal")
        relay.behaviour = "pass"
        store.append([tick(1)])
        confirmed(store)
        state = store.state()
        assert state["refused_samples"] == 2 * len(GPUS)
        assert "400" in state["refused_reason"]
        assert "\x1b" not in state["refused_reason"]
        (aside,) = (tmp_path / "spill").glob("*.refused")
        (kept,) = read_aside(aside)
        assert kept.columns["util"].tolist() == tick(0).columns["util"].tolist()
        assert "400" in aside.with_suffix(".reason").read_text()
        assert_holds(store, range(1, 2))


def test_samples_that_the_server_takes_and_forgets_are_told_and_kept(
    server: VictoriaRig, tmp_path: Path
) -> None:
    ahead = int(time.time() * 1000) + 30 * 86_400_000
    future = SampleBatch(
        np.array([ahead], np.int64), np.zeros(1, np.int32), ("n0:0",), {"util": np.float32([7])}
    )
    with opened(server.url, tmp_path) as store:
        store.append([future])
        store.append([tick(0)])
        confirmed(store)
        state = store.state()
        assert state["refused_samples"] == 1
        assert "two days ahead" in state["refused_reason"]
        (aside,) = (tmp_path / "spill").glob("*.refused")
        assert read_aside(aside)[0].time_ms.tolist() == [ahead]
        assert_holds(store, range(1))


def test_a_full_spill_says_so_and_goes_on_when_there_is_room(
    mortal: VictoriaRig, tmp_path: Path
) -> None:
    with opened(mortal.url, tmp_path, spill_limit_bytes=1 << 16) as store:
        store.append([tick(0)])
        until(lambda: not store.delivery.state.reachable, "the failure")
        each = store.state()["spill_bytes"]
        kept = (1 << 16) // each
        for k in range(1, kept):
            store.append([tick(k)])
        with pytest.raises(StoreError, match=r"is full .*does not answer.*store\.spill_limit"):
            store.append([tick(kept)])
        assert 0 < store.state()["spill_bytes"] <= 1 << 16
        mortal.start()
        confirmed(store)
        store.append([tick(kept)])
        confirmed(store)
        assert_holds(store, range(kept + 1))


def test_a_full_disk_says_so_and_keeps_what_was_there(
    server: VictoriaRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with opened(server.url, tmp_path, deliver=False) as store:
        store.append([tick(0)])
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(StoreError, match=r"disk of the spill .* is full"):
                store.append([tick(1)])
        assert not list((tmp_path / "spill").glob("*.part"))
        store.append([tick(2)])
        store.deliver_all()
        assert {int(t - T0) // TICK for b in store.scan(EVERYTHING) for t in b.time_ms} == {0, 2}


def test_a_history_that_fails_half_way_leaves_nothing(server: VictoriaRig, tmp_path: Path) -> None:
    def history() -> Iterator[SampleBatch]:
        yield tick(0)
        raise InvalidInput("line 2 is no sample")

    with opened(server.url, tmp_path, deliver=False) as store:
        with pytest.raises(InvalidInput, match="line 2"):
            store.append(history())
        assert store.delivery.queue.waiting() == (0, 0)
        assert list(store.scan(EVERYTHING)) == []


def test_a_process_killed_between_write_and_confirmation_loses_and_doubles_nothing(
    server: VictoriaRig, tmp_path: Path
) -> None:
    site = f"{tmp_path.parent.name}/{tmp_path.name}"
    spill = tmp_path / "spill"
    kept = -1
    for life_s in (0.9, 0.3, 1.6):
        command = [sys.executable, "-m", "tests.store.victoria.victoria_writer"]
        command += [server.url, str(spill), site, str(kept + 1)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(life_s)
        process.kill()
        rest = process.stdout.read().split()
        process.wait()
        kept = int([first, *rest][-1])
    assert list(spill.glob("*.samples")), "something was still unconfirmed"
    with opened(server.url, tmp_path) as store:
        # A write may have been kept that the process did not live to tell.
        confirmed(store)
        last = store.span("default")
        assert last is not None
        ticks = (last[1] - T0) // TICK + 1
        assert ticks in (kept + 1, kept + 2)
        assert_holds(store, range(ticks))
        assert raw_counts(server, store) == {ticks}


def test_a_correction_survives_a_restart_before_it_was_confirmed(
    server: VictoriaRig, tmp_path: Path
) -> None:
    def said(value: float) -> SampleBatch:
        return SampleBatch(
            np.array([T0], np.int64),
            np.zeros(1, np.int32),
            ("n0:0",),
            {"util": np.array([value], np.float32)},
        )

    def found(store: VictoriaStore) -> list[float]:
        return store.statistics(EVERYTHING).table["last"].to_pylist()

    with opened(server.url, tmp_path, deliver=False) as store:
        for value in (10, 20, 10):
            store.append([said(value)])
        for _ in range(3):
            store.delivery.step()
        server.flush()
        assert found(store) == [10.0]
    with opened(server.url, tmp_path, deliver=False) as store:
        store.append([said(30)])
        assert found(store) == [30.0]
        store.deliver_all()
        assert found(store) == [30.0]
        assert store.statistics(EVERYTHING).table["count"].to_pylist() == [1]


def test_a_damaged_file_of_the_spill_is_set_aside_and_the_rest_delivered(
    server: VictoriaRig, tmp_path: Path
) -> None:
    with opened(server.url, tmp_path, deliver=False) as store:
        for k in range(3):
            store.append([tick(k)])
    files = sorted((tmp_path / "spill").glob("*.samples"))
    content = bytearray(files[1].read_bytes())
    content[len(content) // 2] ^= 0xFF
    files[1].write_bytes(content)
    with opened(server.url, tmp_path) as store:
        confirmed(store)
        assert {int(t - T0) // TICK for b in store.scan(EVERYTHING) for t in b.time_ms} == {0, 2}
        assert (tmp_path / "spill" / files[1].with_suffix(".refused").name).exists()
        assert "cannot be read" in store.state()["refused_reason"]


def test_one_process_holds_the_spill(server: VictoriaRig, tmp_path: Path) -> None:
    with opened(server.url, tmp_path), pytest.raises(Conflict, match="held by another"):
        opened(server.url, tmp_path)


def test_readers_see_every_sample_once_at_every_moment_of_its_delivery(
    server: VictoriaRig, tmp_path: Path
) -> None:
    with opened(server.url, tmp_path) as store:
        looks = 0
        for k in range(12):
            store.append([tick(k)])
            for _ in range(3):
                counts = store.statistics(Selection(("util",), 0, T0 + 10**9)).table["count"]
                assert set(counts.to_pylist()) == {k + 1}
                assert len(counts) == len(GPUS)
                looks += 1
                time.sleep(0.05)
        assert looks == 36
        confirmed(store)
        assert_holds(store, range(12))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("127.0.0.1:8428", "not the address"),
        ("ftp://h", "not the address"),
        ("http://u:p@h:1", "token_env"),
    ],
)
def test_a_wrong_address_is_refused(tmp_path: Path, url: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        opened(url, tmp_path)
