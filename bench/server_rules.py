"""The server at 10,000 GPUs with the rule pack at work: memory in a run and after a restart."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.report import Results, peak_rss_mb
from bench.server import GPUS, MB, MEMORY_LIMIT_MB, TICK_MS, lived, service_at
from marey.api.own_metrics import resident_bytes
from marey.app.assembly import open_service
from marey.app.settings.configuration import Configuration, StoreSettings
from marey.model.times import HOUR_MS

HOURS = float(os.environ.get("MAREY_BENCH_HOURS", "1"))


def hour_of(folder: str) -> dict[str, float]:
    """Ticks through sources, live table, store and rules; what the process then holds."""
    service, clock, source = service_at(Path(folder))
    # In step with the clock that the bench moves.
    service.collector.watchers.observations.append(service.rule_watch.take)
    ticks = round(HOURS * HOUR_MS / TICK_MS)
    memory, cpu_s = lived(service, clock, source, ticks)
    life, windows = service.rule_watch.loops["default"].evaluator.nbytes
    findings = len(service.rule_watch.findings.all())
    service.stop()
    half = memory[len(memory) // 2 :]
    return {
        "most": memory.max(),
        "peak": peak_rss_mb() * 1.048576,
        "median": float(np.median(half)),
        "growth": float(np.median(half[len(half) // 2 :]) - np.median(half[: len(half) // 2])),
        "life": life / MB,
        "windows": windows / MB,
        "findings": findings,
        "cpu_ms": 1000 * cpu_s / ticks,
        "ticks": ticks,
    }


def again(folder: str, without_state: bool) -> dict[str, float]:
    """A server started on what the first one left; the sketches from their file, or rebuilt."""
    if without_state:
        for path in Path(folder).glob("bench.duckdb.rules-*"):
            path.unlink()
    store = StoreSettings(path=str(Path(folder) / "bench.duckdb"))
    began = time.perf_counter()
    service = open_service(Configuration(store=store))
    most = 0.0
    span = service.store.span("default")
    assert span is not None
    service.rule_watch.start(span[1])
    while "default" not in service.rule_watch.loops:
        most = max(most, resident_bytes() / MB)
        time.sleep(0.02)
    took_s = time.perf_counter() - began
    time.sleep(2.0)
    settled = resident_bytes() / MB
    service.stop()
    return {"most": max(most, settled), "settled": settled, "took_s": took_s}


def main() -> int:
    """Each server is a process of its own, so that nobody's memory is counted as another's."""
    results = Results()
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, spawn.Pool(1, maxtasksperchild=1) as alone:
        first = alone.apply(hour_of, (folder,))
        restored = alone.apply(again, (folder, False))
        rebuilt = alone.apply(again, (folder, True))
    size = f"{GPUS} GPUs, the rule pack, {first['ticks']:.0f} ticks of 15 s"
    for name, most, said in (
        (
            "server with rules, while it runs",
            first["most"],
            f"mostly {first['median']:.0f} MB, {first['growth']:+.0f} MB in the last quarter, "
            f"at any instant at most {first['peak']:.0f} MB; "
            f"sketches {first['life']:.0f} MB, windows {first['windows']:.0f} MB, "
            f"{first['findings']:.0f} findings, {first['cpu_ms']:.1f} ms CPU per tick with all",
        ),
        (
            "started again, sketches from their file",
            restored["most"],
            f"then {restored['settled']:.0f} MB; ready after {restored['took_s']:.1f} s",
        ),
        (
            "started again, sketches rebuilt from the store",
            rebuilt["most"],
            f"then {rebuilt['settled']:.0f} MB; ready after {rebuilt['took_s']:.1f} s",
        ),
    ):
        results.against(
            name,
            ratio=most / MEMORY_LIMIT_MB,
            target=1.0,
            rival=f"the limit of {MEMORY_LIMIT_MB:g} MB (most {most:.0f} MB; {said})",
            size=size,
            at_10x="sketches and windows grow 10×; the base of some 300 MB stays",
            higher_is_better=False,
        )
    return results.missed


if __name__ == "__main__":
    raise SystemExit(main())
