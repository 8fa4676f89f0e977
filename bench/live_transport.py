"""What travels to a browser: a snapshot and a full tick of 100,000 GPUs × 12 metrics."""

from __future__ import annotations

import time
import zlib

import numpy as np

from bench.report import Results
from marey.live import wire_format
from marey.live.cluster_table import ClusterTable
from marey.live.frames import Frame
from marey.model.metrics import EVERYDAY
from marey.sim import Simulation
from marey.sim.config import SimConfig

GPUS = 100_000
SNAPSHOT_LIMIT_MB = 5.0
TICK_LIMIT_MB = 1.0
MB = 1e6


def frames(gpus: int, ticks: int) -> list[Frame]:
    """Frames of a simulated cluster, one per tick."""
    simulation = Simulation(SimConfig(gpus=gpus, seed=11))
    table = ClusterTable()
    made = []
    end_ms = simulation.config.start_ms + (ticks - 1) * simulation.config.tick_ms
    for observation in simulation.advance(end_ms):
        table.apply(observation)
        for batch in observation.samples:
            if batch.kind == "gpu":
                table.measure(batch)
        made.append(table.frame(observation.time_ms))
    return made


def changed_share(frame: Frame) -> float:
    """How many of the values differ from the tick before."""
    moved = sum(int((frame.columns[m] != frame.before[m]).sum()) for m in EVERYDAY)
    return moved / (frame.rows * len(EVERYDAY))


def main() -> int:
    """Sizes against their limits, and what encoding costs."""
    results = Results()
    made = frames(GPUS, 4)
    began = time.process_time()
    snapshot = made[0].snapshot(EVERYDAY)
    snapshot_cpu = time.process_time() - began
    began = time.process_time()
    ticks = [frame.tick(EVERYDAY) for frame in made[1:]]
    tick_cpu = (time.process_time() - began) / len(ticks)
    largest = max(len(tick) for tick in ticks)
    size = f"{GPUS} GPUs × {len(EVERYDAY)} metrics (simulated)"
    results.against(
        "snapshot to a client",
        ratio=len(snapshot) / MB / SNAPSHOT_LIMIT_MB,
        target=1.0,
        rival=f"the limit of {SNAPSHOT_LIMIT_MB:g} MB ({len(snapshot) / MB:.2f} MB)",
        size=size,
        at_10x="10× the size; a client then subscribes to fewer columns",
        higher_is_better=False,
    )
    results.against(
        "full tick to a client",
        ratio=largest / MB / TICK_LIMIT_MB,
        target=1.0,
        rival=f"the limit of {TICK_LIMIT_MB:g} MB ({largest / MB:.3f} MB, "
        f"{100 * max(changed_share(f) for f in made[1:]):.0f} % of the codes changed)",
        size=size,
        at_10x="10× the size for all twelve; a view subscribes to the columns it shows",
        higher_is_better=False,
    )
    worst = every_value_changed(made[-1])
    results.against(
        "tick in which every single value changed",
        ratio=worst / MB / TICK_LIMIT_MB,
        target=1.0,
        rival=f"the limit of {TICK_LIMIT_MB:g} MB ({worst / MB:.3f} MB; each code moved by a "
        "difference drawn from those of the simulated ticks)",
        size=size,
        at_10x="10× the size",
        higher_is_better=False,
    )
    plain = sum(frame_bytes(made[1]))
    results.line(
        "the same tick as deflated float32 columns",
        f"{plain / MB:.2f} MB, {plain / largest:.1f}× the size of ours",
        size=size,
        at_10x="the same ratio",
    )
    results.line(
        "encoding, once for all clients",
        f"{1000 * snapshot_cpu:.0f} ms CPU for a snapshot, {1000 * tick_cpu:.0f} ms for a tick",
        size=size,
        at_10x="10× the time: linear in rows",
    )
    header, parts = wire_format.split_message(ticks[0])
    for part in sorted(header["parts"], key=lambda p: -p["length"]):
        print(f"      {part['name']:22} {part['length'] / 1000:8.1f} kB {part['encoding']}")
    assert parts
    return results.missed


def every_value_changed(frame: Frame) -> int:
    """Return the size of a tick whose codes all moved, as far as a metric's codes do move."""
    chance = np.random.default_rng(5)
    total = 0
    for name in EVERYDAY:
        now, before = frame.columns[name], frame.before[name]
        moves = (now - before).view(np.int16)
        moves = moves[(moves != 0) & (np.abs(moves) < 2000)]
        drawn = chance.choice(moves, len(now)) if len(moves) else np.ones(len(now), np.int16)
        total += len(wire_format.changed_column(before + drawn.view(np.uint16), before))
    return total


def frame_bytes(frame: Frame) -> list[int]:
    """The size of each column as deflated float32, the plain way."""
    return [len(zlib.compress(frame.values(name).tobytes(), 6)) for name in EVERYDAY]


if __name__ == "__main__":
    raise SystemExit(main())
