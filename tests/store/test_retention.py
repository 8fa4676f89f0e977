"""Old raw samples become hourly sketches, older sketches go; answers say what they come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from marey.model.protocols import Answer, Selection
from marey.model.samples import SampleBatch
from marey.model.times import DAY_MS, HOUR_MS
from marey.store.embedded.embedded_store import EmbeddedStore, Retention, open_store

T0 = 1_763_164_800_000
TICK = 60_000
GPUS = ("n0:0", "n0:1", "n1:0")
DAYS = 4
TICKS = DAYS * DAY_MS // TICK


def history() -> SampleBatch:
    """Four days of three GPUs: util moves, energy grows, mem_used has gaps, a job changes."""
    dice = np.random.default_rng(5)
    time_ms = np.repeat(T0 + np.arange(TICKS) * TICK, len(GPUS))
    entity = np.tile(np.arange(len(GPUS), dtype=np.int32), TICKS)
    util = np.clip(np.round(50 + np.cumsum(dice.normal(0, 3, len(time_ms)))), 0, 100)
    memory = np.where(dice.random(len(time_ms)) < 0.2, np.nan, 40_000 + util * 100)
    columns = {
        "util": util.astype(np.float32),
        "mem_used": memory.astype(np.float32),
        "energy": np.arange(len(time_ms), dtype=np.float32),
    }
    workload = np.where(time_ms < T0 + 36 * HOUR_MS, 0, 1).astype(np.int32)
    return SampleBatch(
        time_ms, entity, GPUS, columns, workload=workload, workloads=("first", "second")
    )


def filled(raw_days: float | None, sketch_days: float | None = None) -> EmbeddedStore:
    store = open_store(None, retention=Retention(raw_days, sketch_days))
    store.append([history()])
    store.maintain(T0 + DAYS * DAY_MS)
    return store


def selection(*metrics: str, days: tuple[float, float] = (0, DAYS), **more: str) -> Selection:
    from_ms, to_ms = (T0 + int(day * DAY_MS) for day in days)
    return Selection(metrics, from_ms, to_ms, **more)


def sorted_rows(answer: Answer) -> list[dict[str, object]]:
    return sorted(answer.table.to_pylist(), key=lambda r: (r["metric"], r["entity"]))


def test_figures_survive_reduction_exactly_and_quantiles_to_a_hundredth() -> None:
    exact, reduced = filled(None), filled(1)
    asked = [0.05, 0.5, 0.95]
    for chosen in (
        selection("util", "mem_used", "energy"),
        selection("util", "mem_used", workload="first"),
        selection("util", days=(0, 2)),
    ):
        a, b = exact.statistics(chosen, asked), reduced.statistics(chosen, asked)
        assert (a.approximate, b.approximate) == (False, True)
        for left, right in zip(sorted_rows(a), sorted_rows(b), strict=True):
            for name in ("entity", "metric", "count", "min", "max", "first_ms", "last_ms", "last"):
                assert left[name] == right[name], name
            assert left["mean"] == pytest.approx(right["mean"])
            assert left["std"] == pytest.approx(right["std"], abs=1e-3)
            limit = {"util": 1.0, "mem_used": 3000.0}.get(str(left["metric"]), 1e13)
            assert left["quantiles"] == pytest.approx(right["quantiles"], abs=limit)


def test_a_question_about_recent_time_is_still_exact() -> None:
    exact, reduced = filled(None), filled(1)
    recent = selection("util", days=(DAYS - 1, DAYS))
    answer = reduced.statistics(recent, [0.5])
    assert not answer.approximate
    assert sorted_rows(answer) == sorted_rows(exact.statistics(recent, [0.5]))


def test_histograms_of_reduced_data_keep_every_count() -> None:
    exact, reduced = filled(None), filled(1)
    chosen = selection("util")
    a, b = exact.histograms(chosen, 10), reduced.histograms(chosen, 10)
    assert b.approximate
    for left, right in zip(sorted_rows(a), sorted_rows(b), strict=True):
        # Whole per cent are the centres of the sketch's bins, so here even the bins agree.
        assert left == right


def test_series_of_reduced_data_keep_extremes_and_are_actual_samples() -> None:
    exact, reduced = filled(None), filled(1)
    chosen = selection("util")
    answer = reduced.series(chosen, 200)
    assert answer.approximate
    actual = {
        (batch.entities[e], int(t)): float(v)
        for batch in exact.scan(chosen)
        for e, t, v in zip(batch.entity, batch.time_ms, batch.columns["util"], strict=True)
    }
    points = answer.table.to_pylist()
    assert all(actual[p["entity"], p["time_ms"]] == p["value"] for p in points)
    for name in GPUS:
        own = [p["value"] for p in points if p["entity"] == name]
        truth = [v for (entity, _), v in actual.items() if entity == name]
        assert len(own) <= 200
        assert (min(own), max(own)) == (min(truth), max(truth))


def test_sketches_older_than_their_retention_are_dropped() -> None:
    store = filled(1, 2)
    assert store.span("default") == (T0 + 2 * DAY_MS, T0 + DAYS * DAY_MS - TICK)
    counts = store.statistics(selection("util")).table.column("count").to_pylist()
    assert counts == [2 * DAY_MS // TICK] * 3


def test_reducing_again_changes_nothing_and_late_samples_are_not_doubled() -> None:
    store = filled(1)
    chosen = selection("util", "mem_used", "energy")
    before = sorted_rows(store.statistics(chosen, [0.5]))
    store.maintain(T0 + DAYS * DAY_MS)
    store.append([history()])
    store.maintain(T0 + DAYS * DAY_MS)
    assert sorted_rows(store.statistics(chosen, [0.5])) == before


def test_history_of_another_gpu_may_be_added_to_a_reduced_time() -> None:
    store = filled(1)
    late = SampleBatch(
        np.array([T0 + 5]),
        np.array([0], np.int32),
        ("n9:0",),
        {"util": np.array([7.0], np.float32)},
    )
    store.append([late])
    for _ in range(2):
        rows = store.statistics(selection("util")).table.to_pylist()
        assert [r["count"] for r in rows if r["entity"] == "n9:0"] == [1]
        store.maintain(T0 + DAYS * DAY_MS)


def test_a_clock_that_jumps_ahead_ages_nothing() -> None:
    store = filled(30, 60)
    store.maintain(T0 + 5000 * DAY_MS)
    answer = store.statistics(selection("util"))
    assert not answer.approximate
    assert answer.table.column("count") == pa.chunked_array([[TICKS] * 3])


@pytest.mark.slow
def test_the_file_does_not_grow_without_bound(tmp_path: Path) -> None:
    path = tmp_path / "store.marey"
    store = open_store(path, retention=Retention(0.25, 0.5))
    names = tuple(f"n{i // 8}:{i % 8}" for i in range(400))
    dice = np.random.default_rng(2)
    sizes = []
    for hour in range(36):
        time_ms = np.repeat(T0 + hour * HOUR_MS + np.arange(60) * TICK, len(names))
        values = dice.integers(0, 100, len(time_ms)).astype(np.float32)
        entity = np.tile(np.arange(len(names), dtype=np.int32), 60)
        columns = {"util": values, "power": values * 3, "temp": values}
        store.append([SampleBatch(time_ms, entity, names, columns)])
        store.maintain(T0 + (hour + 1) * HOUR_MS)
        sizes.append(path.stat().st_size)
    store.close()
    assert max(sizes[24:]) <= 1.25 * max(sizes[:24]), sizes
