"""The collect loop: records, then samples; a source that fails is stale, never zero."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from marey.app.collect.loop import BACKLOG_LIMIT, Collector, CollectRules, collect
from marey.live.frames import Frame
from marey.model.errors import StoreError
from marey.model.observation import Observation
from marey.model.protocols import Selection
from marey.model.samples import SampleBatch
from marey.model.times import HOUR_MS
from marey.model.workloads import Workload
from marey.store.embedded.embedded_store import EmbeddedStore, open_store
from tests.app.small_cluster import (
    GPUS,
    START_MS,
    TICK_MS,
    HandClock,
    SmallSource,
    inventory,
    samples,
)
from tests.waiting import until

RULES = CollectRules(TICK_MS, 2_000, 60_000)


@pytest.fixture
def store() -> Iterator[EmbeddedStore]:
    opened = open_store(None)
    yield opened
    opened.close()


class Bench:
    """A collector with its source and clock, and the frames it showed."""

    def __init__(self, store: EmbeddedStore, *sources: object) -> None:
        self.clock = HandClock()
        self.source = SmallSource()
        self.collector: Collector = collect(
            [*sources, self.source],
            store,
            self.clock,
            RULES,
        )
        self.frames: list[Frame] = []
        self.collector.watchers.frames.append(self.frames.append)

    def tick(self, times: int = 1) -> Frame:
        for _ in range(times):
            self.collector.tick()
            self.clock.advance()
        return self.frames[-1]


def values_kept(store: EmbeddedStore) -> int:
    selection = Selection(("util",), START_MS, START_MS + 10 * HOUR_MS)
    return sum(len(batch) for batch in store.scan(selection))


def test_a_tick_keeps_and_shows_what_the_source_said(store: EmbeddedStore) -> None:
    bench = Bench(store)
    frame = bench.tick(3)
    assert values_kept(store) == 3 * len(GPUS)
    assert store.workload("default", "1")["state"] == "running"
    expected = samples(START_MS + 2 * TICK_MS).columns["util"]
    assert np.array_equal(frame.values("util"), expected)
    assert bench.collector.counts.samples == 3 * len(GPUS) * 12
    assert bench.collector.counts.errors == 0


def test_samples_are_labelled_with_the_workload_that_held_the_gpu(store: EmbeddedStore) -> None:
    Bench(store).tick(2)
    selection = Selection(("util",), START_MS, START_MS + HOUR_MS, workload="1")
    entities = {batch.entities[code] for batch in store.scan(selection) for code in batch.entity}
    assert entities == {"n1:0", "n1:1", "n1:2", "n1:3"}


def test_a_silent_source_is_stale_with_its_age_and_its_values_are_no_values(
    store: EmbeddedStore,
) -> None:
    bench = Bench(store)
    bench.tick()
    bench.source.silent = True
    frame = bench.tick(3)
    assert frame.sources[0]["state"] == "fresh"
    assert "nobody answers" in frame.sources[0]["error"]
    frame = bench.tick(4)
    assert frame.sources[0]["state"] == "stale"
    assert frame.sources[0]["age_ms"] > 60_000
    assert np.isnan(frame.values("util")).all()
    # The units stay as they were last known: nothing has become idle.
    assert frame.units.table()["state"].to_pylist().count("allocated") == 4
    kinds = store.events("default", START_MS, START_MS + HOUR_MS)["kind"].to_pylist()
    assert kinds.count("source_stale") == 1
    bench.source.silent = False
    frame = bench.tick()
    assert frame.sources[0]["state"] == "fresh"
    kinds = store.events("default", START_MS, START_MS + HOUR_MS)["kind"].to_pylist()
    assert kinds.count("source_back") == 1


class HangingSource:
    """One that does not answer until it is let go."""

    name = "hanging"

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.waited_out = False

    def poll(self, now_ms: int) -> Sequence[Observation]:
        self.waited_out = not self.let_go.wait(120)
        return ()

    def close(self) -> None:
        self.let_go.set()


def test_a_source_that_hangs_holds_up_no_other(store: EmbeddedStore) -> None:
    hanging = HangingSource()
    bench = Bench(store, hanging)
    bench.collector.rules = CollectRules(TICK_MS, 2_000, 60_000)
    bench.tick(10)
    assert not hanging.waited_out
    assert values_kept(store) == 10 * len(GPUS)
    assert bench.frames[-1].sources[0]["state"] == "stale"
    hanging.let_go.set()


class CrashingSource:
    """One with a bug."""

    name = "crashing"

    def poll(self, now_ms: int) -> Sequence[Observation]:
        raise ZeroDivisionError("its own fault")

    def close(self) -> None: ...


def test_a_source_that_crashes_is_shown_as_such(store: EmbeddedStore) -> None:
    bench = Bench(store, CrashingSource())
    frame = bench.tick(2)
    assert "ZeroDivisionError" in frame.sources[0]["error"]
    assert values_kept(store) == 2 * len(GPUS)


def test_samples_of_unknown_gpus_are_kept_and_shown_as_unknown(store: EmbeddedStore) -> None:
    bench = Bench(store)
    bench.tick()
    strangers = samples(START_MS + TICK_MS, ("n9:0", "n9:1"))
    bench.source.extra = [Observation(START_MS + TICK_MS, samples=(strangers,))]
    frame = bench.tick()
    units = {row["gpu"]: row for row in frame.units.table().to_pylist()}
    assert units["n9:1"]["state"] == "unknown"
    assert "inventory" in units["n9:1"]["state_reason"]
    selection = Selection(("util",), START_MS, START_MS + HOUR_MS, ("n9:0",))
    assert sum(len(batch) for batch in store.scan(selection)) == 1


def test_samples_of_things_that_are_no_gpus_are_dropped_and_counted(store: EmbeddedStore) -> None:
    bench = Bench(store)
    bench.tick()
    nonsense = samples(START_MS + TICK_MS, ("not a gpu", "x" * 1_000_000 + ":0"))
    bench.source.extra = [Observation(START_MS + TICK_MS, samples=(nonsense,))]
    frame = bench.tick()
    assert len(frame.units.table()) == len(GPUS)
    assert bench.collector.counts.dropped_samples == 2


def test_a_name_of_a_million_characters_is_cut_and_stays_one_name(store: EmbeddedStore) -> None:
    bench = Bench(store)
    bench.tick()
    long = Workload("w" * 1_000_000, name="n" * 1_000_000, attributes={"k" * 10_000: "v" * 10_000})
    bench.source.extra = [Observation(START_MS + TICK_MS, workloads=(long,))]
    frame = bench.tick()
    names = [name for name in frame.workloads if name.startswith("w")]
    assert len(names) == 1
    assert len(names[0]) <= 256
    assert store.workload("default", names[0])["name"].startswith("nnn")
    assert len(frame.snapshot([])) < 100_000


def test_nan_infinity_and_sentinels_never_become_values(store: EmbeddedStore) -> None:
    bench = Bench(store)
    bench.tick()
    batch = samples(START_MS + TICK_MS, GPUS[:5], ["mem_clock"])
    bad = np.array([np.nan, np.inf, -np.inf, 9.3e18, 55.0], np.float32)
    bench.source.extra = [
        Observation(START_MS + TICK_MS, samples=(replace(batch, columns={"mem_clock": bad}),))
    ]
    bench.clock.advance(1)
    bench.collector.tick()
    asked = Selection(("mem_clock",), START_MS + TICK_MS, START_MS + TICK_MS + 1, GPUS[:5])
    kept = store.statistics(asked).table.to_pylist()
    assert {row["entity"]: row["max"] for row in kept if row["count"]} == {GPUS[4]: 55.0}


class FullDisk:
    """A store that cannot write for a while."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self.full = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def ingest(
        self, observations: Sequence[Observation], batches: Sequence[SampleBatch] = ()
    ) -> None:
        if self.full:
            raise StoreError("The disk is full.")
        self._store.ingest(observations, batches)


