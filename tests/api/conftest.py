"""A service over the small cluster, collected for a few ticks, and its app."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from marey.app.collect.loop import CollectRules
from marey.app.service import Parts, Service
from marey.store.embedded.embedded_store import open_store
from tests.app.small_cluster import TICK_MS, HandClock, SmallSource
from tests.signed_in import owner_client

TICKS = 40


class SmallService:
    """The service, the clock that moves it, and a way to let a tick pass."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.source = SmallSource()
        rules = CollectRules(TICK_MS, 5_000, 60_000)
        self.folder = tempfile.TemporaryDirectory(prefix="marey-test-")
        uploads = Path(self.folder.name) / "uploads"
        self.service = Service(
            Parts(open_store(None), [self.source], self.clock, rules, uploads=uploads)
        )

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.service.collector.tick()
            self.clock.advance()


@pytest.fixture(scope="module")
def small() -> Iterator[SmallService]:
    made = SmallService()
    made.tick(TICKS)
    yield made
    made.service.stop()


@pytest.fixture(scope="module")
def client(small: SmallService) -> Iterator[TestClient]:
    with owner_client(small.service, raise_server_exceptions=False) as client:
        yield client
