"""A full disk: an error that says so, nothing lost, and on it goes once there is space."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_WRITER = """
import resource, sys
import numpy as np
from marey.model.errors import StoreError
from marey.model.protocols import Selection
from marey.model.samples import SampleBatch
from marey.store.embedded.embedded_store import open_store

T0 = 1_763_200_800_000
GPUS = 4000
NAMES = tuple(f"n{i // 8}:{i % 8}" for i in range(GPUS))
store = open_store(sys.argv[1])
dice = np.random.default_rng(3)

def tick(k):
    values = (np.arange(GPUS) * 7 + k) % 101
    columns = {"util": values.astype(np.float32)}
    for metric in ("power", "mem_used", "temp"):
        columns[metric] = dice.random(GPUS).astype(np.float32) * 100
    times = np.full(GPUS, T0 + k * 15_000)
    return SampleBatch(times, np.arange(GPUS, dtype=np.int32), NAMES, columns)

def ticks():
    seen = {}
    for batch in store.scan(Selection(("util",), 0, T0 * 2)):
        for time_ms, count in zip(*np.unique(batch.time_ms, return_counts=True)):
            k = int(time_ms - T0) // 15_000
            seen[k] = seen.get(k, 0) + int(count)
    assert set(seen.values()) <= {GPUS}, seen
    return set(seen)

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

kept, failed = [], []
limit(int(sys.argv[2]))
for k in range(400):
    try:
        store.append([tick(k)])
        if k % 50 == 49:
            store.maintain(T0 + k * 15_000)
        kept.append(k)
    except StoreError as error:
        failed.append(k)
        assert "full" in str(error) and "space" in str(error), str(error)
        if len(failed) >= 3:
            break
assert failed, "the limit was never met"
# What was answered with an error may have been kept; what was kept must be there.
try:
    assert set(kept) <= ticks(), (kept, ticks())
except StoreError as error:
    assert "full" in str(error), str(error)
limit(resource.RLIM_INFINITY)
assert set(kept) <= ticks()
for k in failed:
    store.append([tick(k)])
more = tick(1000)
store.append([more])
store.maintain(T0 + 10**9)
assert ticks() == {*kept, *failed, 1000}
store.close()
store = open_store(sys.argv[1])
assert ticks() == {*kept, *failed, 1000}
print("kept", len(kept), "failed", len(failed))
"""


@pytest.mark.slow
def test_a_full_disk_loses_nothing_and_passes(tmp_path: Path) -> None:
    for megabytes in (2, 5):
        ran = subprocess.run(
            [
                sys.executable,
                "-c",
                _WRITER,
                str(tmp_path / f"{megabytes}.marey"),
                str(megabytes << 20),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        assert ran.stdout.startswith("kept")
