"""A whole Marey whose samples are in a real VictoriaMetrics: same answers, through faults."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marey.app.assembly import open_service
from marey.app.diagnosis.diagnosis_query import AskDiagnosis
from marey.app.rules.rule_queries import AskBacktest
from marey.app.service import Service
from marey.app.settings.configuration import Configuration, StoreSettings
from marey.app.settings.source_settings import SimulatedSettings
from marey.model.errors import Conflict
from marey.model.protocols import Selection, WorkloadQuery
from marey.model.samples import SampleBatch
from marey.store.victoria.delivery.delivery_state import DeliveryRules
from marey.store.victoria.victoria_store import VictoriaStore
from tests.api.running import get_json, running
from tests.cli.processes import run
from tests.store.victoria.victoria_rig import VictoriaRig
from tests.waiting import until

# The same instant for both, so that both live through the same history.
WALL_MS = 1_763_200_800_000


@pytest.fixture
def rig(need_program: Callable[..., str], tmp_path: Path) -> Iterator[VictoriaRig]:
    made = VictoriaRig(need_program("victoria-metrics"), tmp_path / "vm", prompt=True)
    yield made
    made.stop()


def configured(path: Path, url: str = "", **more: Any) -> Configuration:
    """A small simulated cluster with its samples in the file, or at this address."""
    samples = {"samples": "victoriametrics", "url": url, "settle_ms": 300} if url else {}
    store = StoreSettings(path=str(path), **samples, **more)
    simulated = SimulatedSettings(gpus=64, seed=11, history_hours=2.0, speed=60.0)
    return Configuration(store=store, sources=(simulated,))


def opened(
    configuration: Configuration, monkeypatch: pytest.MonkeyPatch, patience_s: float = 0.8
) -> Service:
    """A service whose server confirms quickly and whose past ends at the same instant."""
    monkeypatch.setattr("marey.app.collect.clocks.WallClock.now_ms", lambda _: WALL_MS)
    monkeypatch.setattr(DeliveryRules, "patience_s", property(lambda _: patience_s))
    return open_service(configuration)


def samples_of(service: Service) -> Any:
    return service.store.samples


def test_charts_diagnosis_and_back_test_are_those_of_the_embedded_store(
    rig: VictoriaRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.start()
    services = [
        opened(configured(tmp_path / "here.duckdb"), monkeypatch),
        opened(configured(tmp_path / "there.duckdb", rig.url), monkeypatch),
    ]
    try:
        samples_of(services[1]).deliver_all(240)
        here, there = (service.workspace for service in services)
        assert here.store.span("default") == there.store.span("default")
        ran = [
            row["workload"]
            for row in here.workloads(WorkloadQuery()).to_pylist()
            if row["start_ms"] is not None
        ][:3]
        assert ran
        for workload in ran:
            asked = AskDiagnosis(workload)
            assert asked.ask(there) == asked.ask(here)
            selection = Selection(("util", "power"), 0, WALL_MS * 2, workload=workload)
            ours, theirs = (
                sorted(w.store.statistics(selection, [0.05, 0.5, 0.95]).table.to_pylist(), key=str)
                for w in (there, here)
            )
            assert [_rounded(row) for row in ours] == [_rounded(row) for row in theirs]
        backtest = AskBacktest(when="util mean < 90", since="2h")
        assert backtest.ask(there) == backtest.ask(here)
        past_ms = WALL_MS - 3_600_000
        frames = [w.frame_at("default", past_ms) for w in (there, here)]
        assert frames[0].units.still.equals(frames[1].units.still)
    finally:
        for service in services:
            service.stop()


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    def short(value: Any) -> Any:
        if isinstance(value, list):
            return [short(v) for v in value]
        return round(value, 3) if isinstance(value, float) else value

    return {name: short(value) for name, value in row.items()}


def moments_of(batches: Iterable[SampleBatch]) -> set[tuple[int, str]]:
    """Time and GPU of every utilization."""
    return {
        (int(batch.time_ms[row]), batch.entities[batch.entity[row]])
        for batch in batches
        for row in np.flatnonzero(~np.isnan(batch.columns["util"]))
    }


def status_of(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def metric(url: str, name: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line.split()[-1] for line in lines if line.startswith(f"{name} ")))


def test_a_server_that_dies_is_shown_as_stale_and_nothing_of_its_absence_is_lost(
    rig: VictoriaRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: set[tuple[int, str]] = set()
    append = VictoriaStore.append

    def noted(self: VictoriaStore, batches: Iterable[SampleBatch]) -> None:
        kept = list(batches)
        append(self, kept)
        written.update(moments_of(batch for batch in kept if "util" in batch.columns))

    monkeypatch.setattr(VictoriaStore, "append", noted)
    rig.start()
    # A killed server loses what it has not flushed yet: nothing that young may count as confirmed.
    service = opened(configured(tmp_path / "site.duckdb", rig.url), monkeypatch, patience_s=20.0)
    service.start()
    try:
        with running(service) as url:
            gpu = service.workspace.frame_at("default", None).units.still["gpu"][0].as_py()
            chart = f"{url}/api/v1/statistics?metrics=util&gpus={gpu}"
            assert status_of(chart)[0] == 200
            until(lambda: samples_of(service).delivery.queue.waiting()[0] < 20_000)
            assert get_json(f"{url}/healthz")["status"] == "ok"
            assert metric(url, "marey_sample_store_up") == 1

            rig.kill()
            until(lambda: get_json(f"{url}/healthz")["status"] == "degraded")
            health = get_json(f"{url}/healthz")
            assert "does not answer" in health["samples"]["error"]
            assert "VictoriaMetrics" in health["stale_sources"]
            ticks = health["ticks"]
            until(lambda: get_json(f"{url}/healthz")["ticks"] > ticks + 3)
            assert metric(url, "marey_sample_store_up") == 0
            assert metric(url, "marey_spill_bytes") > 0
            (store,) = [
                s for s in get_json(f"{url}/api/v1/sources")["rows"] if s["kind"] == "store"
            ]
            assert store["state"] == "stale"
            assert "wait on disk" in store["error"]
            # The live picture goes on; what would need the server says that it does not answer.
            assert get_json(f"{url}/api/v1/cluster")["time_ms"] > 0
            status, problem = status_of(chart)
            assert status == 503
            assert "does not answer" in problem["detail"]

            rig.start()
            until(lambda: get_json(f"{url}/healthz")["status"] == "ok")
            assert status_of(chart)[0] == 200
        service.collector.stop()
        samples_of(service).deliver_all(240)
        found = moments_of(service.store.scan(Selection(("util",), 0, WALL_MS * 2)))
        assert samples_of(service).state()["refused_samples"] == 0
    finally:
        service.stop()
    # Counts, not sets: their difference would be hundreds of thousands of lines.
    assert (len(written - found), len(found - written)) == (0, 0)


def test_a_server_that_is_down_at_the_start_does_not_keep_marey_from_starting(
    rig: VictoriaRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = opened(configured(tmp_path / "site.duckdb", rig.url), monkeypatch)
    service.stop()
    # The second time the cluster is taken up where it was left, still without the server.
    service = opened(configured(tmp_path / "site.duckdb", rig.url), monkeypatch)
    service.start()
    try:
        until(lambda: service.collector.counts.ticks > 2)
        assert service.collector.counts.errors == 0
        assert service.collector.counts.store_error == ""
        rig.start()
        samples_of(service).deliver_all(240)
        assert service.store.statistics(Selection(("util",), 0, WALL_MS * 2)).table.num_rows == 64
    finally:
        service.stop()


def test_a_file_says_where_its_samples_are(
    rig: VictoriaRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "site.duckdb"
    opened(configured(path, rig.url), monkeypatch).stop()
    with pytest.raises(Conflict, match="are in VictoriaMetrics"):
        opened(configured(path), monkeypatch)
    asked = run("series", "--store", path, "--gpus", "n:0")
    assert asked.returncode != 0
    assert f"samples of this store are in VictoriaMetrics at {rig.url}" in asked.stderr


def test_what_was_confirmed_survives_a_kill_of_the_server_as_it_is_shipped(
    need_program: Callable[..., str], tmp_path: Path
) -> None:
    """Nothing is flushed by hand: only the server's own rhythm, and the delivery's own patience."""
    from marey.store.victoria.http_server import ServerAddress
    from marey.store.victoria.victoria_store import VictoriaSettings, open_victoria
    from tests.store.victoria.test_victoria_faults import assert_holds
    from tests.store.victoria.victoria_writer import tick

    rig = VictoriaRig(need_program("victoria-metrics"), tmp_path / "vm").start()
    rules = DeliveryRules(settle_s=8.0)
    made = VictoriaSettings(ServerAddress(rig.url), tmp_path / "spill", delivery=rules)
    try:
        with open_victoria(made) as store:
            for k in range(20):
                store.append([tick(k)])
                time.sleep(0.05)
            until(lambda: store.delivery.queue.waiting() == (0, 0))
            rig.kill()
            rig.start()
            assert_holds(store, range(20))
            assert store.state()["resent_samples"] == 0
    finally:
        rig.stop()
