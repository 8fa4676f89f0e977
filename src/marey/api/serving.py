"""Listening: one socket, one process, a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from marey.model.errors import Conflict, InvalidInput

# What a client may say at once on the live connection: a list of metrics.
MESSAGE_LIMIT = 64 * 1024
_GRACE_SECONDS = 5


class LiveProtocol(WebSocketsSansIOProtocol):
    """Cuts a connection whose client does not take even the goodbye."""

    async def run_asgi(self) -> None:
        """Serve the client, then close; by force if its buffer does not empty."""
        await super().run_asgi()
        self.loop.call_later(_GRACE_SECONDS, self.transport.abort)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, or an error that names the port and the way out."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise Conflict(
                f"Port {port} of {host} is in use by another program; give another one with "
                "--port, or --port 0 for any that is free."
            ) from None
        if error.errno == errno.EACCES:
            raise InvalidInput(
                f"Port {port} needs more rights than this user has; allowed: 1024 to 65535, or 0."
            ) from None
        raise InvalidInput(f"Cannot listen on {host} port {port}: {error.strerror}.") from None
    return listener


def address(listener: socket.socket) -> str:
    """The URL behind a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(
    app: FastAPI,
    listener: socket.socket,
    *,
    ready: Callable[[], Any] = lambda: None,
    hangup: Callable[[], Any] | None = None,
) -> None:
    """Answer until SIGINT or SIGTERM; the caller stops what stands behind the app.

    ``hangup`` is what to do at SIGHUP, in a thread beside the answering.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws=LiveProtocol,
        ws_max_size=MESSAGE_LIMIT,
        ws_max_queue=4,
        # Parts are deflated once for all; compressing them per client again gains nothing.
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        timeout_keep_alive=30,
        limit_concurrency=512,
        lifespan="off",
    )
    server = _Server(config)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run(server, listener, ready, hangup))


async def _run(
    server: _Server,
    listener: socket.socket,
    ready: Callable[[], Any],
    hangup: Callable[[], Any] | None,
) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        # Elsewhere than in the main thread (tests) signals belong to others.
        with contextlib.suppress(RuntimeError, ValueError, NotImplementedError):
            loop.add_signal_handler(number, server.end)
    if hangup is not None:
        with contextlib.suppress(RuntimeError, ValueError, NotImplementedError):
            loop.add_signal_handler(signal.SIGHUP, loop.run_in_executor, None, hangup)
    ready()
    await server.serve(sockets=[listener])


class _Server(uvicorn.Server):
    """uvicorn's server without its own signal handling: ours ends it, and exit status stays 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        """Signals are handled by ``serve``."""
        yield

    def end(self) -> None:
        """Finish what is being answered, then stop; asked twice, stop now."""
        self.force_exit = self.should_exit
        self.should_exit = True


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
