"""The server at 10,000 GPUs: what a tick costs, and its memory over a simulated day."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.report import Results
from marey.api.own_metrics import resident_bytes
from marey.app.assembly import open_service
from marey.app.collect.simulated_cluster import SimulatedCluster
from marey.app.service import Service
from marey.app.settings.configuration import Configuration, SimulatedSettings, StoreSettings
from marey.model.metrics import EVERYDAY
from marey.model.observation import Observation
from marey.model.times import HOUR_MS, SECOND_MS
from marey.sim import Simulation

GPUS = 10_000
TICK_MS = 15 * SECOND_MS
TICK_LIMIT = 0.003
MEMORY_LIMIT_MB = 700.0
# Memory may wander by this much between the first and the last quarter of the day.
FLAT_MB = 80.0
WATCHED_TICKS = 100
DAY_HOURS = float(os.environ.get("MAREY_BENCH_HOURS", "24"))
MB = 1e6


class SteppedClock:
    """A clock that the bench moves: a day passes as fast as the machine can collect it."""

    speed = 1.0

    def __init__(self, now_ms: int) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        """The time it was moved to."""
        return self.time_ms


class PreparedSource:
    """A simulation whose cost is known apart: the bench is about collecting, not simulating."""

    name = "simulated"

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.cpu_s = 0.0

    def poll(self, now_ms: int) -> list[Observation]:
        """The ticks up to now, and what making them cost."""
        began = time.thread_time()
        observations = list(self._simulation.advance(now_ms))
        self.cpu_s += time.thread_time() - began
        return observations

    def close(self) -> None:
        """Nothing is held open."""


def service_at(folder: Path) -> tuple[Service, SteppedClock, PreparedSource]:
    """A server of 10,000 simulated GPUs whose clock the bench moves; nobody listens to it yet."""
    settings = SimulatedSettings(gpus=GPUS, seed=3, history_hours=0.0)
    store = StoreSettings(path=str(folder / "bench.duckdb"))
    service = open_service(Configuration(store=store, sources=(settings,)))
    polled = service.collector.sources.polled[0]
    assert isinstance(polled.source, SimulatedCluster)
    simulation: Simulation = polled.source.simulation
    clock, source = SteppedClock(simulation.config.start_ms), PreparedSource(simulation)
    polled.source = source
    service.collector.clock = service.workspace.clock = clock
    # Rules work in another thread: a day that passes in minutes would only pile up in front of
    # it. Whoever measures them has them judge in step.
    service.collector.watchers.observations.clear()
    return service, clock, source


def lived(
    service: Service, clock: SteppedClock, source: PreparedSource, ticks: int
) -> tuple[np.ndarray, float]:
    """So many ticks: the memory after each in MB, and the CPU of all without the simulator's."""
    memory = np.zeros(ticks)
    source.cpu_s, began = 0.0, time.process_time()
    for tick in range(ticks):
        service.collector.tick()
        memory[tick] = resident_bytes() / MB
        clock.time_ms += TICK_MS
    return memory, time.process_time() - began - source.cpu_s


def to_the_hour(service: Service, clock: SteppedClock, source: PreparedSource) -> None:
    """Ticks until an hour has just been rewritten: the next hundred will have no rewrite."""
    left_ms = HOUR_MS - clock.time_ms % HOUR_MS
    lived(service, clock, source, -(-left_ms // TICK_MS) + 1)


def with_client(service: Service) -> None:
    """As with a client in front of it: its parts are encoded at every tick."""
    service.feed.subscribe("default", ("util", "power_share"))
    service.feed.listen(lambda: None)


def main() -> int:
    """A day of ticks through the whole loop: sources, live table, store, hourly rewrite."""
    results = Results()
    with tempfile.TemporaryDirectory() as folder:
        service, clock, source = service_at(Path(folder))
        ticks = round(DAY_HOURS * HOUR_MS / TICK_MS)
        lived(service, clock, source, 4)
        service.collector.counts.slowest_tick_seconds = 0.0
        memory, cpu_s = lived(service, clock, source, ticks)
        to_the_hour(service, clock, source)
        with_client(service)
        watched_s = lived(service, clock, source, WATCHED_TICKS)[1] / WATCHED_TICKS
        counts = service.collector.counts
        service.stop()
        stored = (Path(folder) / "bench.duckdb").stat().st_size
    report(results, ticks, cpu_s, memory)
    results.line(
        "the same with a client that watches two metrics, between rewrites",
        f"{1000 * watched_s:.1f} ms CPU per tick",
        size=f"{WATCHED_TICKS} ticks",
        at_10x="linear in the GPUs; further clients cost only their sockets",
    )
    results.line(
        "store after the run",
        f"{stored / counts.samples:.2f} bytes per value, slowest tick "
        f"{counts.slowest_tick_seconds:.2f} s (the hourly rewrite), {counts.errors} errors, "
        f"{counts.store_failures} failed writes",
        size=f"{counts.samples / 1e6:.0f} M values",
        at_10x="the same per value",
    )
    return results.missed + (1 if counts.errors else 0)


def report(results: Results, ticks: int, cpu_s: float, memory: np.ndarray) -> None:
    """CPU and memory against their limits."""
    size = f"{GPUS} GPUs × {len(EVERYDAY)} metrics, {ticks} ticks of 15 s"
    share = cpu_s / ticks / (TICK_MS / SECOND_MS)
    results.against(
        "collect + store + rewrite, with the live table",
        ratio=share / TICK_LIMIT,
        target=1.0,
        rival=f"the limit of 0.3 % of a core ({100 * share:.3f} %, {1000 * cpu_s / ticks:.1f} ms "
        "CPU per tick, all threads, without the simulator and the rules)",
        size=size,
        at_10x="linear: 100,000 GPUs take 10× the time, 3 % of a core",
        higher_is_better=False,
    )
    results.against(
        "server memory",
        ratio=float(memory.max()) / MEMORY_LIMIT_MB,
        target=1.0,
        rival=f"the limit of {MEMORY_LIMIT_MB:g} MB (most {memory.max():.0f} MB)",
        size=size,
        at_10x="the base (about 300 MB) stays; live tables and a tick in hand grow 10×",
        higher_is_better=False,
    )
    quarter = max(1, len(memory) // 4)
    second, last = memory[quarter : 2 * quarter], memory[-quarter:]
    growth = float(np.median(last) - np.median(second))
    results.against(
        "memory growth from the second to the last quarter of the run",
        ratio=growth / FLAT_MB,
        target=1.0,
        rival=f"{FLAT_MB:g} MB ({growth:+.0f} MB)",
        size=size,
        at_10x="flat too: nothing is kept per tick",
        higher_is_better=False,
    )


if __name__ == "__main__":
    raise SystemExit(main())
