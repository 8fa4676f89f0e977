"""What knowing who asks costs: of a request, and of a tick with 64 clients of different scopes."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.report import Results
from marey.api.application import build_app
from marey.api.guard import Access
from marey.app.access.access_control import AccessControl
from marey.app.assembly import open_service
from marey.app.privacy.scopes import PrivacyRules, Scopes
from marey.app.service import Service
from marey.app.settings.configuration import (
    CollectSettings,
    Configuration,
    ServerSettings,
    SimulatedSettings,
    StoreSettings,
)
from marey.live.feed import FrameFeed
from marey.model.access.identity import Identity, Privacy, Role
from marey.model.protocols import WorkloadQuery

GPUS = 2048
CLIENTS = 64
REQUESTS = 150
TICKS = 7
METRICS = ("util", "power_share", "mem_share")
TARGET = 1.10
PATH = "/api/v1/workloads"
QUERY = b"limit=100"


def open_cluster(folder: Path) -> Service:
    """A simulated cluster with a little history, collected by hand."""
    source = SimulatedSettings(gpus=GPUS, seed=5, speed=60.0, history_hours=0.5)
    configuration = Configuration(
        server=ServerSettings(),
        store=StoreSettings(path=str(folder / "bench.duckdb")),
        collect=CollectSettings(),
        sources=(source,),
    )
    return open_service(configuration)


def ask(app: Any, headers: Sequence[tuple[bytes, bytes]]) -> float:
    """CPU seconds of one request, the middle one of many."""
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
        "scheme": "http", "path": PATH, "raw_path": PATH.encode(), "query_string": QUERY,
        "root_path": "", "headers": [(b"host", b"127.0.0.1"), *headers],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def run() -> list[float]:
        taken = []
        for _ in range(REQUESTS):
            began = time.process_time()
            await app(dict(scope), receive, send)
            taken.append(time.process_time() - began)
        return sorted(taken)

    taken = asyncio.run(run())
    assert set(statuses) == {200}, set(statuses)
    return taken[len(taken) // 2]


def find_users(service: Service) -> list[str]:
    """People who have work there."""
    users = service.store.workloads(WorkloadQuery("default", limit=5000))["user"].to_pylist()
    return sorted({user for user in users if user})


def time_ticks(service: Service, feeds: Sequence[FrameFeed]) -> float:
    """CPU seconds of a tick and of everything its clients are sent, the middle one of several."""
    taken = []
    for _ in range(TICKS):
        # At 60 times the speed of time, a tick of the cluster.
        time.sleep(0.26)
        began = time.process_time()
        service.collector.tick()
        for feed in feeds:
            feed.newest["default"].tick(METRICS)
        taken.append(time.process_time() - began)
    return sorted(taken)[TICKS // 2]


def set_privacy(service: Service, privacy: Privacy) -> None:
    """Let the site have this mode from now on."""
    service.scopes = Scopes(service.store, PrivacyRules(privacy, bytes(32)))


def compare(work: Callable[[], float], other: Callable[[], float]) -> tuple[float, float]:
    """The least of two, in turns: the machine is shared."""
    pairs = [(work(), other()) for _ in range(2)]
    return min(one for one, _ in pairs), min(two for _, two in pairs)


def bench_requests(service: Service, results: Results) -> None:
    """A list of 100 workloads: asked by anybody of an open site, and by somebody signed in."""
    open_app = build_app(service, Access())
    control = AccessControl(mode="token")
    begun = control.sign_in(Identity("ada", Role.RESEARCHER), peer="127.0.0.1")
    signed_app = build_app(service, Access((), control))
    headers = [(b"cookie", f"marey_session={begun.cookie}".encode())]
    for privacy in (Privacy.OPEN, Privacy.PSEUDONYMOUS):
        set_privacy(service, privacy)
        signed, bare = compare(
            lambda: ask(signed_app, headers), lambda: ask_openly(service, open_app)
        )
        results.against(
            f"a request by a session, privacy {privacy}",
            ratio=signed / bare,
            target=TARGET,
            rival=f"nobody signed in, open: {bare * 1e3:.2f} ms CPU",
            size=f"100 workloads of {GPUS} GPUs (simulated)",
            at_10x="the same: per request, and per row shown",
            higher_is_better=False,
        )


def ask_openly(service: Service, app: Any) -> float:
    """CPU seconds of a request where everybody sees everything."""
    kept = service.scopes
    set_privacy(service, Privacy.OPEN)
    try:
        return ask(app, [])
    finally:
        service.scopes = kept


def bench_ticks(service: Service, results: Results) -> None:
    """64 people, each with what their scope shows."""
    users = find_users(service)
    people = [Identity(users[i % len(users)], Role.RESEARCHER) for i in range(CLIENTS)]
    for privacy in (Privacy.PSEUDONYMOUS, Privacy.OWN):
        set_privacy(service, privacy)
        feeds = [service.seen_by(person).feed for person in people]
        private, bare = compare(
            lambda feeds=feeds: time_ticks(service, feeds),  # type: ignore[misc]
            lambda: time_ticks(service, [service.feed] * CLIENTS),
        )
        results.against(
            f"a tick with {CLIENTS} clients of {min(len(users), CLIENTS)} scopes, {privacy}",
            ratio=private / bare,
            target=TARGET,
            rival=f"{CLIENTS} clients that see everything: {bare * 1e3:.1f} ms CPU",
            size=f"{GPUS} GPUs × {len(METRICS)} metrics (simulated)",
            at_10x="metrics are encoded once for all; units and workloads once per scope",
            higher_is_better=False,
        )


def main() -> int:
    """Ratios with and without."""
    results = Results()
    with tempfile.TemporaryDirectory(prefix="marey-bench-") as folder:
        service = open_cluster(Path(folder))
        try:
            service.collector.tick()
            bench_requests(service, results)
            bench_ticks(service, results)
        finally:
            service.stop()
    return results.missed
