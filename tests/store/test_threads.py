"""One thread writes while others read: every answer is of one moment, nothing blocks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from marey.model.errors import StoreError
from marey.model.metrics import Entity
from marey.model.observation import Observation
from marey.model.protocols import Selection
from marey.model.samples import SampleBatch
from marey.model.times import HOUR_MS
from marey.model.workloads import WorkloadState, WorkloadStatus
from marey.store.embedded.embedded_store import open_store

T0 = 1_763_200_800_000
GPUS = 200
NAMES = tuple(f"n{i}:0" for i in range(GPUS))


def tick(k: int) -> SampleBatch:
    return SampleBatch(
        np.full(GPUS, T0 + k * 60_000, np.int64),
        np.arange(GPUS, dtype=np.int32),
        NAMES,
        {"util": np.full(GPUS, k % 100, np.float32)},
    )


@pytest.mark.slow
def test_readers_see_whole_ticks_while_one_writes_and_rewrites(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.marey")
    store.append([tick(0)])
    done = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        seen = 0
        while not done.is_set():
            try:
                everything = Selection(("util",), 0, T0 * 2)
                counts = store.statistics(everything, [0.5]).table.column("count").to_pylist()
                assert len(set(counts)) == 1, "a tick was seen in part"
                assert counts[0] >= seen, "a tick has vanished"
                seen = counts[0]
                assert sum(len(b) for b in store.scan(everything)) % GPUS == 0
                assert len(store.latest("default", Entity.GPU, T0)) == GPUS
                store.moment("default", T0 * 2)
            except BaseException as error:
                failures.append(error)
                return

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for k in range(1, 80):
        status = WorkloadStatus("job", WorkloadState.RUNNING, priority=float(k))
        store.ingest([Observation(T0 + k * 60_000, statuses=(status,))], [tick(k)])
        if k % 20 == 0:
            store.maintain(T0 + k * 60_000)
    done.set()
    for reader in readers:
        reader.join(60)
    assert not failures, failures
    assert store.span("default") == (T0, T0 + 79 * 60_000)
    store.close()


def test_an_abandoned_scan_does_not_hold_the_store_up(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.marey")
    store.append([tick(0)])
    abandoned = store.scan(Selection(("util",), 0, T0 * 2))
    next(abandoned)
    for k in range(1, 70):
        store.append([tick(k)])
    store.maintain(T0 + 2 * HOUR_MS)
    assert store.span("default") == (T0, T0 + 69 * 60_000)
    store.close()
    open_store(tmp_path / "store.marey").close()


def test_closing_while_others_read_ends_them_with_our_error(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.marey")
    for k in range(50):
        store.append([tick(k)])
    unexpected: list[BaseException] = []

    def read() -> None:
        try:
            while True:
                store.statistics(Selection(("util",), 0, T0 * 2), [0.5])
        except StoreError:
            pass
        except BaseException as error:
            unexpected.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    store.close()
    for reader in readers:
        reader.join(60)
        assert not reader.is_alive()
    assert not unexpected, unexpected
    with pytest.raises(StoreError, match="closed"):
        store.span("default")
    open_store(tmp_path / "store.marey").close()


def test_a_reader_does_not_wait_for_the_writer(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.marey")
    store.append([tick(0)])
    inside, answered = threading.Event(), threading.Event()

    def batches() -> Iterator[SampleBatch]:
        yield tick(1)
        inside.set()
        assert answered.wait(60), "the reader waited for the writer"
        yield tick(2)

    writer = threading.Thread(target=lambda: store.append(batches()))
    writer.start()
    assert inside.wait(60)
    counts = store.statistics(Selection(("util",), 0, T0 * 2)).table.column("count").to_pylist()
    assert set(counts) == {1}, "an unfinished step was seen"
    answered.set()
    writer.join(60)
    assert store.span("default") == (T0, T0 + 2 * 60_000)
    store.close()
