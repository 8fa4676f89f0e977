"""A server under attack: what a signed-in client notices of half-open, huge, growing requests."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import multiprocessing
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.report import Results

HALF_OPEN = 540
# A head has ten seconds, so this is how fast all of them must be renewed to stay.
RENEWED_S = 10.0
# Connections a second of somebody in more of a hurry.
FAST_RATE = 200
HEAD_BYTES = 58_000_000
BOMB_MB = 1200
REQUESTS = int(os.environ.get("MAREY_BENCH_REQUESTS", "400"))
# The target: p99 of a signed-in client under attack against its quiet p99.
RATIO_LIMIT = 5.0
TIMEOUT_S = 60.0
RUN = "import sys; from marey.cli import main; sys.exit(main())"
CONFIGURATION = """\
[server]
port = {port}
token_env = "MAREY_BENCH_TOKEN"
[store]
path = "{folder}/wear.duckdb"
[collect]
interval = "1s"
[[source]]
kind = "simulated"
gpus = 512
history_hours = 0.2
"""


@dataclass(frozen=True)
class Server:
    """A running server and the token that lets one in."""

    port: int
    token: str
    pid: int

    def ask(self, path: str, *, method: str = "GET", body: bytes | None = None) -> bytes:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if body is not None:
            headers["Content-Type"] = "application/octet-stream"
        with contextlib.closing(connection):
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            content = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:200]!r}")
        return content

    def read_metric(self, name: str) -> float:
        """A figure of the server's own."""
        lines = self.ask("/metrics").decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def main() -> int:
    """Measure a quiet server, then the same under each attack."""
    results = Results()
    with run_server() as server:
        bomb = make_bomb()
        quiet = measure(server)
        results.line(
            "quiet",
            f"p99 {quiet:.1f} ms of {REQUESTS} requests",
            size="512 GPUs, a tick every second",
            at_10x="the same",
        )
        attacks: dict[str, Callable[[], None]] = {
            f"{HALF_OPEN} half-open connections": lambda: hold_half_open(
                server.port, HALF_OPEN / RENEWED_S
            ),
            f"{HALF_OPEN} half-open, {FAST_RATE} new a second": lambda: hold_half_open(
                server.port, FAST_RATE
            ),
            f"heads of {HEAD_BYTES // 1_000_000} MB": lambda: send_heads(server.port),
            f"a bomb that unpacks to {BOMB_MB} MB": lambda: send_bombs(server, bomb),
        }
        for name, attack in attacks.items():
            compare(server, name, attack, quiet=quiet, results=results)
    return results.missed


def compare(
    server: Server, name: str, attack: Callable[[], None], *, quiet: float, results: Results
) -> None:
    """Measure under one attack, from a process of its own, and count the ticks it cost."""
    ticks, skipped = (server.read_metric(f"marey_{n}") for n in ("ticks_total", "skipped_ticks"))
    attacker = multiprocessing.get_context("fork").Process(target=attack, daemon=True)
    attacker.start()
    time.sleep(2)
    p99 = measure(server)
    # An attack that fell over attacks nobody.
    alive = attacker.is_alive()
    attacker.terminate()
    attacker.join()
    if not alive:
        raise RuntimeError(f"the attack '{name}' ended by itself")
    missed = server.read_metric("marey_skipped_ticks") - skipped
    done = server.read_metric("marey_ticks_total") - ticks
    results.against(
        f"{name}: p99 {p99:.1f} ms; {done:.0f} ticks, {missed:.0f} skipped",
        ratio=p99 / quiet,
        target=RATIO_LIMIT,
        rival="its quiet p99",
        size=f"{REQUESTS} requests",
        at_10x="the same: the oldest give way, heads end at 32 KB, bombs in a child",
        higher_is_better=False,
    )
    results.missed += missed > 0


def measure(server: Server) -> float:
    """The 99th percentile of one request after the other, in milliseconds."""
    took = []
    for _ in range(REQUESTS):
        began = time.perf_counter()
        server.ask("/api/v1/clusters")
        took.append(time.perf_counter() - began)
    return float(np.quantile(took, 0.99)) * 1e3


def hold_half_open(port: int, rate: float) -> None:
    """Keep so many connections half-open, and open new ones in their place at this rate."""
    held: list[socket.socket] = []
    due = time.perf_counter()
    while True:
        with contextlib.suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", port), timeout=5)
            connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
            held.append(connection)
        if len(held) >= HALF_OPEN:
            held.pop(0).close()
            due = max(due + 1 / rate, time.perf_counter() - 1)
            time.sleep(max(0.0, due - time.perf_counter()))


def send_heads(port: int) -> None:
    """Send heads that do not end, one after the other."""
    piece = b"a" * 65536
    while True:
        with contextlib.suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", port), timeout=5)
            with connection:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
                for _ in range(HEAD_BYTES // len(piece)):
                    connection.sendall(piece)
        time.sleep(0.01)


def make_bomb() -> bytes:
    """A small gzip file of a trace that is almost only space."""
    blank = b" " * 1_000_000
    members = [b'{"traceEvents": [', *([blank] * BOMB_MB), b"]}"]
    return gzip.compress(b"".join(members), 9)


def send_bombs(server: Server, bomb: bytes) -> None:
    """Send the bomb as a run and have it converted, again and again."""
    while True:
        wish = json.dumps({"name": "bomb"}).encode()
        run = json.loads(_post_json(server, "/api/v1/traces", wish))["id"]
        path = f"/api/v1/traces/{run}"
        server.ask(f"{path}/files?file=rank0.json.gz&bytes={len(bomb)}", method="PUT", body=bomb)
        _post_json(server, f"{path}/convert", b"{}")
        while json.loads(server.ask(path))["run"]["state"] in ("waiting", "converting"):
            time.sleep(0.2)


def _post_json(server: Server, path: str, body: bytes) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    with contextlib.closing(connection):
        connection.request("POST", path, body=body, headers=headers)
        answer = connection.getresponse()
        content = answer.read()
    if answer.status >= 300:
        raise RuntimeError(f"POST {path}: {answer.status} {content[:200]!r}")
    return content


@contextmanager
def run_server(settings: str = CONFIGURATION) -> Iterator[Server]:
    """A server of its own process, with a token where it takes one, over a simulated cluster."""
    token = secrets.token_hex(16) if "token_env" in settings else ""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="marey-wear-") as folder:
        configuration = Path(folder) / "marey.toml"
        configuration.write_text(settings.format(port=port, folder=folder))
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, "serve", "--config", str(configuration)],
            env={**os.environ, "MAREY_BENCH_TOKEN": token},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        server = Server(port, token, process.pid)
        try:
            _wait(server, process)
            yield server
        finally:
            process.terminate()
            process.wait()


def _wait(server: Server, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError, RuntimeError):
            if server.read_metric("marey_ticks_total") >= 3:
                return
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with code {process.returncode}")
        time.sleep(0.2)
    raise RuntimeError("the server did not start")
