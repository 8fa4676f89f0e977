"""What the store remembers of its file is given back every hour, and never from under a reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marey.model.protocols import Selection
from marey.model.samples import SampleBatch
from marey.model.times import HOUR_MS
from marey.store.database import database_file
from marey.store.embedded.embedded_store import EmbeddedStore, open_store

T0 = 1_763_200_800_000
GPUS = 5_000
NAMES = tuple(f"n{i}:0" for i in range(GPUS))
METRICS = ("power", "sm_clock", "mem_used", "pcie_rx")
ALL = Selection(METRICS, 0, T0 * 2)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddedStore:
    """A store with an hour that has ended, which keeps next to nothing in memory."""
    monkeypatch.setattr(database_file, "_CACHE_KEPT_MB", 1)
    store = open_store(tmp_path / "store.marey")
    random = np.random.default_rng(1)
    for k in range(120):
        time_ms = np.full(GPUS, T0 + k * 30_000, np.int64)
        values = {m: (random.random(GPUS) * 300).astype(np.float32) for m in METRICS}
        store.append([SampleBatch(time_ms, np.arange(GPUS, dtype=np.int32), NAMES, values)])
    return store


def held_mb(store: EmbeddedStore) -> float:
    """What DuckDB holds of the file, as it counts itself."""
    with store._database.read() as connection:
        query = "SELECT sum(memory_usage_bytes) FROM duckdb_memory() WHERE tag = 'BASE_TABLE'"
        row = connection.execute(query).fetchone()
    return float(row[0]) / 1e6 if row else 0.0


def test_pages_are_given_back_once_an_hour_is_in_order(store: EmbeddedStore) -> None:
    store.maintain(T0 + 2 * HOUR_MS)
    assert held_mb(store) <= 1.1
    assert sum(len(batch) for batch in store.scan(ALL)) == 120 * GPUS
    assert held_mb(store) > 2, "the hour is too small to show anything"
    store._database.release_cache()
    assert held_mb(store) <= 1.1


def limit_of(store: EmbeddedStore) -> str:
    with store._database.read() as connection:
        row = connection.execute("SELECT current_setting('memory_limit')").fetchone()
    assert row is not None
    return str(row[0])


def test_nothing_is_taken_from_under_a_reader_and_the_limit_stays(store: EmbeddedStore) -> None:
    limit = limit_of(store)
    store.maintain(T0 + 2 * HOUR_MS)
    assert limit_of(store) == limit
    reading = store.scan(ALL)
    seen = len(next(reading))
    store._database.release_cache()
    assert limit_of(store) == limit
    assert seen + sum(len(batch) for batch in reading) == 120 * GPUS
    store._database.release_cache()
    assert limit_of(store) == limit
