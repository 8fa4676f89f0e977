"""A real server in a thread: real sockets, real back-pressure."""

from __future__ import annotations

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from marey.api.application import build_app
from marey.api.guard import Access
from marey.api.reverse_proxy import ProxyRules
from marey.api.serving import address, listen, make_server
from marey.api.tls import ServerCertificate
from marey.app.service import Service
from tests.signed_in import owner_access
from tests.waiting import until


@contextmanager
def running(
    service: Service,
    send_buffer: int | None = None,
    *,
    access: Access | None = None,
    front: ProxyRules | None = None,
    certificate: ServerCertificate | None = None,
    listener: socket.socket | None = None,
) -> Iterator[str]:
    """The URL of a server over this service; its sockets buffer what the machine lets them."""
    listener = listener or listen("127.0.0.1", 0)
    if send_buffer is not None:
        # Connections inherit it, and the kernel lets one that was set grow no more.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    app = build_app(service, access or owner_access(), front)
    server = make_server(app, certificate)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until(lambda: server.started, "a server that listens")
    try:
        yield address(listener, secure=certificate is not None)
    finally:
        server.should_exit = server.force_exit = True
        thread.join(60)
        listener.close()


def get_json(url: str) -> Any:
    """A JSON document from a server."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.loads(answer.read())