def test_a_store_that_cannot_write_is_tried_again_and_nothing_is_lost(store: EmbeddedStore) -> None:
    disk = FullDisk(store)
    bench = Bench(disk)
    bench.tick()
    disk.full = True
    bench.tick(3)
    assert "full" in bench.collector.counts.store_error
    assert values_kept(store) == len(GPUS)
    disk.full = False
    bench.tick()
    assert values_kept(store) == 5 * len(GPUS)
    assert bench.collector.counts.store_error == ""


def test_what_waits_for_a_full_disk_is_bounded_and_counted(store: EmbeddedStore) -> None:
    disk = FullDisk(store)
    bench = Bench(disk)
    disk.full = True
    bench.tick(BACKLOG_LIMIT + 10)
    assert bench.collector.counts.dropped_observations >= 9
    assert len(bench.collector._backlog) <= BACKLOG_LIMIT


def test_after_a_restart_the_table_is_what_the_store_remembers(store: EmbeddedStore) -> None:
    bench = Bench(store)
    before = bench.tick(2)
    again = collect([], store, bench.clock, RULES)
    frames: list[Frame] = []
    again.watchers.frames.append(frames.append)
    again.table("default")
    again.show(bench.clock.now_ms())
    assert frames[0].workloads.keys() == before.workloads.keys()
    rows = frames[0].units.table().sort_by("gpu")
    assert rows["state"].to_pylist() == before.units.table().sort_by("gpu")["state"].to_pylist()
    assert not np.isnan(frames[0].values("util")).any()


def test_the_store_is_maintained_once_an_hour(store: EmbeddedStore) -> None:
    calls: list[int] = []
    bench = Bench(store)
    store.maintain = calls.append
    for _ in range(5):
        bench.collector.tick()
        bench.clock.advance(HOUR_MS // 2)
    assert len(calls) == 2


def test_the_loop_runs_in_its_own_thread_and_stops_after_the_tick(store: EmbeddedStore) -> None:
    bench = Bench(store)
    bench.collector.rules = CollectRules(250, 60_000, 60_000)
    bench.collector.start()
    until(lambda: len(bench.frames) >= 2, "two ticks")
    bench.collector.stop()
    assert bench.source.closed


def test_observers_hear_of_every_observation_once_it_is_kept(store: EmbeddedStore) -> None:
    bench = Bench(store)
    heard: list[Observation] = []
    bench.collector.watchers.observations.append(heard.append)
    bench.tick(2)
    assert [o.time_ms for o in heard] == [START_MS, START_MS + TICK_MS]
    assert heard[0].workloads == inventory().workloads
    assert heard[0].samples[0].workload is not None
