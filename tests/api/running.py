"""A real server in a thread: real sockets, real back-pressure."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from marey.api.application import build_app
from marey.api.serving import LiveProtocol, address, listen
from marey.app.service import Service


@contextmanager
def running(service: Service) -> Iterator[str]:
    """The URL of a server over this service."""
    listener: socket.socket = listen("127.0.0.1", 0)
    app = build_app(service)
    config = uvicorn.Config(
        app,
        log_level="warning",
        ws=LiveProtocol,
        ws_max_size=64 * 1024,
        ws_per_message_deflate=False,
        lifespan="off",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    wait_for(lambda: server.started)
    try:
        yield address(listener)
    finally:
        server.should_exit = server.force_exit = True
        thread.join(10)
        listener.close()


def wait_for(holds: Any, seconds: float = 20.0) -> None:
    """Wait until this holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def get_json(url: str) -> Any:
    """A JSON document from a server."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.loads(answer.read())
