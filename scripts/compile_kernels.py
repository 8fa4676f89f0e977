"""Compile the kernels of a first demo into Numba's cache, by living through a small one.

``scripts/setup-python`` runs it, so that nobody waits for the compiler when a demo starts.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from marey.app.assembly import open_service
from marey.app.service import Service
from marey.app.settings.configuration import (
    CollectSettings,
    Configuration,
    ServerSettings,
    SimulatedSettings,
    StoreSettings,
)
from marey.model.times import MINUTE_MS, parse_time

# A busy afternoon: somebody waits, so that starts are forecast.
CLUSTER = SimulatedSettings(
    gpus=64, seed=1, history_hours=1.0, until_ms=parse_time("2026-11-11T14:00Z")
)


def main() -> None:
    """Make a simulated cluster with its history, let it live on a little, and throw it away."""
    with tempfile.TemporaryDirectory(prefix="marey-kernels-") as folder:
        store = StoreSettings(path=str(Path(folder) / "kernels.duckdb"))
        settings = Configuration(ServerSettings(port=0), store, CollectSettings(), (CLUSTER,))
        service = open_service(settings)
        try:
            live_on(service)
        finally:
            service.stop()


def live_on(service: Service) -> None:
    """Judge what comes next minute by minute, and forecast who waits."""
    now_ms = service.workspace.now_ms()
    for polled in service.collector.sources.polled:
        for observation in polled.source.poll(now_ms + 2 * MINUTE_MS):
            service.collector.take(observation)
            service.rule_watch.take(observation)
    service.collector.show(now_ms)
    for frame in service.feed.newest.values():
        service.queue_log.take(frame)


if __name__ == "__main__":
    main()
