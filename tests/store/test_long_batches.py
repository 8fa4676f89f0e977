"""A long history comes as one batch, GPU by GPU: it answers as its ticks would."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from marey.model.metrics import Entity
from marey.model.protocols import Selection
from marey.model.samples import SampleBatch
from marey.model.times import HOUR_MS
from marey.store.embedded.embedded_store import EmbeddedStore, open_store
from marey.store.samples.sample_tables import HISTORY_ROWS

T0 = 1_763_200_800_000
TICK_MS, TICKS = 15_000, 500
GPUS = HISTORY_ROWS // TICKS + 50
EVERYTHING = Selection(("util", "power"), 0, T0 + 1000 * HOUR_MS)


def make_history() -> SampleBatch:
    """Return two workloads per GPU, one after the other, in order of GPU and then of time."""
    tick = np.tile(np.arange(TICKS, dtype=np.int64), GPUS)
    entity = np.repeat(np.arange(GPUS, dtype=np.int32), TICKS)
    util = ((entity * 7 + tick) % 101).astype(np.float32)
    util[tick % 50 == 3] = np.nan
    return SampleBatch(
        time_ms=T0 + tick * TICK_MS,
        entity=entity,
        entities=tuple(f"n{i // 8:03}:{i % 8}" for i in range(GPUS)),
        columns={"util": util, "power": (100 + entity + tick % 9).astype(np.float32)},
        workload=((entity // 8 * 5 + (tick > TICKS // 3)) % 13).astype(np.int32),
        workloads=tuple(f"w{i}" for i in range(13)),
    )


@pytest.fixture(scope="module")
def history() -> SampleBatch:
    return make_history()


def list_rows(store: EmbeddedStore, selection: Selection = EVERYTHING) -> list[tuple[float, ...]]:
    """Return every sample in order of GPU and time."""
    parts = []
    for batch in store.scan(selection):
        names = np.array(batch.entities)[batch.entity]
        number = np.array([int(name[1:4]) * 8 + int(name[5:]) for name in names])
        parts.append(np.stack([number, batch.time_ms, *batch.columns.values()], axis=1))
    rows = np.concatenate(parts)
    found: list[tuple[float, ...]] = rows[np.lexsort((rows[:, 1], rows[:, 0]))].tolist()
    return found


def test_it_answers_as_its_parts_do(tmp_path: Path, history: SampleBatch) -> None:
    half = len(history) // 2
    assert half < HISTORY_ROWS < len(history)
    with open_store(tmp_path / "whole.duckdb") as whole, open_store(tmp_path / "parts") as parts:
        whole.append([history])
        parts.append([history.rows(slice(0, half))])
        parts.append([history.rows(slice(half, None))])
        one = replace(EVERYTHING, workload="w5")
        for selection in (EVERYTHING, one):
            assert np.array_equal(
                list_rows(whole, selection), list_rows(parts, selection), equal_nan=True
            )
        assert whole.span("default") == (T0, T0 + (TICKS - 1) * TICK_MS)
        assert len(whole.latest("default", Entity.GPU, T0)) == GPUS


def test_it_stays_as_it_is_when_hours_are_put_in_order(
    tmp_path: Path, history: SampleBatch
) -> None:
    with open_store(tmp_path / "site.duckdb") as store:
        store.append([history])
        before = list_rows(store)
        store.maintain(T0 + 3 * HOUR_MS)
        assert np.array_equal(before, list_rows(store), equal_nan=True)
        assert len(before) == len(history)


def test_what_comes_again_replaces(tmp_path: Path, history: SampleBatch) -> None:
    again = replace(history, columns={"power": np.full(len(history), 77, np.float32)})
    with open_store(tmp_path / "site.duckdb") as store:
        store.append([history])
        before = list_rows(store)
        store.append([again])
        after = list_rows(store)
        assert [row[3] for row in after] == [77.0] * len(before)
        assert np.array_equal([row[2] for row in before], [row[2] for row in after], equal_nan=True)
