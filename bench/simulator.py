"""How much faster than real time the simulator makes a day, in memory and as files.

By CPU seconds, of all threads together: a busy machine does not make them more.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.report import Results, peak_rss_mb, timed
from marey.sim import SimConfig, Simulation
from marey.sim.export import write_run

GPUS, HOURS, SEED = 10_000, 24.0, 0
IN_MEMORY_TARGET, WRITTEN_TARGET = 5_000.0, 2_000.0
DEMO_GPUS = 2_048
SIZE = f"{GPUS} GPUs × {HOURS:g} h × 12 metrics at 15 s, 8 host metrics at 60 s, all records"


def main() -> int:
    """Measure both promises against real time; returns how many were missed."""
    results = Results()
    _warm_up()
    _in_memory(results)
    _written(results)
    _demo(results)
    return results.missed


def _warm_up() -> None:
    """Compile the kernels, as the installed package has them in its cache."""
    with tempfile.TemporaryDirectory() as folder:
        write_run(Simulation(SimConfig(gpus=2_048, seed=1)), 0.5, Path(folder) / "run")


def _in_memory(results: Results) -> None:
    def a_day() -> int:
        simulation = Simulation(SimConfig(gpus=GPUS, seed=SEED))
        blocks = simulation.blocks(HOURS, ahead=True)
        return sum(len(batch) * len(batch.columns) for block in blocks for batch in block.samples)

    values = a_day()
    best = timed(a_day, repeat=2, warm=False)
    seconds, busy = best.wall_s, best.cpu_s
    results.against(
        f"a day as blocks in memory ({values / 1e6:.0f} M values in {seconds:.1f} s, "
        f"{busy:.1f} s of CPU, building the cluster included)",
        ratio=HOURS * 3600 / busy,
        target=IN_MEMORY_TARGET,
        rival="real time, by CPU seconds",
        size=f"{SIZE}; peak memory {peak_rss_mb():.0f} MB",
        at_10x="ten times the CPU; blocks keep their size, so memory grows with the GPUs only",
    )


def _written(results: Results) -> None:
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = time.perf_counter(), time.process_time()
        simulation = Simulation(SimConfig(gpus=GPUS, seed=SEED))
        summary = write_run(simulation, HOURS, Path(folder) / "run")
        seconds, busy = time.perf_counter() - wall, time.process_time() - cpu
    results.against(
        f"the same day written as marey sim does ({summary.bytes / 1e6:.0f} MB, "
        f"{summary.bytes / (summary.samples + summary.host_samples):.2f} bytes per value, "
        f"{seconds:.1f} s, {busy:.1f} s of CPU)",
        ratio=HOURS * 3600 / busy,
        target=WRITTEN_TARGET,
        rival="real time, by CPU seconds",
        size=f"{SIZE}; {summary.workloads} workloads; peak memory {peak_rss_mb():.0f} MB",
        at_10x="ten times the CPU and the bytes",
    )


def _demo(results: Results) -> None:
    wall = time.perf_counter()
    simulation = Simulation(SimConfig(gpus=DEMO_GPUS, seed=SEED))
    observations = sum(1 for _ in simulation.history(HOURS, ahead=True))
    seconds = time.perf_counter() - wall
    wall = time.perf_counter()
    ticks = 40
    for _ in simulation.advance(simulation.now_ms + ticks * simulation.config.tick_ms):
        pass
    per_tick = (time.perf_counter() - wall) / ticks
    wall = time.perf_counter()
    Simulation.resume(simulation.state())
    resumed = time.perf_counter() - wall
    results.line(
        "the demo's first day as observations",
        f"{seconds:.1f} s ({observations} observations); one live tick {per_tick * 1000:.1f} ms; "
        f"resuming after that day {resumed:.1f} s",
        size=f"{DEMO_GPUS} GPUs",
        at_10x="ten times",
    )
