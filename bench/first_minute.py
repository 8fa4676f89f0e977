"""The first minute: rules judged while a day is made, and a store judged anew."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from bench.report import Results, peak_rss_mb
from marey.app.assembly import open_service
from marey.app.rules.state_file import CourtKeeper
from marey.app.service import Service
from marey.app.settings.configuration import (
    CollectSettings,
    Configuration,
    ServerSettings,
    SimulatedSettings,
    StoreSettings,
)
from marey.model.times import parse_time

GPUS = int(os.environ.get("MAREY_BENCH_GPUS", "512"))
HOURS = float(os.environ.get("MAREY_BENCH_HOURS", "24"))
NEVER_COARSE_MS = 1 << 50


def main() -> int:
    """Print what a day costs, with and without its rules; 1 where the target is missed."""
    results = Results()
    size = f"{GPUS} GPUs x {HOURS:g} h"
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = time.perf_counter(), time.process_time()
        service = open_simulated_service(Path(folder) / "demo.duckdb")
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        judged = len(service.rule_watch.findings.all())
        results.line(
            "history made and judged",
            f"{wall:.1f} s wall, {cpu:.1f} s CPU, {judged} findings, peak {peak_rss_mb():.0f} MB",
            size=size,
            at_10x="ten times as long",
        )
        old = rebuild(service, NEVER_COARSE_MS)
        new = rebuild(service, None)
        results.against(
            "a store without rule state is judged anew",
            ratio=old / new,
            target=5.0,
            rival=f"minute by minute ({old:.1f} s CPU against {new:.1f} s)",
            size=size,
            at_10x="the same",
        )
        service.rule_watch.stop()
        service.store.close()
    return results.missed


def open_simulated_service(path: Path) -> Service:
    """Return a service over a day that was just made."""
    source = SimulatedSettings(
        gpus=GPUS,
        seed=1,
        speed=15.0,
        history_hours=HOURS,
        until_ms=parse_time("2026-11-11T14:00Z"),
    )
    return open_service(
        Configuration(
            server=ServerSettings(port=0),
            store=StoreSettings(path=str(path)),
            collect=CollectSettings(),
            sources=(source,),
        )
    )


def rebuild(service: Service, fine_ms: int | None) -> float:
    """Return the CPU seconds of judging the whole store; all of it by the minute if told so."""
    keeper = CourtKeeper(service.store, None, lambda: False)
    if fine_ms is not None:
        keeper = CourtKeeper(service.store, None, lambda: False, fine_ms=fine_ms)
    begun = time.process_time()
    keeper.open("default", service.rule_book.all(), [], service.workspace.now_ms())
    return time.process_time() - begun


if __name__ == "__main__":
    raise SystemExit(main())
