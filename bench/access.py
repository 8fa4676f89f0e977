"""What knowing who asks costs: of a request, and of a tick with 64 clients of different scopes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from bench.report import Results
from bench.wear_down import Server, run_server
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
from marey.live.wire_format import split_message
from marey.model.access.identity import Identity, Privacy, Role

GPUS = 2048
CLIENTS = 64
REQUESTS = 150
TICKS = 15
TURNS = 2
SETTLING = 8
METRICS = ("util", "power_share", "mem_share")
TARGET = 1.10
PATH = "/api/v1/workloads"
QUERY = b"limit=100"
SERVER = """\
[server]
port = {{port}}
{token}
[store]
path = "{{folder}}/access.duckdb"
[collect]
interval = "1s"
[[source]]
kind = "simulated"
gpus = {gpus}
seed = 5
speed = 60
history_hours = 0.5
"""
PRIVATE = """\
[access]
mode = "proxy"
privacy = "{privacy}"
default_role = "researcher"
[proxy]
peers = ["127.0.0.1"]
"""


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


def bench_ticks(results: Results) -> None:
    """CPU of a server's process per tick, with 64 clients that are connected to it.

    Each server collects, stores, judges and encodes the same cluster and sends to 64 sockets; the
    one differs from the other in that it knows who asks, and shows them what they may see.
    """
    modes = (Privacy.OPEN, Privacy.PSEUDONYMOUS, Privacy.OWN)
    # In turns, and the least of each: the machine is shared.
    taken = [[time_server(privacy) for privacy in modes] for _ in range(TURNS)]
    bare, *private = (min(turn[at] for turn in taken) for at in range(len(modes)))
    for privacy, each in zip(modes[1:], private, strict=True):
        results.against(
            f"a tick with {CLIENTS} clients of {CLIENTS} scopes, {privacy}",
            ratio=each / bare,
            target=TARGET,
            rival=f"{CLIENTS} clients that see everything, nobody signed in: "
            f"{bare * 1e3:.1f} ms CPU",
            size=f"{GPUS} GPUs × {len(METRICS)} metrics (simulated), {TICKS} ticks × {TURNS}",
            at_10x="tables are encoded once for all; per scope only its own rows",
            higher_is_better=False,
        )


def time_server(privacy: Privacy) -> float:
    """CPU seconds per tick of a server in which everybody is somebody else, unless it is open."""
    bare = privacy is Privacy.OPEN
    settings = SERVER.format(gpus=GPUS, token="" if bare else 'token_env = "MAREY_BENCH_TOKEN"')
    with run_server(settings if bare else settings + PRIVATE.format(privacy=privacy)) as server:
        users = find_users(server)
        return asyncio.run(time_ticks(server, users, signed_in=not bare))


def find_users(server: Server) -> list[str]:
    """Return people who have work there, as an operator sees them."""
    answer = json.loads(server.ask("/api/v1/workloads?limit=5000"))
    users = sorted({row["user"] for row in answer["rows"] if row["user"]})
    if len(users) < CLIENTS:
        raise RuntimeError(f"{len(users)} people have work there; {CLIENTS} are needed")
    return users[:CLIENTS]


async def time_ticks(server: Server, users: Sequence[str], *, signed_in: bool) -> float:
    """CPU seconds per tick while each of these people is sent every tick."""
    async with contextlib.AsyncExitStack() as stack:
        sockets = [
            await stack.enter_async_context(
                connect(
                    f"ws://127.0.0.1:{server.port}/api/v1/live",
                    additional_headers={"X-Remote-User": user} if signed_in else {},
                    max_size=None,
                )
            )
            for user in users
        ]
        for socket in sockets:
            await socket.send(json.dumps({"subscribe": list(METRICS)}))
        first = [await receive_tick(socket) for socket in sockets]
        # What a server does once, after its start, is no part of a tick.
        settled = max(first) + SETTLING
        await asyncio.gather(*(receive_until(socket, settled) for socket in sockets))
        began = read_cpu(server)
        await asyncio.gather(*(receive_until(socket, settled + TICKS) for socket in sockets))
        return (read_cpu(server) - began) / TICKS


async def receive_until(socket: ClientConnection, seq: int) -> None:
    """Take messages until the tick of this number has come."""
    while await receive_tick(socket) < seq:
        pass


async def receive_tick(socket: ClientConnection) -> int:
    """Return the number of the tick that comes next."""
    data = await asyncio.wait_for(socket.recv(), timeout=60)
    assert isinstance(data, bytes)
    header, _ = split_message(data)
    return int(header["seq"])


def read_cpu(server: Server) -> float:
    """CPU seconds that the server's threads have taken until now."""
    tasks = Path(f"/proc/{server.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def main() -> int:
    """Ratios with and without."""
    results = Results()
    with tempfile.TemporaryDirectory(prefix="marey-bench-") as folder:
        service = open_cluster(Path(folder))
        try:
            service.collector.tick()
            bench_requests(service, results)
        finally:
            service.stop()
    bench_ticks(results)
    return results.missed
