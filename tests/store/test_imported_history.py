"""Imported history is kept whatever its age, and comes back when it is imported again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marey.app.history.imports import IMPORTED_KIND, ImportRetention
from marey.model.protocols import Selection
from marey.model.samples import SampleBatch
from marey.model.times import DAY_MS, HOUR_MS
from marey.store.embedded import imported_spans
from marey.store.embedded.embedded_store import EmbeddedStore, Retention, open_store

OLD_MS = 1_700_000_000_000 - 1_700_000_000_000 % HOUR_MS
NEW_MS = OLD_MS + 400 * DAY_MS
STEP_MS, MOMENTS = 60_000, 180


def batch(begin_ms: int, value: float = 50.0) -> SampleBatch:
    times = begin_ms + STEP_MS * np.arange(MOMENTS, dtype=np.int64)
    values = np.full(MOMENTS, value, np.float32)
    return SampleBatch(times, np.zeros(MOMENTS, np.int32), ("n1:0",), {"util": values})


def bring(store: EmbeddedStore, begin_ms: int, keep: ImportRetention) -> None:
    told = keep.documents("default", begin_ms, begin_ms + STEP_MS * (MOMENTS - 1))
    store.ingest((), [batch(begin_ms)], told)


def count_raw(store: EmbeddedStore, begin_ms: int) -> int:
    span = Selection(("util",), begin_ms, begin_ms + DAY_MS)
    return sum(len(part) for part in store.scan(span))


@pytest.fixture
def store(tmp_path: Path) -> EmbeddedStore:
    return open_store(tmp_path / "site.duckdb", retention=Retention(30, 400))


def test_both_sides_call_it_by_one_name() -> None:
    assert imported_spans.IMPORTED_KIND == IMPORTED_KIND


def test_an_import_of_newer_samples_leaves_an_older_import_whole(store: EmbeddedStore) -> None:
    bring(store, OLD_MS, ImportRetention())
    bring(store, NEW_MS, ImportRetention())
    store.maintain(NEW_MS + 10 * DAY_MS)
    assert count_raw(store, OLD_MS) == count_raw(store, NEW_MS) == MOMENTS


def test_samples_that_were_collected_are_still_reduced(store: EmbeddedStore) -> None:
    store.append([batch(OLD_MS)])
    bring(store, NEW_MS, ImportRetention())
    store.maintain(NEW_MS + DAY_MS)
    assert count_raw(store, OLD_MS) == 0


@pytest.mark.parametrize("keep", [ImportRetention(as_retention=True), ImportRetention(90 * DAY_MS)])
def test_who_says_so_has_imported_history_reduced(
    store: EmbeddedStore, keep: ImportRetention
) -> None:
    bring(store, OLD_MS, keep)
    bring(store, NEW_MS, keep)
    store.maintain(NEW_MS + 10 * DAY_MS)
    assert count_raw(store, OLD_MS) == 0
    assert count_raw(store, NEW_MS) == MOMENTS


def test_importing_again_brings_back_what_was_reduced_and_counts_nothing_twice(
    store: EmbeddedStore,
) -> None:
    store.append([batch(OLD_MS)])
    store.append([batch(NEW_MS)])
    store.maintain(NEW_MS + DAY_MS)
    assert count_raw(store, OLD_MS) == 0
    bring(store, OLD_MS, ImportRetention())
    assert count_raw(store, OLD_MS) == MOMENTS
    span = Selection(("util",), OLD_MS, OLD_MS + DAY_MS)
    (row,) = store.statistics(span).table.to_pylist()
    assert (row["count"], row["mean"]) == (MOMENTS, 50.0)


def test_the_order_of_imports_does_not_matter(tmp_path: Path) -> None:
    found = []
    for order in ((OLD_MS, NEW_MS), (NEW_MS, OLD_MS)):
        with open_store(tmp_path / f"{order[0]}.duckdb", retention=Retention(30, 400)) as store:
            for begin_ms in order:
                bring(store, begin_ms, ImportRetention())
                store.maintain(NEW_MS + 10 * DAY_MS)
            span = Selection(("util",), 0, 2 * NEW_MS)
            times = np.concatenate([part.time_ms for part in store.scan(span)])
            found.append((np.sort(times).tolist(), store.statistics(span).table.to_pylist()))
    assert found[0] == found[1]
