"""The log beside the file: cut at any byte it gives whole ticks, and what follows is safe."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import numpy as np

from marey.model.protocols import Selection
from marey.model.samples import SampleBatch
from marey.store.embedded.embedded_store import EmbeddedStore, open_store

T0 = 1_763_200_800_000
GPUS = 64


def tick(k: int) -> SampleBatch:
    return SampleBatch(
        np.full(GPUS, T0 + k * 15_000, np.int64),
        np.arange(GPUS, dtype=np.int32),
        tuple(f"n{i}:0" for i in range(GPUS)),
        {"util": np.full(GPUS, k, np.float32)},
    )


def ticks(store: EmbeddedStore) -> list[int]:
    found: dict[int, int] = {}
    for batch in store.scan(Selection(("util",), 0, T0 * 2)):
        for value in batch.columns["util"].astype(int).tolist():
            found[value] = found.get(value, 0) + 1
    assert set(found.values()) <= {GPUS}
    return sorted(found)


def snapshot(path: Path, to: Path) -> Path:
    """The files as a kill would leave them."""
    shutil.copy(path, to)
    log = Path(f"{path}.wal")
    if log.exists():
        shutil.copy(log, f"{to}.wal")
    return to


def test_a_log_cut_at_any_byte_gives_whole_ticks_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "store.marey"
    with open_store(path) as store:
        for k in range(12):
            store.append([tick(k)])
        whole = snapshot(path, tmp_path / "whole.marey")
    size = os.path.getsize(f"{whole}.wal")
    dice = random.Random(4)
    for number, cut in enumerate([0, 1, size - 1, *(dice.randrange(size) for _ in range(5))]):
        torn = snapshot(whole, tmp_path / f"torn-{number}.marey")
        os.truncate(f"{torn}.wal", cut)
        with open_store(torn) as store:
            kept = ticks(store)
            assert kept == list(range(len(kept)))
            store.append([tick(50)])
            again = snapshot(torn, tmp_path / f"again-{number}.marey")
        with open_store(again) as store:
            assert ticks(store) == [*kept, 50], "what followed the cut is lost"


def test_the_log_stays_bounded(tmp_path: Path) -> None:
    path = tmp_path / "store.marey"
    dice = np.random.default_rng(0)
    names = tuple(f"n{i}:0" for i in range(20_000))
    largest = 0
    with open_store(path) as store:
        for k in range(150):
            values = dice.random(len(names)).astype(np.float32) * 100
            columns = dict.fromkeys(("power", "tensor_active", "dram_active", "util"), values)
            times = np.full(len(names), T0 + k * 15_000, np.int64)
            entity = np.arange(len(names), dtype=np.int32)
            store.append([SampleBatch(times, entity, names, columns)])
            log = Path(f"{path}.wal")
            largest = max(largest, log.stat().st_size if log.exists() else 0)
    assert 0 < largest < 80 * 2**20
