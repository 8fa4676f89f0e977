"""Real receivers on loopback: an HTTP server that does as it is told, and kept deliveries."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from marey.notify.notices import Notice


class Hook:
    """A webhook: what it got, and how it answers (a status, ``hang`` or ``drip``)."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.got: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.closing = threading.Event()
        # Whether a client stayed to the end of an answer that hangs or drips.
        self.waited_out = False
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.headers.append(dict(self.headers))
                answer = hook.answers.pop(0) if hook.answers else 200
                if answer == "hang":
                    hook.waited_out = not hook.closing.wait(120)
                    return
                if answer == "drip":
                    for _ in range(1200):
                        self.wfile.write(b"H")
                        if hook.closing.wait(0.1):
                            return
                    hook.waited_out = True
                    return
                if answer < 300:
                    hook.got.append(json.loads(body))
                self.send_response(answer)
                if 300 <= answer < 400:
                    self.send_header("Location", f"{hook.url}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()


class Kept:
    """Deliveries kept in memory as the documents that a store would hold."""

    def __init__(self) -> None:
        self.documents: dict[str, str] = {}

    def put(self, name: str, document: Any) -> None:
        self.documents[name] = json.dumps(document)

    def delete(self, name: str) -> None:
        self.documents.pop(name, None)

    def all(self) -> dict[str, Any]:
        return {name: json.loads(text) for name, text in self.documents.items()}


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def notice() -> Callable[..., Notice]:
    def make(name: str = "1", **fields: Any) -> Notice:
        status = fields.get("status", "firing")
        defaults: dict[str, Any] = {
            "id": f"f{name}:{status}",
            "status": "firing",
            "time_ms": 1_790_000_000_000,
            "opened_ms": 1_790_000_000_000,
            "finding": f"f{name}",
            "rule": "stalled",
            "title": "Stalled",
            "severity": "critical",
            "cluster": "default",
            "workload": f"4100{name}",
            "user": "ada",
            "project": "vision",
            "gpu_count": 2,
            "gpus": ("n1:0", "n1:1"),
            "readings": ("n1:0: util p5[5m] > 90%: 100 (limit 90)",),
        }
        return Notice(**{**defaults, **fields})

    return make
