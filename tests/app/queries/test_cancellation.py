"""Long readings tell how far they are, and end when nobody waits any more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from marey.api.routes.diagnosis_routes import Window, watched
from marey.app.collect.clocks import StoredClock
from marey.app.diagnosis.diagnosis_query import AskDiagnosis
from marey.app.diagnosis.workload_matrix import load_matrix
from marey.app.queries.cancellation import RequestAbandoned, RunningWork
from marey.app.queries.workspace import Workspace
from marey.live.summary import SummaryLog
from marey.model.protocols import Selection
from marey.model.samples import SampleBatch
from marey.store.embedded.embedded_store import EmbeddedStore, open_store
from tests.app.diagnosis.test_diagnosis_cases import inventory, samples
from tests.waiting import run_in_loop


def parts(batch: SampleBatch, count: int) -> Iterator[SampleBatch]:
    """A batch in order of time, a part after another."""
    order = batch.time_ms.argsort(kind="stable")
    size = len(order) // count
    for first in range(0, len(order), size):
        rows = order[first : first + size]
        columns = {name: column[rows] for name, column in batch.columns.items()}
        yield SampleBatch(batch.time_ms[rows], batch.entity[rows], batch.entities, columns)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with open_store(tmp_path / "site.duckdb") as store:
        store.apply(inventory())
        store.append([samples("usual")])
        yield Workspace(store, StoredClock(store, store.clusters), {}, SummaryLog(store))


def test_a_reading_tells_how_far_it_is_and_stops_when_given_up(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float | None] = []
    with workspace.running_work.begin("default", "usual") as work:

        def scan(self: EmbeddedStore, selection: Selection) -> Iterator[SampleBatch]:
            for batch in parts(samples("usual"), 8):
                yield batch
                seen.append(workspace.running_work.share("default", "usual"))
                if len(seen) == 3:
                    work.give_up()

        monkeypatch.setattr(EmbeddedStore, "scan", scan)
        with pytest.raises(RequestAbandoned):
            load_matrix(replace(workspace, work=work), AskDiagnosis("usual"))
    assert len(seen) == 3, "what nobody waits for is not read"
    assert seen == sorted(seen)
    assert 0 < (seen[-1] or 0) < 1
    assert workspace.running_work.share("default", "usual") is None


def test_a_whole_reading_ends_near_one(workspace: Workspace) -> None:
    with workspace.running_work.begin("default", "usual") as work:
        load_matrix(replace(workspace, work=work), AskDiagnosis("usual"))
        assert work.share > 0.9


def test_two_questions_about_a_workload_do_not_disturb_each_other() -> None:
    works = RunningWork()
    with works.begin("default", "a") as first, works.begin("default", "a") as second:
        second.give_up()
        first.tell(0.5)
        with pytest.raises(RequestAbandoned):
            second.tell(0.7)
        assert works.share("default", "a") == 0.5
        assert works.share("default", "b") is None


def test_a_closed_connection_gives_the_work_up(workspace: Workspace) -> None:
    class Request:
        async def is_disconnected(self) -> bool:
            return True

    async def ask() -> None:
        service = cast(Any, SimpleNamespace(workspace=workspace))
        window = Window("usual", "default", None, None)
        async with aclosing(watched(cast(Any, Request()), service, window)) as spaces:
            async for space in spaces:
                await asyncio.sleep(0)
                assert space.work is not None
                with pytest.raises(RequestAbandoned):
                    space.work.tell(0.1)

    run_in_loop(ask())
