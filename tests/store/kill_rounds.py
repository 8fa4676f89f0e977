"""Kills a writing process many times and reads the store after each; run by ``test_kill.py``.

A process of its own that never opens the store itself: it forks a child to write, kills it, and
forks another to read, so a round costs no start of Python.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from marey.model.observation import Observation
from marey.model.protocols import Selection, Store
from marey.model.samples import SampleBatch
from marey.model.times import HOUR_MS
from marey.model.workloads import Progress, WorkloadState, WorkloadStatus
from marey.store.embedded.embedded_store import open_store
from marey.store.journal import journaled_store
from marey.store.samples.sample_tables import SampleTables

T0 = 1_763_200_800_000
GPUS = 1500
TICKS_PER_HOUR = 12
TICK = HOUR_MS // TICKS_PER_HOUR
NAMES = tuple(f"n{i // 8}:{i % 8}" for i in range(GPUS))
# As a server's ticks do; its groups are short here, so that kills meet them.
JOURNALED = "journaled" in sys.argv
journaled_store.GROUP_TICKS = 5


def opened(path: Path) -> Store:
    store = open_store(path)
    return journaled_store.add_journal(store) if JOURNALED else store


def tick(k: int) -> tuple[Observation, SampleBatch]:
    time_ms = T0 + k * TICK
    values = ((np.arange(GPUS) + k) % 101).astype(np.float32)
    batch = SampleBatch(
        np.full(GPUS, time_ms, np.int64), np.arange(GPUS, dtype=np.int32), NAMES, {"util": values}
    )
    status = WorkloadStatus("job", WorkloadState.RUNNING, priority=float(k))
    return Observation(time_ms, statuses=(status,), progress=(Progress("job", time_ms, k),)), batch


# When a writer is killed: the word it is waited for, and within how many seconds after it.
MOMENTS = {"anywhere": (b"\n", 0.15), "about a rewrite": (b"r\n", 0.04), "in one": (b"h\n", 0.0)}


def halt_in_rewrites(pipe: int) -> None:
    """Stand still in every rewrite before it is committed, and say ``h``."""
    plain = SampleTables.rewrite

    def halted(*arguments: Any) -> None:
        plain(*arguments)
        os.write(pipe, b"h\n")
        time.sleep(600)

    SampleTables.rewrite = halted


def write(path: Path, first: int, pipe: int, moment: str) -> None:
    """Write ticks for ever; says ``k`` once tick k is kept, ``r`` when a rewrite begins."""
    if moment == "in one":
        halt_in_rewrites(pipe)
    store = opened(path)
    for k in range(first, first + 10_000):
        observation, batch = tick(k)
        store.ingest([observation], [batch])
        os.write(pipe, f"{k}\n".encode())
        if k % TICKS_PER_HOUR == 0:
            os.write(pipe, b"r\n")
            store.maintain(T0 + k * TICK)


def read(path: Path, acknowledged: int) -> int:
    """Check the store; returns how many ticks it has."""
    store = opened(path)
    seen: dict[int, int] = {}
    for batch in store.scan(Selection(("util",), 0, T0 + 10**12)):
        k = (batch.time_ms - T0) // TICK
        order = np.array([NAMES.index(name) for name in batch.entities])[batch.entity]
        assert (batch.columns["util"] == (order + k) % 101).all(), "a value has changed"
        for one, count in zip(*np.unique(k, return_counts=True), strict=True):
            seen[int(one)] = seen.get(int(one), 0) + int(count)
    ticks = len(seen)
    assert sorted(seen) == list(range(ticks)), f"ticks are missing: {sorted(seen)}"
    assert set(seen.values()) <= {GPUS}, "a tick is there in part, or twice"
    assert acknowledged + 1 <= ticks <= acknowledged + 2, f"{ticks} ticks, {acknowledged} promised"
    states = store.states("default", from_ms=0, to_ms=10**15).column("priority").to_pylist()
    assert states == [float(k) for k in range(ticks)], "the records differ from the samples"
    assert store.progress("default", "job", 0, 10**15).num_rows == ticks
    store.close()
    return ticks


def forked(work: object, *arguments: object) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        code = work(*arguments)
        os._exit(0 if code is None else min(code, 250))
    except BaseException:
        traceback.print_exc()
        os._exit(255)


def killed_round(path: Path, first: int, moment: str, dice: random.Random) -> tuple[int, bool]:
    """One writer, killed at such a moment; the last tick it promised, and if it was rewriting."""
    reading, writing = os.pipe()
    pid = forked(write, path, first, writing, moment)
    os.close(writing)
    word, within_s = MOMENTS[moment]
    lines = b""
    while word not in lines:
        chunk = os.read(reading, 4096)
        assert chunk, "the writer ended by itself"
        lines += chunk
    time.sleep(dice.random() * within_s)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while chunk := os.read(reading, 65536):
        lines += chunk
    os.close(reading)
    said = lines.decode().split()
    promised = [int(word) for word in said if word not in ("r", "h")]
    return max(promised, default=first - 1), said[-1] in ("r", "h")


def main() -> None:
    path, rounds, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    dice = random.Random(seed)
    first, during_rewrite = 0, 0
    for number in range(rounds):
        moment = list(MOMENTS)[number % len(MOMENTS)]
        promised, rewriting = killed_round(path, first, moment, dice)
        during_rewrite += rewriting
        reading, writing = os.pipe()
        pid = forked(
            lambda p=promised, w=writing: os.write(w, str(read(path, p)).encode()) and None
        )
        os.close(writing)
        answer = os.read(reading, 100)
        os.close(reading)
        _, status = os.waitpid(pid, 0)
        if status or not answer:
            sys.exit(f"after a kill with {promised} promised the store is not whole")
        first = int(answer)
    print(f"{rounds} kills, {during_rewrite} during a rewrite, {first} ticks whole")


if __name__ == "__main__":
    main()
