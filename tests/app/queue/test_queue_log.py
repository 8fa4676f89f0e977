"""The waiting line watched over days of a simulated cluster: forecasts kept, scored, and told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from marey.app.queue.queue_log import KIND, STARTED, STARTS_SOON, QueueLog
from marey.live.cluster_table import ClusterTable
from marey.model.times import MINUTE_MS
from marey.notify.notices import Notice
from marey.queue.waiting.forecast_record import KeptForecast, StartForecast
from marey.queue.waiting.queue_record import (
    QueueRecord,
    correct_forecast,
    measure_misses,
    read_record,
)
from marey.sim.config import SimConfig
from marey.sim.simulation import Simulation
from marey.store.embedded.embedded_store import open_store

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def watched() -> Iterator[tuple[QueueLog, list[Notice], int]]:
    """A busy simulated cluster of 128 GPUs, watched every five minutes for three hours."""
    simulation = Simulation(
        SimConfig(gpus=128, seed=3, load=1.3, faults=0.0, tick_ms=5 * MINUTE_MS)
    )
    store, table = open_store(None), ClusterTable("default")
    told: list[Notice] = []
    log = QueueLog(store, lambda notices, _: told.extend(notices))
    now_ms = simulation.config.start_ms
    for _ in range(36):
        now_ms += 5 * MINUTE_MS
        for observation in simulation.advance(now_ms):
            bare = replace(observation, samples=())
            store.ingest([bare], [])
            table.apply(bare)
        log.take(table.frame(now_ms, sources=[], speed=1.0))
    yield log, told, now_ms
    store.close()


def test_forecasts_are_kept_and_scored_when_the_workload_starts(
    watched: tuple[QueueLog, list[Notice], int],
) -> None:
    log, _, now_ms = watched
    record = log.records["default"]
    assert record.done
    assert record.open
    for kept in record.done:
        assert kept.start_ms is not None
        assert kept.made_ms <= kept.start_ms <= now_ms
    assert all(kept.start_ms is None for rows in record.open.values() for kept in rows)


def test_free_room_is_sampled_over_time(watched: tuple[QueueLog, list[Notice], int]) -> None:
    times = [room.time_ms for room in watched[0].records["default"].rooms]
    assert len(set(times)) >= 10
    assert times == sorted(times)


def test_people_are_told_once_that_it_starts_soon_and_that_it_started(
    watched: tuple[QueueLog, list[Notice], int],
) -> None:
    told = [(notice.rule, notice.workload) for notice in watched[1]]
    assert {rule for rule, _ in told} == {STARTS_SOON, STARTED}
    assert len(told) == len(set(told))


def test_the_record_survives_a_restart(watched: tuple[QueueLog, list[Notice], int]) -> None:
    record = watched[0].records["default"]
    again = read_record(record.to_document())
    assert again.list_forecasts() == record.list_forecasts()
    assert list(again.rooms) == list(record.rooms)
    assert again.recent == record.recent
    assert again.recent.rows
    assert again.shares == record.shares
    store = open_store(None)
    store.put_document(KIND, "default", record.to_document())
    assert QueueLog(store).records["default"].open.keys() == record.open.keys()
    store.close()


def make_record(days: int, factor: float) -> QueueRecord:
    """Return a record in which every wait was some factor of what was forecast."""
    record = QueueRecord()
    for i in range(40):
        made = (i % days) * DAY_MS
        record.keep(KeptForecast(str(i), made, 300, 600, 900, raw_s=600))
        record.note_start(str(i), made + round(600_000 * factor))
    return record


RAW = StartForecast("x", 50, 100, 150, 1.0)


def test_a_forecast_is_corrected_by_how_far_past_ones_were_off() -> None:
    corrected = correct_forecast(measure_misses(make_record(4, 2.0)), RAW)
    assert corrected.p50_s == pytest.approx(200.0, rel=0.01)


def test_one_day_of_history_widens_the_interval_and_moves_nothing_else() -> None:
    late = correct_forecast(measure_misses(make_record(1, 4.0)), RAW)
    assert (late.p10_s, late.p50_s) == (50, 100)
    assert late.p90_s == pytest.approx(400.0, rel=0.01)
    # Where the misses were smaller than the interval, it stays as wide as it was.
    assert correct_forecast(measure_misses(make_record(1, 1.0)), RAW) == RAW
    assert correct_forecast(None, RAW) is RAW


def test_who_still_waits_counts_with_the_wait_so_far() -> None:
    record = make_record(2, 1.0)
    before = measure_misses(record)
    # As many have waited ten times as long as forecast by now, and nobody knows how long yet.
    for i in range(40):
        record.keep(KeptForecast(f"open-{i}", (i % 2) * DAY_MS, 300, 600, 900, raw_s=600))
    record.keep(KeptForecast("newest", DAY_MS + 6_000_000, 300, 600, 900, raw_s=600))
    after = measure_misses(record)
    assert before is not None
    assert after is not None
    assert before.high == pytest.approx(0.0)
    assert after.high >= np.log(10.0) - 1e-6
    assert after.low == pytest.approx(0.0)


def test_a_requeue_or_a_clock_that_jumps_back_scores_nothing_from_before_the_forecast() -> None:
    record = QueueRecord()
    record.keep(KeptForecast("a", 10_000, 1, 2, 3))
    record.note_start("a", 5_000)
    assert not record.done
    assert not record.open
