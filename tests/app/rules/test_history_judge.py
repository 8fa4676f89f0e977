"""Rules judged while a history is made find what a rebuild from the store finds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from marey.app.assembly import open_service
from marey.app.rules.state_file import EvaluationLoopFiles
from marey.app.service import Service
from marey.app.settings.configuration import (
    CollectSettings,
    Configuration,
    ServerSettings,
    SimulatedSettings,
    StoreSettings,
)
from marey.model.times import parse_time


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("judged")
    source = SimulatedSettings(
        gpus=64,
        seed=3,
        speed=1.0,
        history_hours=6.0,
        until_ms=parse_time("2026-11-11T14:00Z"),
    )
    configuration = Configuration(
        server=ServerSettings(port=0),
        store=StoreSettings(path=str(folder / "demo.duckdb")),
        collect=CollectSettings(),
        sources=(source,),
    )
    made = open_service(configuration)
    yield made
    made.rule_watch.stop()
    made.store.close()


def test_a_history_that_was_just_made_is_judged_when_it_is_served(service: Service) -> None:
    watch = service.rule_watch
    assert not watch.preparing("default")
    assert watch.share_read("default") is None
    assert watch.loops["default"].latest is not None
    assert watch.findings.all("default")


def test_judging_while_it_is_made_finds_what_a_rebuild_finds(service: Service) -> None:
    watch, now_ms = service.rule_watch, service.workspace.now_ms()
    keeper = EvaluationLoopFiles(service.store, None, lambda: False)
    opened = keeper.open("default", service.rule_store.all(), [], now_ms)
    rebuilt = {(f.rule, f.workload) for f in opened.feed.loop.book.findings.values()}
    judged = {(f.rule, f.workload) for f in watch.findings.all("default")}
    assert len(judged & rebuilt) >= 0.9 * len(judged | rebuilt)


def test_a_long_past_is_shown_by_its_newest_hours_and_then_as_a_whole(service: Service) -> None:
    watch, now_ms = service.rule_watch, service.workspace.now_ms()
    whole = {f.id for f in watch.findings.all("default")}
    watch._feeds.clear()
    watch._open_first("default", now_ms)
    assert watch.preparing("default")
    assert watch.share_read("default") == 0.0
    watch._read_past()
    assert not watch.preparing("default")
    again = {f.id for f in watch.findings.all("default")}
    assert len(whole & again) >= 0.9 * len(whole | again)
